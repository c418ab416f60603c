"""Stores int8 tensors between kernels as uint8, larger by 128, for VNNI multiplies unsigned data by signed weights.

Kernels of int8 data have to add 128 to all that they read, which takes a fifth of the time of a convolution. Zero
points, limits and tables take the 128 instead, so results stay the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from jitdelegate.ir.combiners import COMBINERS
from jitdelegate.ir.expr import Apply, Arg, Cast, Const, Expr, clamp, result_type
from jitdelegate.ir.forms import NO_HALO, Concat, Contract, Depthwise, Form, IndexMap, Map, Pool, Reduce, View
from jitdelegate.ir.graph import Graph, Node, form_of
from jitdelegate.ir.quantized import Quantize, Rescale, Table

MORE = 128
ORDERED = ("max", "min", "select")
"""Functions that give one of their arguments, the same one for all arguments larger by 128."""


def store_unsigned(graph: Graph) -> Graph:
    """%1: int8 = CONV_2D(%0); %2 = CONV_2D(%1) -> %1: uint8, larger by 128, in both nodes.

    Inputs and outputs of the graph keep their type. An input that its first reader would need a copy of is copied as
    uint8.
    """
    graph = _with_copies(graph)
    chosen = {index for group in _groups(graph) if _is_chosen(graph, group) for index in group}
    if not chosen:
        return graph
    tensors = tuple(
        replace(tensor, dtype="uint8") if index in chosen else tensor for index, tensor in enumerate(graph.tensors)
    )
    nodes = tuple(
        _rewritten(graph, node, chosen) if chosen & {*node.inputs, *node.outputs} else node for node in graph.nodes
    )
    return replace(graph, tensors=tensors, nodes=nodes)


# which tensors


def _multiplies(node: Node, index: int) -> bool:
    """Whether the tensor is data of products."""
    form = node.form
    return isinstance(form, Contract | Depthwise) and node.inputs[0] == index


def _with_copies(graph: Graph) -> Graph:
    """Inserts a copy of each int8 input that products read, not as it lies in the caller's memory."""
    tensors, before, moved = list(graph.tensors), list[Node](), dict[int, int]()
    for index in graph.inputs:
        tensor = graph.tensors[index]
        if tensor.dtype == "int8" and not tensor.is_constant and _is_copied(graph, index):
            moved[index] = len(tensors)
            tensors.append(replace(tensor, name=f"{tensor.name} as uint8"))
            access = IndexMap.broadcast(tensor.shape, tensor.shape)
            before.append(Node("COPY", (index,), (moved[index],), form=Map(Arg(0), (access,))))
    nodes = (replace(node, inputs=tuple(moved.get(i, i) for i in node.inputs)) for node in graph.nodes)
    return replace(graph, tensors=tuple(tensors), nodes=(*before, *nodes)) if moved else graph


def _is_copied(graph: Graph, index: int) -> bool:
    """Whether products read the input, and a reader needs a halo or loads beyond the end."""
    shape, readers = graph.tensors[index].shape, [graph.nodes[position] for position in graph.readers[index]]
    is_moved = any(
        not form_of(node).loads_exactly(shape)
        or form_of(node).halo(shape, graph.tensors[node.outputs[0]].shape) != NO_HALO
        for node in readers
        if node.inputs[0] == index
    )
    return is_moved and any(_multiplies(node, index) for node in readers)


def _groups(graph: Graph) -> Iterator[set[int]]:
    """Runtime int8 tensors; those together whose elements are moved as they are, by a View or a Concat."""
    group_of = {
        index: {index}
        for index, tensor in enumerate(graph.tensors)
        if tensor.dtype == "int8" and not tensor.is_constant
    }
    for node in graph.nodes:
        if isinstance(node.form, View | Concat):
            touched = [index for index in (*node.inputs, *node.outputs) if index in group_of]
            joined = set().union(*(group_of[index] for index in touched))
            group_of.update(dict.fromkeys(joined, joined))
    seen: set[int] = set()
    for index, group in group_of.items():
        if index not in seen:
            seen |= group
            yield group


