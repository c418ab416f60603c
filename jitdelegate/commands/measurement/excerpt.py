"""A copy of a model in which a subgraph has some of its operators only, and other inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence

from jitdelegate.tflite.cut import Cutter
from jitdelegate.tflite.pack import pack_model

KEY = "excerpt"
"""Key of the signature that runs the copy's subgraph."""


def excerpt(
    content: bytes, subgraph: int, operators: Sequence[int], inputs: Sequence[int], outputs: Sequence[int]
) -> bytes:
    """The model with these operators in one subgraph, which its only signature, KEY, runs.

    Tensors keep their indices; in the signature, tensor 7 is named "7". Other subgraphs stay, for operators that name
    them.

    Args:
        content: a .tflite file that `read` accepts.
        operators: positions in the subgraph, in order.
        inputs, outputs: tensors of the subgraph; the inputs are no constants.
    Raises:
        ModelError: the bytes are not a model.
    """
    file, external = Cutter(content).model()
    subgraphs, stored = list(file["subgraphs"]), file["subgraphs"][subgraph].get("operators", ())
    subgraphs[subgraph] = subgraphs[subgraph] | {
        "operators": [stored[position] for position in operators],
        "inputs": list(inputs),
        "outputs": list(outputs),
    }
    signature = {
        "signature_key": KEY,
        "subgraph_index": subgraph,
        "inputs": [{"name": str(index), "tensor_index": index} for index in inputs],
        "outputs": [{"name": str(index), "tensor_index": index} for index in outputs],
    }
    return pack_model(file | {"subgraphs": subgraphs, "signature_defs": [signature]}, external)
