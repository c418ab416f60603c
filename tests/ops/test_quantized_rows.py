"""Operators on rows of quantized data give what LiteRT gives, bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jitdelegate import load, passes
from jitdelegate.ir.forms import Normalize
from jitdelegate.ir.graph import QuantizedOptions
from jitdelegate.targets.cpu.generate import generate
from jitdelegate.tflite.read import read
from tests.ops.quantized_models import LiteRT, numbers, one_op

TYPES = {
    "int8": ("int8", 3, 0.1, (2.0**-8, -128)),
    "uint8": ("uint8", 3, 0.1, (2.0**-8, 0)),
    "int16": ("int8", 3, 0.1, (2.0**-15, 0)),
    "int16 of int16": ("int16", 0, 0.0005, (2.0**-15, 0)),
}
"""Output -> data, its zero point and scale, the output's scale and zero point."""
SHAPES = [((64, 10), 1.0), ((3, 1001), 0.07), ((2, 3, 5, 33), 1.0), ((7,), 0.07), ((5, 1), 1.0)]
"""Shapes, and the option `beta`."""


def rows(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Random rows; one of equal numbers, and one with a single large number."""
    data = numbers(np.random.default_rng(len(shape)), shape, dtype)
    flat = data.reshape(-1, shape[-1])
    if len(flat) > 2:
        flat[1], flat[2] = 5, np.iinfo(dtype).min
        flat[2, -1] = np.iinfo(dtype).max
    return data


@pytest.mark.parametrize("rounding", ["litert", "reference"])
@pytest.mark.parametrize("shape, beta", SHAPES, ids=str)
@pytest.mark.parametrize("name", TYPES)
def test_shares_are_what_litert_computes(name: str, shape: tuple[int, ...], beta: float, rounding: str) -> None:
    source, zero, scale, (share, least) = TYPES[name]
    if rounding == "reference" and shape[-1] > 511 and source != "int16":
        pytest.skip("LiteRT's reference kernel aborts where a row has many numbers near its largest one")
    output = (shape, name.split()[0], share, least)
    content, data = one_op("SOFTMAX", [(shape, source, scale, zero)], output, 2, beta=beta), rows(shape, source)
    ours = load(content, target="cpu", quantized_rounding=rounding)
    assert ours.report().target == "cpu", str(ours.report())
    np.testing.assert_array_equal(ours(data), LiteRT(content, rounding).run(data))


@pytest.mark.parametrize("rounding", ["litert", "reference"])
@pytest.mark.parametrize("name", TYPES)
def test_no_array_is_kept_between_steps(name: str, rounding: str) -> None:
    source, zero, scale, (share, least) = TYPES[name]
    shape = 2, 40, 300
    content = one_op("SOFTMAX", [(shape, source, scale, zero)], (shape, name.split()[0], share, least), 2, beta=1.0)
    graph = passes.run(replace(read(content).graphs[0], quantized=QuantizedOptions(rounding)))
    assert [type(node.form) for node in graph.nodes] == [Normalize]
    program = generate(graph, "x86-64-v3")
    assert (program.arena_bytes, program.scratch_bytes < 40 * 300 * 4) == (0, True)


@pytest.mark.parametrize("name", ["int8", "uint8"])
def test_the_largest_share_below_a_half_is_rounded_as_litert_does(name: str) -> None:
    """Five shares of this row are 0.49999997 steps: LiteRT rounds those of an int8, and adds a half for a uint8."""
    source, zero, _, (share, least) = TYPES[name]
    content = one_op("SOFTMAX", [((1, 512), source, 2.0**-8, zero)], ((1, 512), name, share, least), 2, beta=1.0)
    data = np.random.default_rng(7982).integers(0, 60, (1, 512), np.int8).astype(source)
    shares = load(content, target="cpu")(data)
    np.testing.assert_array_equal(shares, LiteRT(content, "litert").run(data))


def test_a_sum_just_below_a_power_of_two_is_not_rounded_up_to_it() -> None:
    """Sixteen exponentials of 32762 and 47 of 2 are 2**19 - 2."""
    source, zero, _, (share, least) = TYPES["int16 of int16"]
    content = one_op("SOFTMAX", [((1, 63), source, 2.0**-11, zero)], ((1, 63), "int16", share, least), 2, beta=1.0)
    data = np.array([[*[32767] * 16, *[-32768] * 47]], np.int16)
    np.testing.assert_array_equal(load(content, target="cpu")(data), LiteRT(content, "litert").run(data))


def test_the_reference_arithmetic_rounds_shares_below_a_512th_to_zero() -> None:
    content = one_op("SOFTMAX", [((1, 700), "int8", 0.1, 0)], ((1, 700), "int8", 2.0**-8, -128), 2, beta=1.0)
    model = load(content, target="cpu", quantized_rounding="reference")
    assert set(model(np.full((1, 700), 9, np.int8)).flat) == {-128}


UNITS = {
    ("LOG_SOFTMAX", "int8"): (2.0**-4, 127),
    ("LOG_SOFTMAX", "uint8"): (2.0**-4, 255),
    ("L2_NORMALIZATION", "int8"): (2.0**-7, 0),
    ("L2_NORMALIZATION", "uint8"): (2.0**-7, 128),
}
"""Operator and type -> the output's scale and zero point, which LiteRT asks for."""


@pytest.mark.parametrize("scale, zero", [(0.1, 3), (2.0**-5, 100)])
@pytest.mark.parametrize("shape", [(64, 10), (5, 1), (2, 3, 300)], ids=str)
@pytest.mark.parametrize("op, dtype", UNITS)
def test_logarithms_and_unit_vectors_are_what_litert_computes(
    op: str, dtype: str, shape: tuple[int, ...], scale: float, zero: int
) -> None:
    content, data = one_op(op, [(shape, dtype, scale, zero)], (shape, dtype, *UNITS[op, dtype])), rows(shape, dtype)
    data.reshape(-1, shape[-1])[0] = zero
    ours = load(content, target="cpu")
    assert ours.report().target == "cpu", str(ours.report())
    np.testing.assert_array_equal(ours(data), LiteRT(content).run(data))
