"""Which products of matrices and computed filters are refused, and how the others are lowered."""

from __future__ import annotations

import pytest

from jitdelegate.ops import OPS
from jitdelegate.ops.case import Case, Entry, Weights
from jitdelegate.passes.lower import lower

UNIT = {"stride_h": 1, "stride_w": 1}
REFUSED: list[tuple[str, tuple[Entry, ...], str]] = [
    (
        "CONV_2D",
        ((1, 99, 99, 1), (1, 99, 99, 1), (1,)),
        "CONV_2D: the filter 'operand1' of 9801 taps is not a constant, the most is 4096.",
    ),
]


@pytest.mark.parametrize(("name", "inputs", "sentence"), REFUSED)
def test_filters_that_are_computed_have_limits(name: str, inputs: tuple[Entry, ...], sentence: str) -> None:
    graph = Case(inputs, UNIT).graph(OPS[name])
    assert OPS[name].check(graph, graph.nodes[0]) == sentence


@pytest.mark.parametrize(
    ("inputs", "attrs", "forms"),
    [
        (((2, 3, 4), (2, 4, 5)), {}, ["MatMul"]),
        (((2, 3, 4), (4, 5)), {}, ["View", "MatMul", "View"]),
        (((2, 3, 4), Weights((4, 5))), {}, ["Contract"]),
        (((2, 4, 3), Weights((4, 5))), {"adj_x": True}, ["MatMul"]),
        (((2, 3, 4), Weights((2, 4, 5))), {}, ["MatMul"]),
        (((2, 3, 4), (2, 4, 1)), {}, ["MatMul", "View"]),
    ],
)
def test_a_product_is_a_filter_where_all_share_a_constant(
    inputs: tuple[Entry, ...], attrs: dict[str, bool], forms: list[str]
) -> None:
    lowered = lower(Case(inputs, attrs).graph(OPS["BATCH_MATMUL"]))
    assert [type(node.form).__name__ for node in lowered.nodes] == forms


def test_a_window_of_one_pixel_is_multiplied_as_it_lies() -> None:
    lowered = lower(Case(((2, 5, 4, 3), (7, 1, 1, 3), (7,)), UNIT).graph(OPS["CONV_2D"]))
    assert [type(node.form).__name__ for node in lowered.nodes if type(node.form).__name__ != "View"] == ["MatMul"]
