"""Map on CUDA: elementwise work and movement of data, over the kinds of index maps and all stored types."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.ir.expr import Arg, Expr, maximum, unary
from jitdelegate.ir.forms import IndexMap, Map, View
from jitdelegate.ir.graph import Graph, Node, Tensor
from tests.targets.cuda_execute import assert_compiles_everywhere, run, templates_of
from tests.targets.cuda_graphs import Shape, compare, graph_of, stored_between


def identity(shape: Shape) -> IndexMap:
    return IndexMap.broadcast(shape, shape)


def moved(
    shape: Shape, output: Shape, dims: Shape, starts: Shape, steps: Shape, fill: float | None = None
) -> tuple[Map, list[Shape], Shape]:
    return Map(operands=(IndexMap(dims, starts, steps, fill),)), [shape], output


def transposed(shape: Shape, order: Shape) -> tuple[Map, list[Shape], Shape]:
    dims = tuple(order.index(axis) for axis in range(len(shape)))
    return moved(shape, tuple(shape[axis] for axis in order), dims, (0,) * len(shape), (1,) * len(shape))


def joined(expr: Expr, output: Shape, *shapes: Shape) -> tuple[Map, list[Shape], Shape]:
    """An expression of operands that broadcast."""
    return Map(expr, tuple(IndexMap.broadcast(shape, output) for shape in shapes)), list(shapes), output


PADDED = IndexMap((0, 1, 2, 3), (0, 0, 0, 0), (1, 1, 1, 1), 0.0)
SUM = Arg(0) + Arg(1)
CASES = {
    **{f"{n} elements": joined(SUM * 0.5, (n,), (n,), (n,)) for n in (1, 3, 4, 5, 1023, 1024, 1025)},
    "a scalar and a number": joined(SUM, (), (), ()),
    "no operands": (Map(Arg(0) * 0 + 3.0, (IndexMap((0,), (9,), (1,), 2.0),)), [(4,)], (5,)),
    "scalar operand": joined(SUM, (1, 5, 5, 3), (1, 5, 5, 3), (1, 1, 1, 1)),
    "channels": joined(maximum(SUM, 0.0), (1, 3, 5, 8), (1, 3, 5, 8), (8,)),
    "odd channels": joined(SUM, (1, 3, 5, 33), (33,), (1, 3, 5, 33)),
    "pixels": joined(Arg(0) / (Arg(1) + 4.0), (1, 3, 5, 8), (1, 3, 5, 8), (1, 3, 5, 1)),
    "rows by columns": joined(SUM, (7, 12), (7, 1), (1, 12)),
    "rank 6": joined(SUM, (2, 3, 2, 2, 3, 4), (2, 1, 2, 1, 3, 1), (3, 1, 2, 1, 4)),
    "channels after the operand's": (
        Map(SUM, (PADDED, identity((1, 4, 4, 16)))),
        [(1, 4, 4, 8), (1, 4, 4, 16)],
        (1, 4, 4, 16),
    ),
    "odd channels after the operand's": (Map(SUM, (PADDED, PADDED)), [(1, 4, 4, 3), (1, 3, 4, 7)], (1, 4, 4, 7)),
    "border": moved((1, 5, 4, 8), (1, 8, 7, 8), (0, 1, 2, 3), (0, -1, -2, 0), (1, 1, 1, 1), -np.inf),
    "border of odd channels": moved((2, 3, 4, 3), (3, 5, 5, 6), (0, 1, 2, 3), (-1, -1, 0, -2), (1, 1, 1, 1), 1.5),
    "nothing but border": moved((1, 4), (1, 5), (0, 1), (3, 0), (1, 1), 7.0),
    "slice": moved((1, 6, 6, 8), (1, 3, 4, 4), (0, 1, 2, 3), (0, 2, 1, 4), (1, 1, 1, 1)),
    "slice off the vector": moved((1, 6, 6, 9), (1, 3, 4, 4), (0, 1, 2, 3), (0, 2, 1, 3), (1, 1, 1, 1)),
    "strided backwards": moved((9, 10), (4, 3), (0, 1), (8, 1), (-2, 3)),
    "small transpose": transposed((5, 7), (1, 0)),
    "channels first": transposed((1, 17, 33, 40), (0, 3, 1, 2)),
    "channels last": transposed((2, 40, 17, 5), (0, 2, 3, 1)),
    "image planes last": transposed((1, 3, 40, 41), (0, 2, 3, 1)),
    "shuffled channels": transposed((1, 2, 6, 3, 4), (0, 2, 1, 3, 4)),
    "square tiles": transposed((64, 3, 65), (2, 1, 0)),
    "twelve operands": joined(sum((Arg(k) for k in range(1, 12)), Arg(0)), (2, 9), *[(2, 9)] * 6, *[(9,)] * 6),
}


@pytest.mark.parametrize("case", CASES)
def test_a_map_answers_as_the_reference_does(case: str) -> None:
    compare(graph_of(*CASES[case]))


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "case",
    ["1025 elements", "channels", "odd channels after the operand's", "slice", "strided backwards", "channels first"],
)
def test_a_map_reads_and_writes_16_bit_elements(case: str, precision: str) -> None:
    compare(stored_between(graph_of(*CASES[case])), precision)


def test_movement_is_exact() -> None:
    graph = graph_of(*CASES["channels first"])
    values = np.float32([np.nan, np.inf, -np.inf, -0.0, 1e-45, 3e38, 1.1]).repeat(4000)[: 17 * 33 * 40]
    (found,) = run(graph, [values.reshape(1, 17, 33, 40)])
    np.testing.assert_array_equal(
        found.view(np.int32), values.reshape(17 * 33, 40).T.view(np.int32).reshape(found.shape)
    )


def test_operands_next_to_a_transposed_one_are_read_in_place() -> None:
    across = IndexMap((2, 0, 1), (0, 0, 0), (1, 1, 1))
    form = Map(Arg(0) * Arg(1) + Arg(2), (IndexMap.broadcast((33,), (5, 40, 33)), across, identity((5, 40, 33))))
    compare(graph_of(form, [(33,), (33, 5, 40), (5, 40, 33)], (5, 40, 33)), schedule="random", seed=3)


def test_an_operand_that_is_a_constant_is_read_from_the_weights() -> None:
    weights = np.float32(range(12)).reshape(3, 4)
    tensors = (
        Tensor("x", (2, 3, 4), "float32"),
        Tensor("w", (3, 4), "float32", weights),
        Tensor("y", (2, 3, 4), "float32"),
    )
    form = Map(SUM, (identity((2, 3, 4)), IndexMap.broadcast((3, 4), (2, 3, 4))))
    compare(Graph(tensors, (Node("ADD", (0, 1), (2,), form=form),), (0,), (2,)))


def rounded(data: np.ndarray, precision: str) -> np.ndarray:
    """What 16-bit elements keep of float32 numbers: the nearest, the even one of two."""
    if precision == "float16":
        return data.astype(np.float16).astype(np.float32)
    bits = data.view(np.uint32).astype(np.uint64)
    kept = (bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    return np.where(np.isnan(data), data, kept)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_storing_rounds_to_the_nearest_even(precision: str) -> None:
    ties = 1 + np.arange(9, dtype=np.float32) / 2 ** (11 if precision == "float16" else 8)
    edges = np.float32([0, 65504, 65519, 65520, 3.3e38, 3.4e38, 6e-8, 2.9e-8, 1e-45, np.inf])
    data = np.concatenate([ties, edges, -ties, -edges, [np.float32(np.nan)]])
    graph = graph_of(Map(operands=(identity(data.shape),)), [data.shape], data.shape)
    with np.errstate(over="ignore"):
        expected = rounded(data * 2, precision) / 2
    (found,) = run(stored_between(graph), [data], precision=precision)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 2049])
def test_a_view_between_stored_types_copies_all_elements(size: int) -> None:
    graph = stored_between(graph_of(View(), [(1, size)], (size, 1)))
    between = Graph(graph.tensors, graph.nodes[:-1], graph.inputs, (graph.nodes[-1].inputs[0],))
    compare(between, "float16")


def test_neighbours_that_all_operands_walk_alike_are_one_axis() -> None:
    (flat,) = templates_of(graph_of(*joined(SUM, (1, 5, 5, 8), (1, 5, 5, 8), (1, 5, 5, 8))))
    (rows,) = templates_of(graph_of(*CASES["channels"]))
    assert (flat.rank, flat.width, rows.rank, rows.width) == (1, 4, 2, 4)


def test_maps_compile_everywhere_without_local_memory() -> None:
    long = joined(
        unary("tanh", Arg(0) * Arg(1)) / unary("exp", Arg(2)) + unary("log", Arg(3)), (8, 9), (8, 9), (9,), (8, 1), ()
    )
    cases = [CASES["border of odd channels"], CASES["channels first"], CASES["rank 6"], CASES["twelve operands"], long]
    assert_compiles_everywhere([template for case in cases for template in templates_of(graph_of(*case))])
    assert_compiles_everywhere(templates_of(stored_between(graph_of(*CASES["channels"])), precision="float16"))
