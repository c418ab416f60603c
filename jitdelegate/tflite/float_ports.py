"""Float32 inputs and outputs in place of quantized ones: a copy of the model with QUANTIZE and DEQUANTIZE at its ports.

Every way to run a model, LiteRT's too, gets this copy, so that none needs to know of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from jitdelegate.ir.graph import Graph, Tensor
from jitdelegate.tflite.calls import entered_subgraphs
from jitdelegate.tflite.cut import Cutter
from jitdelegate.tflite.options import BUILTIN_CODES
from jitdelegate.tflite.pack import pack_model
from jitdelegate.tflite.read import read
from jitdelegate.tflite.record import Record

TYPES = ("int8", "uint8", "int16")
"""Types that QUANTIZE writes and DEQUANTIZE reads."""
_SUFFIX = "_quantized"


def with_float_ports(content: bytes, *, inputs: bool, outputs: bool) -> bytes:
    """The model with float32 ports in its main subgraph and in those of its signatures; unchanged where none differs.

    Ports that are quantized per tensor, of one of TYPES, become float32. The new tensors follow the subgraph's others
    and have the names of the ports; each QUANTIZE comes before the subgraph's operators, each DEQUANTIZE after them.

    Args:
        content: a .tflite file; `inputs` and `outputs` say which ports may change.
    Raises:
        ModelError: the bytes are not a model.
    """
    model = read(content)
    file, external = Cutter(content).model()
    ports = _Ports(file["operator_codes"])
    subgraphs, signatures = list(file["subgraphs"]), list(file.get("signature_defs", ()))
    for number in entered_subgraphs(model):
        graph = model.graphs[number]
        given = _new_indices(graph, graph.inputs if inputs else (), len(graph.tensors))
        returned = _new_indices(graph, graph.outputs if outputs else (), len(graph.tensors) + len(given))
        if given or returned:
            subgraphs[number] = ports.converted(subgraphs[number], given, returned)
            signatures = [_renumbered(signature, number, given, returned) for signature in signatures]
    if not ports.used:
        return content
    changed = {"operator_codes": ports.codes, "subgraphs": subgraphs, "signature_defs": signatures or None}
    return pack_model(file | changed, external)


def _new_indices(graph: Graph, indices: Sequence[int], first: int) -> dict[int, int]:
    """Port to its new tensor, of which the first has the index `first`."""
    changing = [index for index in dict.fromkeys(indices) if _may_change(graph.tensors[index])]
    return {index: new for new, index in enumerate(changing, first)}


def _may_change(tensor: Tensor) -> bool:
    quant = tensor.quant
    return quant is not None and len(quant.scales) == 1 and tensor.dtype in TYPES and not tensor.is_variable


def _renumbered(signature: Record, number: int, given: dict[int, int], returned: dict[int, int]) -> Record:
    if signature.get("subgraph_index", 0) != number:
        return signature
    changed = {}
    for side, new in (("inputs", given), ("outputs", returned)):
        maps = [(argument, argument.get("tensor_index", 0)) for argument in signature.get(side, ())]
        changed[side] = [argument | {"tensor_index": new.get(index, index)} for argument, index in maps]
    return signature | changed


class _Ports:
    """Converts the ports of one model's subgraphs.

    Attributes:
        codes: the model's operator codes.
        used: whether any port was converted.
    """

    def __init__(self, codes: Sequence[Record]) -> None:
        self.codes = list(codes)
        self._known = len(codes)

    @property
    def used(self) -> bool:
        return len(self.codes) > self._known

    def converted(self, subgraph: Record, given: dict[int, int], returned: dict[int, int]) -> Record:
        """The subgraph with these new tensors as ports."""
        tensors = list(subgraph["tensors"])
        for index in (*given, *returned):
            tensors.append(_as_float(subgraph["tensors"][index]))
            tensors[index] = tensors[index] | {"name": f"{subgraph['tensors'][index].get('name', '')}{_SUFFIX}"}
        before = [self._operator("QUANTIZE", new, old) for old, new in given.items()]
        after = [self._operator("DEQUANTIZE", old, new) for old, new in returned.items()]
        return subgraph | {
            "tensors": tensors,
            "inputs": [given.get(index, index) for index in subgraph.get("inputs", ())],
            "outputs": [returned.get(index, index) for index in subgraph.get("outputs", ())],
            "operators": [*before, *subgraph.get("operators", ()), *after],
        }

    def _operator(self, op: str, source: int, result: int) -> Record:
        code = {"builtin_code": BUILTIN_CODES[op], "deprecated_builtin_code": BUILTIN_CODES[op]}
        if code not in self.codes[self._known :]:
            self.codes.append(code)
        return {"opcode_index": self.codes.index(code, self._known), "inputs": [source], "outputs": [result]}


def _as_float(tensor: Record) -> Record:
    shape = {name: tensor[name] for name in ("name", "shape", "shape_signature", "has_rank") if name in tensor}
    return shape | {"type": "FLOAT32"}
