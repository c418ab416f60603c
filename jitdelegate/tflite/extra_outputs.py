"""Further tensors as outputs: a copy of the model whose subgraphs return them too.

Every way to run a model, LiteRT's too, gets this copy, so that none needs to know of it, and no pass removes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jitdelegate.errors import OptionError, did_you_mean, shortened
from jitdelegate.ir.graph import ABSENT, Graph, Model, Node
from jitdelegate.runtime.buffers import ELEMENTS
from jitdelegate.tflite.calls import entered_subgraphs
from jitdelegate.tflite.cut import Cutter
from jitdelegate.tflite.pack import pack_model
from jitdelegate.tflite.read import read
from jitdelegate.tflite.record import Record


def with_extra_outputs(content: bytes, wanted: bool | Sequence[str | int]) -> bytes:
    """The model with further outputs, after its own, in its main subgraph and in those of its signatures.

    A signature gets them too, by the tensors' names; by "name:index" where it has an output of this name already. What
    is an output already is not repeated.

    Args:
        content: a .tflite file.
        wanted: names of tensors, in whichever of these subgraphs have them, and indices of the main subgraph's; True
            for all that operators compute, but strings and the like, and `unpacked_constants`.
    Raises:
        OptionError: no tensor has such a name or index, or nothing gives it a value.
        ModelError: the bytes are not a model.
    """
    model = read(content)
    extra = {number: indices for number, indices in _extra(model, wanted).items() if indices}
    if not extra:
        return content
    file, external = Cutter(content).model()
    subgraphs = list(file["subgraphs"])
    for number, indices in extra.items():
        outputs = [*subgraphs[number].get("outputs", ()), *indices]
        subgraphs[number] = subgraphs[number] | {"outputs": outputs}
    signatures = [_extended(signature, model.graphs, extra) for signature in file.get("signature_defs", ())]
    return pack_model(file | {"subgraphs": subgraphs, "signature_defs": signatures or None}, external)


def _extra(model: Model, wanted: bool | Sequence[str | int]) -> dict[int, list[int]]:
    """By subgraph, the tensors that become outputs."""
    graphs = {number: model.graphs[number] for number in entered_subgraphs(model)}
    extra = {number: _computed(graph) if wanted is True else list[int]() for number, graph in graphs.items()}
    for one in () if isinstance(wanted, bool) else wanted:
        for number, index in _tensors(graphs, one):
            extra[number].append(index)
    return {
        number: [index for index in dict.fromkeys(indices) if index not in graphs[number].outputs]
        for number, indices in extra.items()
    }


def _computed(graph: Graph) -> list[int]:
    """The tensors that a run gives a value, of types that arrays have."""
    written = dict.fromkeys(index for node in graph.nodes for index in node.outputs if index != ABSENT)
    changing = written.keys() - unpacked_constants(graph)
    return [index for index in written if index in changing and graph.tensors[index].dtype in ELEMENTS]


def unpacked_constants(graph: Graph) -> dict[int, tuple[Node, ...]]:
    """The tensors that hold constants in another form, such as weights stored as float16, and what unpacks them, in
    order.

    No run changes them, so that to copy them in each would be a waste.
    """
    unpacking: dict[int, tuple[Node, ...]] = {}
    for node in graph.nodes:
        if node.op in ("DEQUANTIZE", "DENSIFY") and not node.custom and len(node.inputs) == len(node.outputs) == 1:
            (source,), (result,) = node.inputs, node.outputs
            if source in unpacking or (source != ABSENT and graph.tensors[source].is_constant):
                unpacking[result] = (*unpacking.get(source, ()), node)
    return unpacking


def _tensors(graphs: Mapping[int, Graph], wanted: str | int) -> list[tuple[int, int]]:
    """(subgraph, tensor) for each tensor of this name, or the one of this index.

    Raises:
        OptionError: as `with_extra_outputs`.
    """
    names = [(tensor.name, (n, i)) for n, graph in graphs.items() for i, tensor in enumerate(graph.tensors)]
    if isinstance(wanted, str):
        matching = [tensor for name, tensor in names if name == wanted]
        if not matching:
            hint = did_you_mean(wanted, {name for name, _ in names})
            expected = f"expected the name of one of the model's {len(names)} tensors"
            raise OptionError(f"extra_outputs has {shortened(wanted)!r}{hint}, {expected}")
    else:
        matching, count = [(0, wanted)], len(graphs[0].tensors)
        if wanted >= count:
            raise OptionError(f"extra_outputs has tensor {wanted}, expected a name, or an index up to {count - 1}")
    valued = [(number, index) for number, index in matching if _has_value(graphs[number], index)]
    if not valued:
        raise OptionError(f"extra_outputs has {wanted!r}, a tensor that no operator writes and no caller gives")
    return valued


def _has_value(graph: Graph, index: int) -> bool:
    written = {output for node in graph.nodes for output in node.outputs}
    return index in written or index in graph.inputs or graph.tensors[index].is_constant


def _extended(signature: Record, graphs: Sequence[Graph], extra: Mapping[int, Sequence[int]]) -> Record:
    number = signature.get("subgraph_index", 0)
    outputs = list(signature.get("outputs", ()))
    for index in extra.get(number, ()):
        name = graphs[number].tensors[index].name
        if any(argument.get("name") == name for argument in outputs):
            name = f"{name}:{index}"
        outputs.append({"name": name, "tensor_index": index})
    return signature | {"outputs": outputs}
