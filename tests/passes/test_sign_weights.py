"""Weights of uint8 beside float32 data are the signed numbers that LiteRT's hybrid kernels take them for."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.ir.graph import Quant
from jitdelegate.passes import FOLD, REWRITE, run
from jitdelegate.passes.support import node_reason
from jitdelegate.targets.reference.evaluate import run_graph
from jitdelegate.tflite.read import read
from jitdelegate.tflite.write import ModelBuilder
from tests.ops.litert import run_litert

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
    expected = run_litert(model.finish(), [feed])
    (found,) = run_graph(run(folded, passes=REWRITE), [feed])
    np.testing.assert_allclose(found, expected, atol=0.05 * expected.std() * bool(options or zero))