def _is_chosen(graph: Graph, group: set[int]) -> bool:
    """Whether products read the group, and all its readers and writers can do with uint8."""
    if group & {*graph.inputs, *graph.outputs}:
        return False
    readers = [graph.nodes[position] for index in group for position in graph.readers[index]]
    written = [position for index in group if (position := graph.writer[index]) is not None]
    return (
        len(written) == len(group)
        and any(_multiplies(node, index) for node in readers for index in group)
        and all(_reads_either(graph, node, group) for node in readers)
        and all(_writes_either(graph, graph.nodes[position]) for position in written)
    )


def _writes_either(graph: Graph, node: Node) -> bool:
    form = form_of(node)
    if isinstance(form, View | Concat):
        return all(not graph.tensors[index].is_constant for index in node.inputs)
    return form.takes_epilogue


def _reads_either(graph: Graph, node: Node, group: Collection[int]) -> bool:
    form = form_of(node)
    if not any(index in group for index in node.inputs[: form.core]) or isinstance(form, View | Concat):
        return True  # only the epilogue reads it
    if node.inputs[0] not in group or any(index in group for index in node.inputs[1 : form.core]):
        return False
    if isinstance(form, Contract | Depthwise):
        return True
    if isinstance(form, Pool):
        return form.kind == "max"
    return isinstance(form, Reduce) and (COMBINERS[form.kind].selects or _adds(form))


def _adds(form: Reduce) -> bool:
    """Whether results are sums with room for 128 more of each element."""
    combiner = COMBINERS[form.kind]
    return combiner.adds and not combiner.mean_of and form.accumulator == "int32"


# the nodes


def _rewritten(graph: Graph, node: Node, chosen: Collection[int]) -> Node:
    """The node that reads and writes the chosen tensors as uint8."""
    form = form_of(node)
    if isinstance(form, View | Concat):
        return node
    arguments = _arguments(graph, node, chosen)
    operands = node.inputs[form.core :]
    types = [form.own_type(graph.tensors[node.inputs[0]].dtype)] if form.has_result else []
    types += [graph.tensors[index].dtype for index in operands]
    epilogue = form.epilogue
    if node.outputs[0] in chosen:
        epilogue = stored(epilogue, arguments, types)
    else:
        epilogue = read(epilogue, arguments)
    maps = tuple(
        replace(access, fill=access.fill + MORE) if index in chosen and access.fill is not None else access
        for access, index in zip(form.operands, operands, strict=False)
    )
    own = _own(form) if form.core and node.inputs[0] in chosen else form
    return replace(node, form=replace(own, epilogue=epilogue, operands=maps))


def _arguments(graph: Graph, node: Node, chosen: Collection[int]) -> dict[int, Expr]:
    """Arg -> its value before, in terms of what is read now."""
    form = form_of(node)
    first = int(form.has_result)
    arguments = {
        first + number: signed(Arg(first + number))
        for number, index in enumerate(node.inputs[form.core :])
        if index in chosen
    }
    if form.core and node.inputs[0] in chosen:
        shape = graph.tensors[node.inputs[0]].shape
        if isinstance(form, Reduce) and _adds(form):
            arguments[0] = Arg(0) - Const(MORE * prod(shape[axis] for axis in form.axes))
        elif form.own_type("int8") == "int8":
            arguments[0] = signed(Arg(0))
    return arguments


def _own(form: Form) -> Form:
    """The form on data that is larger by 128."""
    if isinstance(form, Contract | Depthwise):
        halo = None if form.halo_value is None else form.halo_value + MORE
        return replace(form, input_zero=form.input_zero + MORE, halo_value=halo)
    if isinstance(form, Pool) and form.halo_value is not None:
        return replace(form, halo_value=form.halo_value + MORE)
    return form


# expressions


def signed(value: Expr) -> Expr:
    """The int8 of a uint8 that is larger by 128."""
    return Cast(Cast(value, "int32") - MORE, "int8")


