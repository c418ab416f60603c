"""Checks that a graph is well formed; run after the reader and after every pass."""

from __future__ import annotations

from collections.abc import Sequence

from jitdelegate.ir.expr import RESULT, Apply, Arg, Const, Expr
from jitdelegate.ir.fixed_point import FUNCTIONS, MOST_WHOLE, SOURCES, FixedPoint
from jitdelegate.ir.forms import Contract, Form, Map, Pool, View, Window
from jitdelegate.ir.graph import ABSENT, Graph, Node
from jitdelegate.ir.quantized import HIGHEST_SHIFT, ROUNDINGS, SIZES, Quantize, Rescale, Table
from jitdelegate.ir.random_bits import PAIRS, RandomBits
from jitdelegate.ir.types import ELEMENT_TYPES

PAIR = {"complex64", "float32"}
"""Types that are Views of each other."""


def verify(graph: Graph, stage: str, before: Graph | None = None) -> None:
    """Passes if every index is in range and every value is written once, before it is read. A variable of the file may
    be read before it is written.

    Args:
        before: a graph that was verified. What it has too is not looked at again.
    Raises:
        AssertionError: the stage left a malformed graph; this is a bug of ours, never of the model.
    """
    if before is not None and _parts(graph) == _parts(before):
        return
    known_nodes = set(before.nodes) if before else set[Node]()
    known_tensors = zip(graph.tensors, before.tensors, strict=False) if before else ()
    changed = {index for index, (tensor, other) in enumerate(known_tensors) if tensor is not other}
    written = {i for i, tensor in enumerate(graph.tensors) if tensor.is_constant} | set(graph.inputs)
    known = written | {i for i, tensor in enumerate(graph.tensors) if tensor.is_variable}
    for position, node in enumerate(graph.nodes):
        where = f"after {stage}: node {position} {node.op}"
        for index in node.inputs:
            assert index == ABSENT or 0 <= index < len(graph.tensors), f"{where} reads %{index}, which does not exist"
            assert index == ABSENT or index in known, f"{where} reads %{index} before it is written"
        for index in node.outputs:
            assert 0 <= index < len(graph.tensors), f"{where} writes %{index}, which does not exist"
            assert index not in written, f"{where} writes %{index} a second time"
            written.add(index)
            known.add(index)
        is_new = node not in known_nodes or not changed.isdisjoint((*node.inputs, *node.outputs))
        if node.form is not None and is_new:
            _verify_form(graph, node, node.form, where)
    for index in graph.outputs:
        assert index in known, f"after {stage}: output %{index} is never written"


def _parts(graph: Graph) -> tuple[object, ...]:
    return graph.nodes, graph.tensors, graph.inputs, graph.outputs


def _verify_form(graph: Graph, node: Node, form: Form, where: str) -> None:
    extra = len(node.inputs) - form.core
    assert extra >= len(form.operands), f"{where} has {extra} extra inputs for {form.operands}"
    is_fit = form.takes_epilogue or (form.epilogue == RESULT and not form.operands)
    assert is_fit, f"{where} has an epilogue, which {type(form).__name__} does not take"
    if isinstance(form, Map):
        verify_expression(form.epilogue, [graph.tensors[index].dtype for index in node.inputs], where)
    if isinstance(form, View):
        source, result = graph.tensors[node.inputs[0]], graph.tensors[node.outputs[0]]
        is_fit = source.dtype == result.dtype or ({source.dtype, result.dtype} == PAIR and not source.is_constant)
        assert is_fit, f"{where} views {source.dtype} as {result.dtype}"
        numbers = [tensor.size * (2 if tensor.dtype == "complex64" else 1) for tensor in (source, result)]
        is_fit = numbers[0] == numbers[1]
        assert is_fit, f"{where} views {source.shape} as {result.shape}"
    if isinstance(form, Window):
        _verify_sums(graph.tensors[node.inputs[0]].dtype, form, where)


def _verify_sums(dtype: str, form: Window, where: str) -> None:
    """Asserts that a window's accumulator, zero point and halo suit data of this type."""
    element = ELEMENT_TYPES[dtype]
    sums = "int32" if isinstance(form, Pool) else element.accumulator
    assert form.accumulator in ("float32", sums), f"{where} sums up {dtype} in {form.accumulator}"
    if form.accumulator == "float32":
        assert form.input_zero == 0, f"{where} sums up floats from {form.input_zero}"
    if isinstance(form, Contract) and form.filter_zero:
        is_byte = form.accumulator == "int32" and -128 <= form.filter_zero < 128
        assert is_byte, f"{where} sums up {form.accumulator} of weights from {form.filter_zero}"
    if form.accumulator == "float32":
        return
    for value in (form.input_zero, form.halo_value or 0):
        is_stored = value == int(value) and element.minimum <= value <= element.maximum
        assert is_stored, f"{where} has {value} among its {dtype}"


