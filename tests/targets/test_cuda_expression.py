"""Every function of expressions on CUDA, at the ends of the number line: as numpy computes it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from jitdelegate.ir.expr import BINARY, COMPARISONS, TERNARY, UNARY, Apply, Arg, Cast, Expr, evaluate, fma, unary
from jitdelegate.ir.forms import Map
from jitdelegate.targets.maths.builder import NATIVE
from jitdelegate.targets.maths.functions import FLOAT_FUNCTIONS, INTEGER_FUNCTIONS
from tests.targets.cuda_execute import assert_compiles_everywhere, run, templates_of
from tests.targets.cuda_graphs import graph_of
from tests.targets.elementwise_graphs import SAME, near_ties, of_elements

EDGES = [0.0, 1e-45, 1e-38, 1e-6, 0.3, 0.5, 1.0, 1.5, 7.9, 9.0, 20.0, 87.0, 88.7, 89.0, 1e3, 16777217.0, 3e38, np.inf]
VALUES = np.array([*EDGES, *(-edge for edge in EDGES), np.nan], np.float32)
RANDOM = np.random.default_rng(0).normal(0, 4, 200).astype(np.float32)
WHOLE = {
    dtype: np.array([0, 1, 2, 3, 5, 7, 31, 33, np.iinfo(dtype).max, np.iinfo(dtype).max - 1], dtype)
    for dtype in ("int32", "int64", "int8", "int16", "uint8", "uint16", "uint32")
}
BOTH_SIGNS = {
    dtype: np.concatenate([values, -values, [np.iinfo(dtype).min]]).astype(dtype) if dtype[0] == "i" else values
    for dtype, values in WHOLE.items()
}
LOGIC = {"and", "or", "xor", "eq", "ne", "max", "min"}
ON_FLOATS = {*FLOAT_FUNCTIONS, *NATIVE} - {"copysign"}


def answered(expr: Expr, *arrays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the kernel answers, and what numpy does."""
    (found,) = run(of_elements(expr, [str(array.dtype) for array in arrays], arrays[0].size), arrays)
    with np.errstate(all="ignore"):
        return found, evaluate(expr, arrays)


def all_pairs(values: np.ndarray) -> list[np.ndarray]:
    return [np.array(side, values.dtype) for side in zip(*product(values, values), strict=True)]


def test_every_function_has_device_code() -> None:
    assert ON_FLOATS | {*INTEGER_FUNCTIONS} == {*UNARY, *BINARY, *COMPARISONS, *TERNARY} - {"select"}


@pytest.mark.parametrize("function", sorted({*UNARY} & ON_FLOATS))
def test_a_function_of_one_value_agrees_with_numpy_everywhere(function: str) -> None:
    found, expected = answered(unary(function, Arg(0)), np.concatenate([VALUES, RANDOM]))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=2e-38)
    zeros = expected == 0
    np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(expected[zeros]))


@pytest.mark.parametrize("function", ["sin", "cos"])
def test_an_angle_may_be_as_large_as_a_float(function: str) -> None:
    exact = {"sin": np.sin, "cos": np.cos}[function]
    random = np.random.default_rng(0)
    data = random.integers(0x3E000000, 0x7F800000, 2000, np.int32).view(np.float32)
    large = random.integers(0x7D000000, 0x7F800000, 2_000_000, np.int32).view(np.float32)
    hardest = np.argsort(np.abs(exact(large.astype(np.float64))))[:1000]
    near = (np.arange(1, 3000) * (np.pi / 2)).astype(np.float32)
    data = np.concatenate([data, large[hardest], near, np.float32([16367173 * 2.0**72])])
    found, _ = answered(unary(function, Arg(0)), data)
    expected = exact(data.astype(np.float64))
    np.testing.assert_allclose(found, expected, rtol=3e-7, atol=1e-30)


@pytest.mark.parametrize("function", sorted({*BINARY, *COMPARISONS} & ON_FLOATS))
def test_a_function_of_two_values_agrees_with_its_meaning_everywhere(function: str) -> None:
    left, right = all_pairs(VALUES)
    found, expected = answered(Apply(function, (Arg(0), Arg(1))), left, right)
    if function in ("max", "min"):
        certain = ~np.isnan(right) & ((left != 0) | (right != 0))
        found, expected = found[certain], expected[certain]
    if function in ("pow", "atan2"):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-44)
    else:
        np.testing.assert_array_equal(found, expected)