def read(expr: Expr, arguments: dict[int, Expr]) -> Expr:
    """`expr` with the Args replaced; what converts or looks up a number does so without a detour."""
    if isinstance(expr, Arg):
        return arguments.get(expr.index, expr)
    folded = _less_zero(expr, arguments)
    if folded is not None:
        return folded
    known = [arguments.get(part.index) if isinstance(part, Arg) else None for part in expr.parts]
    if known and known[0] is not None and known[0] == signed(expr.parts[0]):
        part = expr.parts[0]
        if isinstance(expr, Cast) and expr.dtype != "bool":
            return Cast(Cast(part, "int32") - MORE, expr.dtype) if expr.dtype != "int32" else Cast(part, "int32") - MORE
        if isinstance(expr, Table):
            return expr  # entries are counted from the smallest number
        if isinstance(expr, Rescale):
            multiplier, shift = (read(part, arguments) for part in expr.parts[1:])
            return replace(expr, multiplier=multiplier, shift=shift, input_zero=expr.input_zero + MORE)
    return expr.rebuilt(tuple(read(part, arguments) for part in expr.parts))


def _less_zero(expr: Expr, arguments: Mapping[int, Expr]) -> Expr | None:
    """An int8 as an int32 minus its zero point, in one step; None for other expressions."""
    match expr:
        case Apply("sub", (Cast(Arg(index) as arg, "int32"), Const(zero))) if arguments.get(index) == signed(arg):
            return Cast(arg, "int32") - Const(zero + MORE)
    return None


def _limited(expr: Expr) -> tuple[Expr, float, float] | None:
    """(x + 128, low, high) of the int8 min(max(x, low), high), if 128 may be added to x, for it is a sum of a constant
    and of what was shifted to the right; None for other expressions."""
    match expr:
        case Cast(Apply("min", (Apply("max", (Apply("add", (rest, Const(zero))), Const(low))), Const(high))), "int8"):
            match rest:
                case Apply("shift_right", (_, Const(bits))) if bits >= 1 and abs(zero) < MORE * MORE:
                    return rest + Const(zero + MORE), low, high
    return None


def stored(expr: Expr, arguments: dict[int, Expr], types: Sequence[str]) -> Expr:
    """`expr`, an int8, larger by 128 as a uint8, with the Args replaced as in `read`.

    Args:
        types: of the Args, before.
    """
    if isinstance(expr, Arg) and expr.index in arguments and arguments[expr.index] == signed(expr):
        return expr
    if isinstance(expr, Const):
        return Const(expr.value + MORE)
    if isinstance(expr, Quantize | Rescale | Table):
        return _larger(read(expr, arguments))
    if isinstance(expr, Apply) and expr.function in ORDERED:
        first = int(expr.function == "select")
        conditions = tuple(read(part, arguments) for part in expr.parts[:first])
        return expr.rebuilt((*conditions, *(stored(part, arguments, types) for part in expr.parts[first:])))
    limited = _limited(expr)
    if limited is not None and result_type(limited[0], types) == "int32":
        value, low, high = limited
        return Cast(clamp(read(value, arguments), low + MORE, high + MORE), "uint8")
    if isinstance(expr, Cast) and result_type(expr.value, types) in ("int16", "int32", "int64"):
        return Cast(read(expr.value, arguments) + MORE, "uint8")
    return Cast(Cast(read(expr, arguments), "int32") + MORE, "uint8")


def _larger(expr: Expr) -> Expr:
    """A Quantize, Rescale or Table with results that are larger by 128."""
    if isinstance(expr, Table):
        return replace(expr, dtype="uint8", entries=tuple(int(entry) + MORE for entry in expr.entries))
    if isinstance(expr, Quantize):  # its limits do not include the zero point
        zero = expr.zero
        return replace(expr, dtype="uint8", zero=Const(zero.value + MORE) if isinstance(zero, Const) else zero + MORE)
    assert isinstance(expr, Rescale)
    low, high = expr.low + MORE, expr.high + MORE
    return replace(expr, dtype="uint8", output_zero=expr.output_zero + MORE, low=low, high=high)
