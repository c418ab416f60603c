"""Rescale and Table by numpy and on the CPU, as plain Python integers; what is verified and printed of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jitdelegate.ir.expr import Arg, Cast, Const, Expr, binary, evaluate, select, substitute
from jitdelegate.ir.fixed_point import FixedPoint
from jitdelegate.ir.quantized import ROUNDINGS, Rescale, Table, largest, quantize, rescale
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.ir.verify import verify_expression
from jitdelegate.targets.cpu.generate import generate
from tests.targets.elementwise_graphs import of_elements
from tests.targets.execute import execute
from tests.targets.levels import RUNNABLE
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

IDENTITY = tuple(range(-128, 128))


def check(expr: Expr, operands: list[np.ndarray], expected: list[float], features: str) -> None:
    graph = of_elements(expr, [str(one.dtype) for one in operands], operands[0].size)
    (found,) = execute(graph, operands, features)
    assert found.tolist() == expected
    evaluated = evaluate(expr, operands)
    assert evaluated.tolist() == expected
    assert evaluated.dtype == found.dtype


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("expr, dtype", BY_CONSTANTS, ids=str)
def test_a_value_is_rescaled_as_plain_integers_are(expr: Rescale, dtype: str, features: str) -> None:
    check(expr, *rescale_case(expr, dtype), features)


@pytest.mark.parametrize(
    "value, is_narrow",
    [
        (Cast(Arg(0), "int32") + Cast(Arg(1), "int32") - 100, True),
        ((Cast(Arg(0), "int32") + 127) * Cast(Arg(1), "int32"), True),
        ((Cast(Arg(0), "int32") + 129) * Cast(Arg(1), "int32"), False),
        (Cast(Arg(0), "int32") * 300 + Cast(Arg(1), "int32"), False),
        (binary("max", Cast(Arg(0), "int32"), Cast(quantize(Cast(Arg(1), "float32"), "uint8"), "int32")), True),
    ],
)
def test_numbers_that_fit_16_bits_are_rescaled_without_products_of_64_bits(value: Expr, is_narrow: bool) -> None:
    texts = dict[str, str]()
    graph = of_elements(rescale(value, 1518500250, 35, "int8"), ["int8", "int8"], 256)
    generate(graph, "x86-64-v3", lambda stage, make: texts.update({stage: make()}))
    assert ("vpmuldq" in texts["assembly"]) != is_narrow


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_each_channel_has_its_own_multiplier_and_shift(rounding: str, features: str) -> None:
    check(*channel_case(rounding), features)


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("expr, dtype", TABLES, ids=str)
def test_a_table_is_looked_up_and_interpolated(expr: Table, dtype: str, features: str) -> None:
    check(expr, *table_case(expr, dtype), features)


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("expr", FIXED_POINT, ids=str)
def test_functions_of_fixed_point_numbers_use_integers_alone(expr: FixedPoint, features: str) -> None:
    check(expr, *fixed_point_case(expr, 1), features)


@pytest.mark.parametrize("function", ["logistic", "tanh"])
def test_functions_of_16_bits_multiply_words(function: str) -> None:
    texts = dict[str, str]()
    graph = of_elements(FixedPoint(function, Arg(0), 3), ["int16"], 64)
    generate(graph, "x86-64-v3", lambda stage, make: texts.update({stage: make()}))
    assert "vpmaddwd" in texts["assembly"]
    assert "vpmulld" not in texts["assembly"]


@pytest.mark.parametrize("features", RUNNABLE)
@pytest.mark.parametrize("name", EXACT)
def test_reciprocals_and_roots_use_integers_alone(name: str, features: str) -> None:
    check(*positive_case(name), features)


@pytest.mark.parametrize("features", RUNNABLE)
def test_a_table_holds_floats(features: str) -> None:
    stored = np.arange(-128, 128).astype(np.int8)
    check(Table(Arg(0), FLOATS, "float32"), [stored], list(FLOATS), features)


@pytest.mark.parametrize("features", RUNNABLE)
def test_a_rescaled_product_goes_through_a_table(features: str) -> None:
    product = Cast(Arg(0), "int32") * Cast(Arg(1), "int32")
    expr = Table(rescale(product, 1 << 30, 37, "int8", rounding="single"), IDENTITY[::-1], "int8")
    a, b = (np.random.default_rng(k).integers(-128, 128, 77, np.int8) for k in range(2))
    pairs = zip(a.tolist(), b.tolist(), strict=True)
    check(expr, [a, b], [-1 - min((x * y + 64) // 128, 127) for x, y in pairs], features)


A, B, BIT = Cast(Arg(0), "int32"), Cast(Arg(1), "int32"), binary("gt", Arg(0), Arg(1))


@pytest.mark.parametrize(
    "expr, bound",
    [
        (A - 100, 228),
        (A * B + 7, 128 * 255 + 7),
        (A * 70000 * 70000, 1 << 31),
        (Cast(A * 300, "int8"), 128),
        (Cast(A, "uint8"), 255),
        (Cast(Cast(Arg(0), "uint8") - Const(3), "int32"), 255),
        (Cast(Cast(Arg(0), "float32") * 0.5, "int16"), 1 << 15),
        (select(BIT, A, Const(-300)), 300),
        (Cast(BIT, "int32") * 5, 5),
        (binary("shift_right", A, 3), 1 << 31),
        (binary("max", A, Cast(quantize(Cast(Arg(1), "float32"), "uint8"), "int32")), 255),
    ],
    ids=str,
)
def test_a_bound_of_integers_is_known(expr: Expr, bound: int) -> None:
    assert largest(expr, ("int8", "uint8")) == bound


def test_they_are_printed_in_one_line() -> None:
    expr = rescale(Arg(0), 5, 40, "int8", input_zero=-3, output_zero=5, high=6)
    assert str(expr) == "int8.rescale(a0, 5, 40, -3 -> 5, -128 ... 6, double)"
    assert str(Table(expr, IDENTITY, "int8")).startswith("int8.table(int8.rescale(a0, 5, 40, ")
    assert str(Table(Arg(0), IDENTITY, "int8")) != str(Table(Arg(0), IDENTITY[::-1], "int8"))


def test_operands_are_substituted() -> None:
    assert substitute(rescale(Arg(0), Arg(1), 40, "int8"), [Arg(2), Arg(3)]) == rescale(Arg(2), Arg(3), 40, "int8")
    assert substitute(Table(Arg(0), IDENTITY, "int8"), [Arg(4)]) == Table(Arg(4), IDENTITY, "int8")


GOOD = rescale(Arg(0), 5, 40, "int8")
WRONG = [
    (GOOD, "float32", "expected integers"),
    (replace(GOOD, dtype="float32"), "int32", "expected integers"),
    (replace(GOOD, multiplier=Const(1 << 31)), "int32", "expected it in"),
    (replace(GOOD, multiplier=Const(-1)), "int32", "expected it in"),
    (replace(GOOD, multiplier=Const(1 << 15)), "int64", "expected it in"),
    (replace(GOOD, shift=Const(1)), "int32", "expected it in"),
    (replace(GOOD, shift=Const(63)), "int32", "expected it in"),
    (replace(GOOD, shift=Arg(0)), "int64", "expected int32"),
    (replace(GOOD, input_zero=1), "int32", "zero point"),
    (replace(GOOD, output_zero=128), "int32", "zero point out"),
    (replace(GOOD, dtype="int32", output_zero=1), "int32", "zero point for"),
    (replace(GOOD, low=7, high=6), "int32", "limits"),
    (replace(GOOD, high=128), "int32", "limits"),
    (replace(GOOD, rounding="triple"), "int32", "unknown rounding"),
    (Table(Arg(0), IDENTITY, "int8"), "int16", "expected entries"),
    (Table(Arg(0), IDENTITY, "int8"), "float32", "expected entries"),
    (Table(Arg(0), IDENTITY, "uint8"), "int8", "range of uint8"),
    (Table(Arg(0), IDENTITY, "int64"), "int8", "at most 32 bits"),
    (Table(Arg(0), (0,) * 513, "int16"), "int16", "expected an int32"),
    (Table(Arg(0), (40000,) * 513, "int32"), "int16", "range of int16"),
    (FixedPoint("tanh", Arg(0), 7), "int16", "up to 6 integer bits"),
    (FixedPoint("tanh", Arg(0), 3), "int32", "expected int16"),
    (FixedPoint("sin", Arg(0), 3), "int16", "expected int32"),
    (Arg(0) + Cast(Arg(0), "int32"), "int8", "expected ('int8', 'int8')"),
    (Arg(1) + 1, "int8", "of 1 operands"),
]


@pytest.mark.parametrize("expr, dtype, reason", WRONG, ids=str)
def test_a_malformed_expression_is_found(expr: Expr, dtype: str, reason: str) -> None:
    with pytest.raises(AssertionError) as failure:
        verify_expression(expr, [dtype], "here")
    assert reason in str(failure.value)
    assert str(failure.value).startswith("here: ")


@pytest.mark.parametrize("name", ELEMENT_TYPES)
def test_element_types_are_as_wide_as_their_sums_and_products_need(name: str) -> None:
    element = ELEMENT_TYPES[name]
    if name not in ("bfloat16", "int4"):
        assert element.nbytes == np.dtype(name).itemsize
    assert ELEMENT_TYPES[element.compute].bits >= element.bits
    assert ELEMENT_TYPES[element.accumulator].bits >= ELEMENT_TYPES[element.compute].bits
    if element.kind in ("int", "uint") and element.bits <= 16:
        compute, largest = ELEMENT_TYPES[element.compute], max(element.maximum, -element.minimum)
        assert compute.kind == "int" and largest * largest < 1 << compute.bits
        assert 65793 * largest * largest <= ELEMENT_TYPES[element.accumulator].maximum * (1 if element.bits > 8 else 2)
