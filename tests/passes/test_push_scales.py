"""Factors of the operands of products."""

from __future__ import annotations

import pytest

from jitdelegate.ir.expr import RESULT
from jitdelegate.ir.forms import MatMul
from jitdelegate.ir.graph import Graph
from jitdelegate.passes import fuse_elementwise, lower, push_scales
from tests.passes.graphs import Builder, assert_same


def pushes(graph: Graph) -> bool:
    """Whether the product takes up a factor."""
    found = push_scales(lower(graph))
    assert_same(graph, found)
    (product,) = (node.form for node in found.nodes if isinstance(node.form, MatMul))
    return product.epilogue != RESULT


@pytest.mark.parametrize("factor, expected", [(0.125, True), (0.0, False)])
@pytest.mark.parametrize("border, keeps", [(0.0, True), (5.0, False)])
def test_a_factor_is_pushed_if_all_of_the_operand_has_it(
    factor: float, border: float, *, expected: bool, keeps: bool
) -> None:
    """What is padded behind the factor has it only if that is 0; a product that overflows is not 0 times 0."""
    build = Builder()
    scaled = build.op("MUL", [build.input(2, 3, 4), build.constant(factor)], (2, 3, 4))
    padding = build.constant([[0, 0], [1, 0], [0, 0]], "int32")
    padded = build.op("PADV2", [scaled, padding, build.constant(border)], (2, 4, 4))
    product = build.op("BATCH_MATMUL", [padded, build.input(2, 4, 5)], (2, 4, 5), adj_x=False, adj_y=False)
    assert pushes(build.finish(product)) == (expected and keeps)


def test_both_operands_of_a_product_may_be_the_same_tensor() -> None:
    build = Builder()
    scaled = build.op("MUL", [build.input(2, 3, 4), build.constant(0.5)], (2, 3, 4))
    assert pushes(build.finish(build.op("BATCH_MATMUL", [scaled, scaled], (2, 3, 3), adj_x=False, adj_y=True)))


def test_an_operand_that_the_epilogue_reads_too_keeps_its_factor() -> None:
    build = Builder()
    scaled = build.op("MUL", [build.input(2, 4, 4), build.constant(0.5)], (2, 4, 4))
    product = build.op("BATCH_MATMUL", [scaled, build.input(2, 4, 4)], (2, 4, 4), adj_x=False, adj_y=False)
    fused = fuse_elementwise(lower(build.finish(build.op("ADD", [product, scaled], (2, 4, 4)))))
    assert len(fused.nodes) == 2
    assert_same(fused, push_scales(fused))
