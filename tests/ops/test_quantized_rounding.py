"""Random quantized operators give the results of LiteRT's default interpreter, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.tflite.write import ModelBuilder
from scripts.one_op_models import MAKERS, OneOp, one_op_models
from scripts.quantized_inputs import hostile
from scripts.quantized_models import input_tensors, steps
from scripts.quantized_runs import compared, run_litert, run_ours
from tests.ops.quantized_models import numbers, per_tensor

DECLINED = (
    "of int16 with scales that are powers of two is not supported",
    "in another way",
    "LiteRT leaves unwritten",
    "rises so steeply",
)
"""Why some models are left to LiteRT."""
SEEDS = {"reference": 12, "cpu": 3}
"""Target -> models of each operator: the types take turns."""


@pytest.mark.parametrize("target", SEEDS)
@pytest.mark.parametrize("op", MAKERS)
def test_results_equal_litert_s_bit_for_bit(op: str, target: str) -> None:
    ran = [differing(model, target) for model in one_op_models([op], SEEDS[target])]
    assert not any(ran)
    assert any(each == "" for each in ran)


@pytest.mark.parametrize("op", ["BATCH_MATMUL", "DIV"])
def test_a_gpu_rounds_as_litert_too(op: str) -> None:
    assert not any(differing(model, "simulator") for model in one_op_models([op], 3))


def differing(model: OneOp, target: str, rounding: str = "litert") -> str | None:
    """Where the model's results differ, "" if nowhere, None where LiteRT refuses it or it is left to LiteRT."""
    inputs = list(hostile(input_tensors(model.content)))
    try:
        expected = run_litert(model.content, inputs, rounding)
    except RuntimeError:
        return None
    ran = run_ours(model.content, inputs, target, rounding)
    if ran.refused:
        ((_, reason),) = ran.refused
        assert any(words in reason for words in DECLINED), f"{model.what}: {reason}"
        return None
    found = compared(ran.outputs, expected, steps(model.content))
    return f"{model.what}: {found.differing} of {found.elements}, {found.example}" if found.differing else ""


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("dtype, filters", [("int8", "int8"), ("uint8", "uint8"), ("int16", "int8")])
def test_filters_that_are_computed_round_as_those_of_litert(dtype: str, filters: str, has_bias: bool) -> None:
    dice, model, zeros = np.random.default_rng(2), ModelBuilder(), {"int8": 7, "uint8": 100, "int16": 0}
    middle = 100 if filters == "uint8" else 0
    operands = [model.input((5, 65), dtype, quant=per_tensor(2.0**-5, zeros[dtype]))]
    operands.append(model.input((33, 65), filters, quant=per_tensor(2.0**-6, middle)))
    if has_bias:
        bias = dice.integers(-3000, 3000, 33).astype("int64" if dtype == "int16" else "int32")
        operands.append(model.constant(bias, quant=per_tensor(2.0**-11)))
    quant, version = per_tensor(0.13 if dtype != "int16" else 40.0, zeros[dtype]), 11 if dtype == "int16" else 4
    model.output(model.op("FULLY_CONNECTED", operands, (5, 33), dtype=dtype, quant=quant, version=version))
    inputs = [[numbers(dice, (5, 65), dtype), numbers(dice, (33, 65), filters)]]
    expected = run_litert(model.finish(), inputs, "litert")
    for target in ("cpu", "reference"):
        ran = run_ours(model.finish(), inputs, target)
        assert not ran.refused
        np.testing.assert_array_equal(ran.outputs[0][0], expected[0][0])


