"""Weights of uint8 for float32 data, and of int4 for integers, are read as by LiteRT's kernels."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.ir.graph import Quant
from jitdelegate.passes import FOLD, REWRITE, run
from jitdelegate.passes.support import node_reason
from jitdelegate.targets.reference.evaluate import run_graph
from jitdelegate.tflite.read import read
from jitdelegate.tflite.write import ModelBuilder
from scripts.quantized_runs import run_litert, run_ours
from tests.ops.litert import run_litert as run_unaided
from tests.ops.quantized_models import numbers

CASES = {
    "EMBEDDING_LOOKUP": ((3,), (4, 5), (3, 5), 0, {}),
    "FULLY_CONNECTED": ((4, 32), (8, 32), (4, 8), 100, {}),
    "CONV_2D": ((1, 6, 6, 16), (8, 3, 3, 16), (1, 6, 6, 8), 128, {"padding": "SAME", "stride_w": 1, "stride_h": 1}),
}
"""Operator -> shapes of its data, its weights and its result, the zero point, and the options."""


@pytest.mark.parametrize("op", CASES)
def test_results_are_those_of_litert(op: str) -> None:
    shape, filter_shape, out, zero, options = CASES[op]
    dice, model = np.random.default_rng(0), ModelBuilder()
    codes = dice.integers(0, 256, filter_shape)
    weights = np.where(codes == 128, 129, codes).astype(np.uint8)  # LiteRT's own kernels let -128 overflow
    data = model.input(shape, "int32" if op == "EMBEDDING_LOOKUP" else "float32")
    operands = [data, model.constant(weights, quant=Quant((0.01,), (zero,)))]
    if options:
        operands.append(model.constant(np.zeros(out[-1], np.float32)))
    model.output(model.op(op, operands, out, options=options))
    feed = dice.normal(size=shape).astype(np.float32) if op != "EMBEDDING_LOOKUP" else np.array([2, 0, 3], np.int32)
    folded = run(read(model.finish()).graphs[0], passes=FOLD)
    assert node_reason(folded, folded.nodes[0]) is None
    expected = run_unaided(model.finish(), [feed])
    (found,) = run_graph(run(folded, passes=REWRITE), [feed])
    np.testing.assert_allclose(found, expected, atol=0.05 * expected.std() * bool(options or zero))


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("depth", [64, 65])
@pytest.mark.parametrize("op", ["FULLY_CONNECTED", "CONV_2D"])
def test_integers_times_weights_of_int4_are_those_of_litert(op: str, depth: int, dtype: str) -> None:
    dice, model, options = np.random.default_rng(1), ModelBuilder(), CASES["CONV_2D"][4] if op == "CONV_2D" else {}
    shape, filter_shape, out = (
        ((9, depth), (16, depth), (9, 16)) if not options else ((1, 3, 3, depth), (16, 1, 1, depth), (1, 3, 3, 16))
    )
    codes, scales = (
        dice.integers(-8, 8, filter_shape).astype(np.int8).reshape(-1) & 15,
        2.0 ** dice.integers(-6, -3, 16),
    )
    packed = (codes[::2] | codes[1::2] << 4).astype(np.int8)
    zero = 3 if dtype == "int8" else 0
    data = model.input(shape, dtype, quant=Quant((2.0**-5,), (zero,)))
    weights = model.constant(packed, dtype="int4", shape=filter_shape, quant=Quant(tuple(scales), (0,) * 16))
    bias = dice.integers(-500, 500, 16).astype("int32" if dtype == "int8" else "int64")
    operands = [data, weights, model.constant(bias, quant=Quant(tuple(scales * 2.0**-5), (0,) * 16))]
    quant, version = Quant((2.0**-4,), (-zero,)), {"FULLY_CONNECTED": 10, "CONV_2D": 8}[op]
    model.output(model.op(op, operands, out, dtype=dtype, quant=quant, options=options, version=version))
    feed = numbers(dice, shape, "int8").astype(dtype)
    ran = run_ours(model.finish(), [[feed]], "cpu")
    assert not ran.refused
    np.testing.assert_array_equal(ran.outputs[0][0], run_litert(model.finish(), [[feed]], "litert")[0][0])
