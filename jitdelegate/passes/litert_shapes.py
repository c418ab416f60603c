"""Asks LiteRT for the shapes of an operator's outputs, where the operator's class does not know them.

LiteRT knows most shapes before a run, those of operators that are never compiled too. The operator is written as a
model of its own and prepared, which takes less than a millisecond and computes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from flatbuffers.builder import BuilderSizeError

from jitdelegate.errors import OptionError
from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.ops import find
from jitdelegate.ops.call import Call, Shape
from jitdelegate.ops.registry import MAX_ELEMENTS, MAX_RANK
from jitdelegate.runtime.litert import interpreter_class
from jitdelegate.tflite.calls import called_subgraphs
from jitdelegate.tflite.constants import UNSIZED
from jitdelegate.tflite.write import GraphBuilder, ModelBuilder

HANDLES = ("resource", "variant")
"""Types whose values name memory outside the operator, of which a model of the operator alone knows nothing."""
DIVISORS = ("stride", "dilation", "block_size", "num_splits", "filter_height", "filter_width", "depth_multiplier")
"""How the names of options begin that LiteRT divides by as it prepares an operator, without a check in some kernels."""
EXTERNAL = 1024
"""Bytes from which on constants lie behind the FlatBuffer, where they are copied once."""


def litert_shapes(call: Call, graphs: Sequence[Graph] = ()) -> tuple[Shape, ...] | None:
    """The shapes of all outputs of a node, as LiteRT knows them before a run; None unless it knows all of them.

    Args:
        call: the node in a graph of only its own tensors, whose shapes are true.
        graphs: the model's subgraphs, which the node may name in its options.
    """
    shapes = _answer(call, graphs) if _may_ask(call, graphs) else None
    if shapes is None or _answer(_with_other_hints(call), graphs) not in (shapes, None):
        return None
    return (*shapes, *(tensor.shape for tensor in _states(call)))


def _answer(call: Call, graphs: Sequence[Graph]) -> tuple[Shape, ...] | None:
    """LiteRT's shapes of the outputs; None also where the operator cannot be written as a file."""
    try:
        content = _content(call, graphs)
    except (OptionError, BuilderSizeError, ValueError, TypeError, OverflowError):
        return None
    return _prepared(content, custom=call.node.custom)


def _with_other_hints(call: Call) -> Call:
    """The call with other shapes of its outputs. RESHAPE, for one, keeps the file's until it knows the wanted one."""
    tensors = list(call.graph.tensors)
    for index in call.node.outputs:
        first, *rest = tensors[index].shape or (1,)
        tensors[index] = replace(tensors[index], shape=(first + 1, *rest))
    return Call(replace(call.graph, tensors=tuple(tensors)), call.node)


def _may_ask(call: Call, graphs: Sequence[Graph]) -> bool:
    """Whether the node is such that LiteRT answers or refuses, and does not end the process."""
    node, op = call.node, find(call.node)
    if not node.outputs or any(tensor.dtype in HANDLES for tensor in call.operands):
        return False
    if any(tensor.dtype in UNSIZED for tensor in call.outputs):
        return False
    if op is not None and not all(map(call.given, range(op.least))):
        return False
    if any(value < 1 for name, value in node.attrs.items() if name.startswith(DIVISORS) and isinstance(value, int)):
        return False
    if any(not 0 < value < len(graphs) for _, value in called_subgraphs(node) if value >= 0):
        return False
    return all(tensor.has_rank and len(tensor.shape) <= MAX_RANK and _is_small(tensor) for tensor in call.operands)


def _is_small(tensor: Tensor) -> bool:
    return 0 <= tensor.size <= MAX_ELEMENTS


def _states(call: Call) -> list[Tensor]:
    """The states that the node updates, if `passes.functional_state` has given it further outputs for these."""
    op = find(call.node)
    updated = op.updates(call.node) if op is not None else ()
    found = [call.tensor(operand) for operand in updated if call.given(operand)]
    return found if op is not None and found and len(call.node.outputs) >= 1 + len(found) else []


