"""Tensors of all types on CUDA: moved, joined, compared and reduced as they are, whatever the precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from jitdelegate.errors import CompileError
from jitdelegate.ir.expr import RESULT, Arg, Cast, Expr, binary, select
from jitdelegate.ir.forms import Concat, Contract, IndexMap, Map, Reduce, View
from jitdelegate.ir.graph import Graph, Node, Tensor
from tests.targets.cuda_execute import assert_compiles_everywhere, run, templates_of
from tests.targets.cuda_graphs import Shape, graph_of
from tests.targets.test_cuda_integers import check

TYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "float16")


def typed(graph: Graph, *types: str) -> Graph:
    """The graph with tensors of these types, the last one for all that follow."""
    types = (*types, *types[-1:] * (len(graph.tensors) - len(types)))
    return replace(graph, tensors=tuple(replace(t, dtype=d) for t, d in zip(graph.tensors, types, strict=True)))


def fed(graph: Graph) -> list[np.ndarray]:
    """Numbers of all sizes for its inputs."""
    random = np.random.default_rng(0)
    made = []
    for index in graph.inputs:
        tensor = graph.tensors[index]
        if tensor.dtype == "bool":
            made.append(random.integers(0, 2, tensor.shape).astype(bool))
        elif tensor.dtype.startswith("float"):
            made.append(random.uniform(-9, 9, tensor.shape).astype(tensor.dtype))
        else:
            limits = np.iinfo(tensor.dtype)
            made.append(random.integers(limits.min, limits.max, tensor.shape, tensor.dtype, endpoint=True))
    return made


def assert_equal(graph: Graph, precision: str = "float32") -> None:
    """The simulated kernels answer exactly what the reference does, in its types."""
    with np.errstate(all="ignore"):
        check(graph, fed(graph), precision=precision)


def mapped(expr: Expr, output: Shape, *shapes: Shape) -> Graph:
    return graph_of(Map(expr, tuple(IndexMap.broadcast(shape, output) for shape in shapes)), shapes, output)


def transposed(shape: Shape, order: Shape) -> Graph:
    rank = len(shape)
    access = IndexMap(tuple(order.index(axis) for axis in range(rank)), (0,) * rank, (1,) * rank)
    return graph_of(Map(operands=(access,)), [shape], tuple(shape[axis] for axis in order))


def padded(fill: float) -> Graph:
    access = IndexMap((0, 1, 2), (0, -1, -2), (1, 1, 1), fill)
    return graph_of(Map(operands=(access,)), [(2, 5, 12)], (2, 8, 16))


MOVES = {
    **{f"{size} elements": mapped(RESULT, (size,), (size,)) for size in (1, 2, 3, 15, 16, 17, 33, 4097)},
    "border": padded(1),
    "repeated": mapped(RESULT, (3, 16, 5), (16, 1)),
    "strided backwards": graph_of(Map(operands=(IndexMap((0, 1), (8, 1), (-2, 3)),)), [(9, 10)], (4, 3)),
    "rows by columns": transposed((3, 40, 65), (0, 2, 1)),
    "small transpose": transposed((5, 7), (1, 0)),
    "concat": graph_of(Concat(axis=1), [(3, 4), (3, 16), (3, 4)], (3, 24)),
    "concat of odd rows": graph_of(Concat(axis=1), [(3, 1), (3, 5)], (3, 6)),
    "view": graph_of(View(), [(4, 6)], (3, 8)),
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("move", MOVES)
def test_elements_are_moved_as_they_are(move: str, dtype: str) -> None:
    assert_equal(typed(MOVES[move], dtype))


@pytest.mark.parametrize("dtype", ["bool", "int16", "int64", "float16"])
def test_the_precision_of_floats_changes_nothing_else(dtype: str) -> None:
    graph = typed(mapped(RESULT, (33,), (33,)), dtype)
    (node,), tensors = graph.nodes, (*graph.tensors, graph.tensors[1], graph.tensors[1])
    nodes = (replace(node, outputs=(2,)), replace(node, inputs=(2,), outputs=(3,)), replace(node, inputs=(3,)))
    assert_equal(Graph(tensors, nodes, (0,), (1,)), "float16")


@pytest.mark.parametrize("dtype", TYPES)
def test_what_no_index_reads_is_its_fill(dtype: str) -> None:
    outside = Map(Arg(0), (IndexMap((0,), (9,), (1,), 3 if dtype != "bool" else 1),))
    assert_equal(typed(graph_of(outside, [(4,)], (5,)), dtype))


def test_a_fill_may_be_any_integer() -> None:
    assert_equal(typed(padded(-(2**62) + 1), "int64"))
    assert_equal(typed(padded(2**31 - 1), "int32"))


@pytest.mark.parametrize("dtype", TYPES)
def test_constants_keep_their_type(dtype: str) -> None:
    graph = typed(mapped(select(Arg(0), Arg(1), Arg(2)), (3, 4), (3, 4), (4,), (3, 1)), "bool", dtype)
    tensors = list(graph.tensors)
    for index in (1, 2):
        (data,) = fed(Graph((tensors[index],), (), (0,), ()))
        tensors[index] = replace(tensors[index], data=data)
    assert_equal(replace(graph, tensors=tuple(tensors), inputs=(0,)))


def test_operands_of_several_types_meet_in_one_kernel() -> None:
    expr = select(binary("gt", Arg(0), 2), Cast(Arg(1), "int64"), Cast(Arg(2), "int64") + Arg(3))
    graph = mapped(expr, (2, 3, 16), (2, 3, 16), (3, 1), (16,), (1,))
    assert_equal(typed(graph, "float32", "uint8", "int32", "int64"))


def test_a_kernel_of_floats_may_end_in_a_truth_value() -> None:
    expr = select(Arg(1), binary("gt", RESULT, Arg(2)), binary("lt", RESULT, 0.5))
    operands = (IndexMap.broadcast((8,), (1, 3, 3, 8)), IndexMap.broadcast((1,), (1, 3, 3, 8)))
    form = Contract(expr, operands)
    weights = np.random.default_rng(1).uniform(-1, 1, (8, 1, 1, 4)).astype(np.float32)
    tensors = (
        Tensor("x", (1, 3, 3, 4), "float32"),
        Tensor("weights", weights.shape, "float32", weights),
        Tensor("bias", (8,), "float32", np.zeros(8, np.float32)),
        Tensor("condition", (8,), "bool"),
        Tensor("limit", (1,), "float32"),
        Tensor("y", (1, 3, 3, 8), "bool"),
    )
    assert_equal(Graph(tensors, (Node("OP", (0, 1, 2, 3, 4), (5,), form=form),), (0, 3, 4), (5,)))


def test_an_epilogue_of_its_own_launch_makes_another_type() -> None:
    access = IndexMap((1, 0), (0, 0), (1, 1))
    form = Reduce(binary("lt", RESULT, Arg(1)), (access,), "max", (2,))
    assert_equal(typed(graph_of(form, [(4, 5, 6), (5, 4)], (4, 5)), "int32", "int32", "bool"))


def reduced(kind: str, shape: Shape, *axes: int) -> Graph:
    kept = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    return graph_of(Reduce(kind=kind, axes=axes), [shape], kept)


REDUCED: Sequence[tuple[Shape, Shape]] = [
    ((5, 33), (1,)),
    ((300, 8), (0,)),
    ((3, 4, 5, 6), (0, 2)),
    ((70, 64), (1,)),
    ((1, 20_000), (1,)),
    ((9_000, 4), (0,)),
    ((9_000, 3), (0,)),
]


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize(("shape", "axes"), REDUCED)
def test_integers_are_reduced_without_rounding(kind: str, dtype: str, shape: Shape, axes: Shape) -> None:
    graph = typed(reduced(kind, shape, *axes), dtype)
    (data,) = fed(graph)
    data = data | 1 if kind == "prod" else data
    function = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}[kind]
    (found,) = run(graph, [data])
    np.testing.assert_array_equal(
        found, function(data, axes, dtype=dtype) if kind in ("sum", "prod") else function(data, axes)
    )


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_extremes_of_integers_may_be_the_ends_of_their_range(dtype: str) -> None:
    limits = np.iinfo(dtype)
    for kind, value in (("max", limits.min), ("min", limits.max)):
        (found,) = run(typed(reduced(kind, (2, 5), 1), dtype), [np.full((2, 5), value, dtype)])
        np.testing.assert_array_equal(found, [value, value])


@pytest.mark.parametrize(("shape", "axes"), [*REDUCED, ((9_000, 16), (0,)), ((2, 160), (1,))])
def test_any_and_all_are_extremes_of_truth_values(shape: Shape, axes: Shape) -> None:
    for seldom in (True, False):
        graph = typed(reduced("max" if seldom else "min", shape, *axes), "bool")
        data = np.full(shape, not seldom)
        data.reshape(-1)[data.size // 3] = seldom
        (found,) = run(graph, [data])
        np.testing.assert_array_equal(found, data.any(axes) if seldom else data.all(axes), strict=True)


def test_an_epilogue_reads_the_truth_value_that_a_reduction_made() -> None:
    form = Reduce(select(RESULT, Arg(1), 0.5), (IndexMap.broadcast((3,), (3,)),), "max", (1,))
    graph = typed(graph_of(form, [(3, 9), (3,)], (3,)), "bool", "float32")
    data = np.zeros((3, 9), bool)
    data[1, 4] = True
    (found,) = run(graph, [data, np.float32([1, 2, 3])])
    np.testing.assert_array_equal(found, np.float32([0.5, 2, 0.5]))


@pytest.mark.parametrize("count", [4, 5, 14])
def test_many_operands_of_a_narrow_result_fit_into_registers(count: int) -> None:
    total = sum(map(Arg, range(1, count)), Arg(0))
    graph = mapped(binary("gt", total, 1), (64, 16), *[(64, 16)] * (count - 1), (64, 1))
    graph = typed(graph, *["float32"] * count, "bool")
    assert_equal(graph)
    assert_compiles_everywhere(templates_of(graph))


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(CompileError, match="'tensor0' is complex128, expected one of float32, "):
        templates_of(typed(mapped(RESULT, (3,), (3,)), "complex128"))


def test_a_view_of_a_constant_is_a_copy_in_its_type() -> None:
    data = np.arange(2**40, 2**40 + 9)
    tensors = (Tensor("constant", (9,), "int64", data), Tensor("view", (3, 3), "int64"))
    (found,) = run(Graph(tensors, (Node("RESHAPE", (0,), (1,), form=View()),), (), (1,)), [])
    np.testing.assert_array_equal(found, data.reshape(3, 3))


def test_kernels_of_all_types_compile_everywhere_without_local_memory() -> None:
    moves = [typed(MOVES[move], dtype) for move in ("17 elements", "border") for dtype in TYPES]
    moves += [typed(MOVES[move], dtype) for move in ("rows by columns", "concat") for dtype in ("bool", "int64")]
    moves += [typed(reduced("max", (9_000, 4), 0), dtype) for dtype in ("bool", "int32", "int64")]
    moves += [typed(reduced("sum", (5, 330), 1), dtype) for dtype in ("int32", "int64")]
    assert_compiles_everywhere([template for graph in moves for template in templates_of(graph)])