def verify_ports(before: Graph, after: Graph, stage: str) -> None:
    """Passes if the caller's inputs and outputs after a stage are those before it, one by one.

    Signatures, callers and LiteRT refer to ports by the file's numbers, and programs by their positions. So an input
    keeps its number, and an output keeps its own or gets a new number: never that of another tensor.

    Raises:
        AssertionError: the stage lost, exchanged or changed a port; this is a bug of ours, never of the model.
    """
    assert before.given == after.given, f"after {stage}: inputs are {after.given}, expected {before.given}"
    found, expected = len(after.returned), len(before.returned)
    assert found == expected, f"after {stage}: {found} outputs, expected {expected}"
    for old, new in zip(before.returned, after.returned, strict=True):
        kept = new == old or new >= len(before.tensors)
        assert kept, f"after {stage}: output %{old} has become %{new}, another tensor"
        types = before.tensors[old].dtype, after.tensors[new].dtype
        assert types[0] == types[1], f"after {stage}: output %{old} was {types[0]} and is {types[1]}"


def verify_expression(expr: Expr, types: Sequence[str], where: str) -> str | None:
    """The type of `expr`, where Arg(i) has types[i], if every part has the types that it takes; None for constants.

    Raises:
        AssertionError: a part has another type.
    """
    if isinstance(expr, Arg):
        assert expr.index < len(types), f"{where}: {expr} of {len(types)} operands"
        return types[expr.index]
    if isinstance(expr, Const):
        return None
    found = tuple(verify_expression(part, types, where) for part in expr.parts)
    expected = expr.part_types(found)
    if isinstance(expr, Apply):
        pairs = zip(found, expected, strict=True)
        assert all(one in (None, other) for one, other in pairs), f"{where}: {expr} of {found}, expected {expected}"
    elif isinstance(expr, Rescale):
        _verify_rescale(expr, found, where)
    elif isinstance(expr, Quantize):
        _verify_quantize(expr, found, where)
    elif isinstance(expr, Table):
        _verify_table(expr, found, where)
    elif isinstance(expr, FixedPoint):
        source = SOURCES.get(expr.function, "int32")
        good = found[0] in (None, source) and expr.function in FUNCTIONS and expr.whole in range(MOST_WHOLE + 1)
        assert good, f"{where}: {expr} of {found[0]}, expected {source} with up to {MOST_WHOLE} integer bits"
    elif isinstance(expr, RandomBits):
        good = {*found} <= {None, "int64"} and expr.pair in range(PAIRS.get(expr.generator, 0))
        assert good, f"{where}: {expr} of {found}, expected int64 and a pair that the generator makes"
    return expr.type_of(expected)


def _verify_rescale(expr: Rescale, found: Sequence[str | None], where: str) -> None:
    source, element = ELEMENT_TYPES[found[0] or "int64"], ELEMENT_TYPES[expr.dtype]
    types = (source.kind, element.kind, *(dtype or "int32" for dtype in found[1:]))
    assert {*types[:2]} <= {"int", "uint"}, f"{where}: {expr} of {source.name}, expected integers"
    assert types[2:] == ("int32", "int32"), f"{where}: {expr} by {types[2:]}, expected int32"
    for one, zero in ((source, expr.input_zero), (element, expr.output_zero)):
        assert one.bits <= 16 or zero == 0, f"{where}: {expr} has a zero point for {one.name}"
        assert one.minimum <= zero <= one.maximum, f"{where}: {expr} has a zero point out of the range of {one.name}"
    limits = element.minimum, expr.low, expr.high, element.maximum
    assert list(limits) == sorted(limits), f"{where}: the limits of {expr} are out of range or order"
    assert expr.rounding in ROUNDINGS, f"{where}: {expr} has an unknown rounding"
    most = 15 if source.bits == 64 else 31
    _verify_number(expr, expr.multiplier, range(1 << most), where)
    _verify_number(expr, expr.shift, range(2, HIGHEST_SHIFT + 1), where)


def _verify_quantize(expr: Quantize, found: Sequence[str | None], where: str) -> None:
    assert found[0] in (None, "float32", "float64"), f"{where}: {expr} of {found[0]}, expected a float"
    element = ELEMENT_TYPES[expr.dtype]
    assert expr.rounding in ("even", "away"), f"{where}: {expr} has an unknown rounding"
    numbers = [each.value for each in (expr.low, expr.high, expr.zero) if isinstance(each, Const)]
    if len(numbers) == 3:
        low, high, zero = numbers
        limits = [element.minimum, low + zero, high + zero, element.maximum]
        assert limits == sorted(limits), f"{where}: the limits of {expr} are out of range or order"
        assert max(-low, high) < 1 << 22, f"{where}: {expr} has limits too far from its zero point"


def _verify_number(expr: Rescale, part: Expr, numbers: range, where: str) -> None:
    assert not isinstance(part, Const) or part.value in numbers, f"{where}: {part} in {expr}, expected it in {numbers}"


def _verify_table(expr: Table, found: Sequence[str | None], where: str) -> None:
    source = found[0] or "int8"
    assert SIZES.get(source) == len(expr.entries), f"{where}: {expr} of {source}, expected entries as in {SIZES}"
    dtype = "int16" if source == "int16" else expr.dtype
    assert source != "int16" or expr.dtype == "int32", f"{where}: {expr} of int16, expected an int32"
    if dtype == "float32":
        return
    element = ELEMENT_TYPES[dtype]
    assert element.kind in ("int", "uint") and element.bits <= 32, f"{where}: {expr}, expected at most 32 bits"
    inside = element.minimum <= min(expr.entries) and max(expr.entries) <= element.maximum
    assert inside, f"{where}: entries of {expr} are out of the range of {dtype}"