def test_a_product_and_a_sum_are_rounded_once() -> None:
    np.testing.assert_array_equal(*answered(fma(Arg(0), Arg(1), Arg(2)), *near_ties()))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("function", sorted({*INTEGER_FUNCTIONS} - {"not", "pow"}))
def test_integers_wrap_and_divide_as_documented(function: str, dtype: str) -> None:
    arguments = [BOTH_SIGNS[dtype]] if function in UNARY else all_pairs(BOTH_SIGNS[dtype])
    expr = Apply(function, tuple(map(Arg, range(len(arguments)))))
    np.testing.assert_array_equal(*answered(expr, *arguments))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_powers_of_integers_wrap(dtype: str) -> None:
    left, right = all_pairs(BOTH_SIGNS[dtype])
    np.testing.assert_array_equal(*answered(Apply("pow", (Arg(0), Arg(1))), left[right >= 0], right[right >= 0]))


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint8", "uint16", "uint32"])
@pytest.mark.parametrize("function", [*COMPARISONS, "max", "min", "shift_right", "add", "sub", "mul"])
def test_integers_of_all_sizes_wrap_and_compare_by_their_own_sign(function: str, dtype: str) -> None:
    np.testing.assert_array_equal(*answered(Apply(function, (Arg(0), Arg(1))), *all_pairs(BOTH_SIGNS[dtype])))


@pytest.mark.parametrize("function", sorted(LOGIC))
def test_truth_values_combine(function: str) -> None:
    np.testing.assert_array_equal(
        *answered(Apply(function, (Arg(0), Arg(1))), *all_pairs(np.array([False, True, True])))
    )


def test_truth_values_are_negated() -> None:
    np.testing.assert_array_equal(*answered(unary("not", Arg(0)), np.array([False, True, False])))


TYPES = ("float32", "bool", "float16", *WHOLE)


@pytest.mark.parametrize("target", TYPES)
@pytest.mark.parametrize("source", TYPES)
def test_a_cast_is_as_documented(source: str, target: str) -> None:
    values = {"float32": np.concatenate([VALUES, [127.9, 128.5, -128.9, 255.5, 2.0**31, 2.0**32, 2.0**63, -(2.0**63)]])}
    values |= {"bool": np.array([True, False]), "float16": np.array([0, 1.5, -3, 65504, np.nan, np.inf])} | BOTH_SIGNS
    with np.errstate(all="ignore"):
        found, expected = answered(Cast(Arg(0), target), values[source].astype(source))
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype == target


def test_a_choice_takes_values_of_any_type() -> None:
    condition = np.array([True, False, True])
    for dtype in TYPES:
        arrays = condition, np.array([1, 0, 1]).astype(dtype), np.array([0, 1, 1]).astype(dtype)
        np.testing.assert_array_equal(*answered(Apply("select", (Arg(0), Arg(1), Arg(2))), *arrays))


def test_equal_parts_of_an_expression_are_computed_once() -> None:
    part = unary("exp", Arg(0))
    data = np.float32([0.5, -0.5, 2.0])
    graph = graph_of(Map(part / (part + 1.0), (SAME,)), [(3,)], (3,))
    np.testing.assert_allclose(run(graph, [data])[0], np.exp(data) / (np.exp(data) + 1), rtol=1e-6)


def test_functions_compile_everywhere_without_local_memory() -> None:
    long = ("sin", "cos", "erf", "sign", "round")
    graphs = [of_elements(unary(function, Arg(0)), ["float32"], 5) for function in long]
    for dtype in ("float32", "int64"):
        binary = sorted({*BINARY} & {*(ON_FLOATS if dtype == "float32" else INTEGER_FUNCTIONS)} - LOGIC)
        graphs += [of_elements(Apply(function, (Arg(0), Arg(1))), [dtype] * 2, 5) for function in binary]
    graphs += [of_elements(Cast(Arg(0), target), ["float32"], 5) for target in ("int8", "int64", "bool")]
    assert_compiles_everywhere([template for graph in graphs for template in templates_of(graph)])