@pytest.mark.parametrize("ratio", [2.0**14.5, 2.0**19.3, 2.0**27.6, 2.0**31.8])
@pytest.mark.parametrize(
    "dtype, rounding, targets",
    [("int16", "litert", ("cpu", "reference", "simulator")), ("int8", "reference", ("cpu", "reference"))],
)
def test_means_in_tiny_steps_wrap_as_those_of_litert(
    dtype: str, rounding: str, targets: tuple[str, ...], ratio: float
) -> None:
    dice, model, middle = np.random.default_rng(4), ModelBuilder(), 0 if dtype == "int16" else -9
    data = model.input((40, 13), dtype, quant=per_tensor(0.01, middle))
    axes = model.constant(np.array([1], np.int32))
    quant = per_tensor(0.01 / ratio, middle)
    model.output(model.op("MEAN", [data, axes], (40,), dtype=dtype, quant=quant, version=2))
    inputs = [[numbers(dice, (40, 13), dtype) // 9]]
    expected = run_litert(model.finish(), inputs, rounding)
    for target in targets:
        ran = run_ours(model.finish(), inputs, target, rounding)
        assert not ran.refused
        np.testing.assert_array_equal(ran.outputs[0][0], expected[0][0])


@pytest.mark.parametrize("target", ["cpu", "reference", "simulator"])
def test_the_sum_of_a_large_window_of_words_wraps_as_that_of_litert(target: str) -> None:
    model, size, quant = ModelBuilder(), 260, per_tensor(0.01)
    data = model.input((1, size, size, 1), "int16", quant=quant)
    options = {"padding": "VALID", "stride_h": 1, "stride_w": 1, "filter_height": size, "filter_width": size}
    model.output(model.op("AVERAGE_POOL_2D", [data], (1, 1, 1, 1), options=options, dtype="int16", quant=quant))
    inputs = [[np.full((1, size, size, 1), value, np.int16)] for value in (32767, -32768, 30000)]
    ran, expected = run_ours(model.finish(), inputs, target), run_litert(model.finish(), inputs)
    assert not ran.refused
    np.testing.assert_array_equal(ran.outputs, expected)


@pytest.mark.parametrize("is_constant", [False, True])
def test_the_factor_of_a_matrix_product_is_that_of_litert_to_the_last_bit(is_constant: bool) -> None:
    """LiteRT multiplies the two scales as float32s, where no bias has 64 bits: some of many results show it."""
    dice, model = np.random.default_rng(9), ModelBuilder()
    a, b = (np.float32(scale) for scale in dice.uniform(0.001, 0.1, 2))
    data, filters = numbers(dice, (128, 9), "int16"), np.maximum(numbers(dice, (512, 9), "int8"), -127)
    operands = [model.input(data.shape, "int16", quant=per_tensor(a))]
    if is_constant:
        operands.append(model.constant(filters, quant=per_tensor(b)))
    else:
        operands.append(model.input(filters.shape, "int8", quant=per_tensor(b)))
    quant = per_tensor(87.654 * a * b)
    model.output(model.op("FULLY_CONNECTED", operands, (128, 512), dtype="int16", quant=quant, version=11))
    inputs = [[data] if is_constant else [data, filters]]
    ran = run_ours(model.finish(), inputs)
    assert not ran.refused
    np.testing.assert_array_equal(ran.outputs[0][0], run_litert(model.finish(), inputs)[0][0])


def test_the_factor_of_a_batch_matmul_is_that_of_litert_to_the_last_bit() -> None:
    """As above, beside XNNPACK, which takes no right matrix with a zero point."""
    dice, model = np.random.default_rng(105), ModelBuilder()
    a, b = (np.float32(scale) for scale in dice.uniform(0.001, 0.1, 2))
    steps = np.float32(a * b * dice.uniform(60, 150) * 10)
    inputs = [[numbers(dice, shape, "int8") for shape in ((256, 60), (60, 512))]]
    pairs = zip(inputs[0], (per_tensor(a, 3), per_tensor(b, 5)), strict=True)
    operands = [model.input(matrix.shape, "int8", quant=quant) for matrix, quant in pairs]
    model.output(model.op("BATCH_MATMUL", operands, (256, 512), dtype="int8", quant=per_tensor(steps)))
    ran = run_ours(model.finish(), inputs)
    assert not ran.refused
    np.testing.assert_array_equal(ran.outputs[0][0], run_litert(model.finish(), inputs)[0][0])


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("size", [(17, 17), (5, 4)])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_samples_in_the_middle_of_two_pixels_are_rounded_as_by_litert(
    dtype: str, size: tuple[int, int], aligned: bool
) -> None:
    dice, model, quant = np.random.default_rng(2), ModelBuilder(), per_tensor(0.5)
    data = dice.integers(-3 if dtype != "uint8" else 0, 4, (1, 9, 9, 21)).astype(dtype)
    operands = [model.input(data.shape, dtype, quant=quant), model.constant(np.array(size, np.int32))]
    options = {"align_corners": aligned, "half_pixel_centers": not aligned}
    shape = (1, *size, 21)
    model.output(model.op("RESIZE_BILINEAR", operands, shape, options=options, dtype=dtype, quant=quant, version=3))
    ran = run_ours(model.finish(), [[data]])
    assert not ran.refused
    np.testing.assert_array_equal(ran.outputs[0][0], run_litert(model.finish(), [[data]])[0][0])