def _content(call: Call, graphs: Sequence[Graph]) -> bytes:
    """The .tflite file of a node, with the subgraphs of its model that it names, and those that they name."""
    numbers = {number: own for own, number in enumerate(_reached(call.node, graphs), 1)}
    model, node = ModelBuilder(), _renumbered(call.node, numbers)
    states = {id(tensor) for tensor in _states(call)}
    places = [_written(model, tensor, is_state=id(tensor) in states) for tensor in call.graph.tensors]
    read = dict.fromkeys(index for index in node.inputs if index != ABSENT)
    outputs = node.outputs[: len(node.outputs) - len(states)]
    model.take(*(places[index] for index in read if _is_fed(call.graph.tensors[index], states)))
    _write_node(model, node, places, outputs)
    model.output(*(places[index] for index in outputs))
    for number in numbers:
        _write_subgraph(model.subgraph(), graphs[number], numbers)
    return model.finish()


def _reached(node: Node, graphs: Sequence[Graph]) -> list[int]:
    """The subgraphs that a node names, and those that their nodes name."""
    found, pending = dict[int, None](), [node]
    while pending:
        new = dict.fromkeys(number for _, number in called_subgraphs(pending.pop()) if 0 < number < len(graphs))
        pending += [node for number in new if number not in found for node in graphs[number].nodes]
        found |= new
    return [*found]


def _renumbered(node: Node, numbers: Mapping[int, int]) -> Node:
    """The node with other numbers of the subgraphs that it names."""

    def other(value: Any) -> Any:
        return tuple(map(other, value)) if isinstance(value, tuple) else numbers.get(value, value)

    named = {name: other(node.attrs[name]) for name, _ in called_subgraphs(node)}
    return replace(node, attrs={**node.attrs, **named}) if named else node


def _is_fed(tensor: Tensor, states: set[int]) -> bool:
    return not tensor.is_constant and not tensor.is_variable and id(tensor) not in states


def _write_subgraph(builder: GraphBuilder, graph: Graph, numbers: Mapping[int, int]) -> None:
    places = [_written(builder, tensor) for tensor in graph.tensors]
    builder.take(*(places[index] for index in graph.inputs))
    for node in graph.nodes:
        _write_node(builder, _renumbered(node, numbers), places, node.outputs)
    builder.output(*(places[index] for index in graph.outputs))


def _written(builder: GraphBuilder, tensor: Tensor, *, is_state: bool = False) -> int:
    """The tensor's index in the file."""
    if tensor.data is None:
        is_variable = tensor.is_variable or is_state
        return builder.tensor(tensor.shape, tensor.dtype, name=tensor.name, quant=tensor.quant, is_variable=is_variable)
    return builder.constant(
        tensor.data,
        name=tensor.name,
        quant=tensor.quant,
        dtype=tensor.dtype,
        shape=tensor.shape,
        sparsity=tensor.sparsity,
        external=tensor.data.nbytes >= EXTERNAL,
    )


def _write_node(builder: GraphBuilder, node: Node, places: Sequence[int], outputs: Sequence[int]) -> None:
    inside = [builder.tensor((), "int16", quant=quant) for quant in node.intermediates]
    operands = [None if index == ABSENT else places[index] for index in node.inputs]
    builder.node(
        node.op,
        operands,
        [places[index] for index in outputs],
        options={} if node.custom else _options(node),
        version=node.version,
        custom_options=node.custom_options if node.custom else None,
        intermediates=inside,
    )


def _options(node: Node) -> dict[str, Any]:
    """The options that the file has: LiteRT distinguishes absent vectors and texts from empty ones."""
    return {
        name: value for name, value in node.attrs.items() if not (isinstance(value, str | tuple | bytes) and not value)
    }


def _prepared(content: bytes, *, custom: bool) -> tuple[Shape, ...] | None:
    """The shapes of a model's outputs after LiteRT has prepared it; None where LiteRT refuses the model or finds out a
    shape only as it runs.

    Its default delegate, which packs weights, is asked only about custom operators that nothing else knows.
    """
    from ai_edge_litert.interpreter import OpResolverType

    resolvers = [OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES, *([OpResolverType.AUTO] if custom else [])]
    for resolver in resolvers:
        try:
            interpreter = interpreter_class()(model_content=content, experimental_op_resolver_type=resolver)
            interpreter.allocate_tensors()
            return _static_shapes(interpreter)
        except (ValueError, RuntimeError):
            continue
    return None


def _static_shapes(interpreter: Any) -> tuple[Shape, ...] | None:
    """The shapes of the outputs of a prepared model.

    Raises:
        ValueError: an output has no memory before a run.
    """
    details = interpreter.get_output_details()
    shapes = tuple(tuple(map(int, detail["shape"])) for detail in details)
    if any(0 in shape for shape in shapes):
        return None  # without memory in any case, so nobody can tell
    for detail in details:
        interpreter.tensor(detail["index"])()
    return shapes
