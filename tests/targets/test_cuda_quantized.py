"""Rescale and Table on CUDA, as plain Python integers."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.ir.expr import Arg, Expr
from jitdelegate.ir.fixed_point import FixedPoint
from jitdelegate.ir.quantized import ROUNDINGS, Rescale, Table
from tests.targets.cuda_execute import assert_compiles_everywhere, run, templates_of
from tests.targets.elementwise_graphs import of_elements
from tests.targets.quantized_cases import (
    BY_CONSTANTS,
    EXACT,
    FIXED_POINT,
    FLOATS,
    TABLES,
    channel_case,
    fixed_point_case,
    positive_case,
    rescale_case,
    table_case,
)


def check(expr: Expr, operands: list[np.ndarray], expected: list[float]) -> None:
    (found,) = run(of_elements(expr, [str(one.dtype) for one in operands], operands[0].size), operands)
    assert found.tolist() == expected


@pytest.mark.parametrize("expr, dtype", BY_CONSTANTS, ids=str)
def test_a_value_is_rescaled_as_plain_integers_are(expr: Rescale, dtype: str) -> None:
    check(expr, *rescale_case(expr, dtype))


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_each_channel_has_its_own_multiplier_and_shift(rounding: str) -> None:
    check(*channel_case(rounding))


@pytest.mark.parametrize("expr, dtype", TABLES, ids=str)
def test_a_table_is_looked_up_and_interpolated(expr: Table, dtype: str) -> None:
    check(expr, *table_case(expr, dtype))


@pytest.mark.parametrize("expr", FIXED_POINT, ids=str)
def test_functions_of_fixed_point_numbers_use_integers_alone(expr: FixedPoint) -> None:
    check(expr, *fixed_point_case(expr, 257))


@pytest.mark.parametrize("name", EXACT)
def test_reciprocals_and_roots_use_integers_alone(name: str) -> None:
    check(*positive_case(name))


def test_a_table_holds_floats() -> None:
    stored = np.arange(-128, 128).astype(np.int8)
    check(Table(Arg(0), FLOATS, "float32"), [stored], list(FLOATS))


def test_they_compile_everywhere_without_local_memory() -> None:
    exprs = [BY_CONSTANTS[0], BY_CONSTANTS[-1], TABLES[0], TABLES[3]]
    graphs = [of_elements(expr, [dtype], 5) for expr, dtype in exprs]
    assert_compiles_everywhere([template for graph in graphs for template in templates_of(graph)])
