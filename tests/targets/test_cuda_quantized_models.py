"""Quantized operators of several kernels on CUDA, in the simulator: what numpy computes of the same graph."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate import passes
from jitdelegate.ir.graph import Graph, Tensor
from jitdelegate.passes.specialize_subgraph import specialize_subgraph
from jitdelegate.targets.cuda.code.gpu import GPUS
from jitdelegate.targets.cuda.plan.plan import plan
from jitdelegate.targets.reference.evaluate import run_graph
from jitdelegate.tflite.read import read
from jitdelegate.tflite.write import ModelBuilder
from tests.ops.quantized_models import (
    BasicLstmModel,
    LiteRT,
    LstmModel,
    SvdfModel,
    numbers,
    one_op,
    per_tensor,
    transposed,
)
from tests.targets.cuda_execute import run

MODELS = {
    "lstm": LstmModel(steps=2, depth=6, units=5, outputs=3, coupled=True, peepholes=False).content(),
    "lstm with layer norm": LstmModel(steps=2, depth=6, units=5, norm=True, gates=(2e-3, 4e-4, 1e-3, 2e-2)).content(),
    "lstm of kernel BASIC": BasicLstmModel(depth=6, units=5).content(),
    "svdf": SvdfModel(batch=1, depth=5, units=3, length=4).content(),
    "softmax": one_op("SOFTMAX", [((3, 7), "int8", 0.1, 3)], ((3, 7), "int8", 2.0**-8, -128), 2, beta=1.0),
    "softmax of int16": one_op("SOFTMAX", [((3, 7), "int16", 5e-4, 0)], ((3, 7), "int16", 2.0**-15, 0), 2, beta=1.0),
    "transposed, windows below their stride": transposed(2, 3, "SAME"),
    "transposed, single weights": transposed(1, 2, "VALID", 4),
    "words of floats, of groups and a rest": one_op(
        "QUANTIZE", [((3, 7), "float32", 0.0, 0)], ((3, 7), "int16", 0.3, 0)
    ),
    "unit vectors": one_op("L2_NORMALIZATION", [((3, 7), "int8", 0.1, 3)], ((3, 7), "int8", 2.0**-7, 0)),
}


def lowered(content: bytes) -> Graph:
    graph = specialize_subgraph(read(content), 0, (), ()).graphs[0]
    for stage in (passes.FOLD, passes.REWRITE):
        graph = passes.run(graph, lambda *_: None, stage)
    return graph


def fed(tensor: Tensor, random: np.random.Generator) -> np.ndarray:
    """Any integers; floats that are halves of a step."""
    if tensor.dtype == "float32":
        return (random.integers(-99, 99, tensor.shape) * 0.15).astype(np.float32)
    return numbers(random, tensor.shape, tensor.dtype)


@pytest.mark.parametrize("name", MODELS)
def test_answers_and_states_are_those_of_the_reference(name: str) -> None:
    graph, random = lowered(MODELS[name]), np.random.default_rng(0)
    feeds = [fed(graph.tensors[index], random) for index in graph.inputs]
    for found, expected in zip(run(graph, feeds), run_graph(graph, feeds), strict=True):
        np.testing.assert_array_equal(found, expected)


def of_uint8(zero: int) -> bytes:
    """A depthwise and three other products by weights of this zero point; numbers of channels are odd."""
    model, random, scale, steps = ModelBuilder(), np.random.default_rng(3), 0.02, {"stride_w": 1, "stride_h": 1}
    value = model.input((1, 7, 5, 4), "uint8", quant=per_tensor(scale, 120))
    for op, filters, shape, options in (
        ("DEPTHWISE_CONV_2D", (1, 3, 3, 4), (1, 7, 5, 4), {"padding": "SAME", **steps, "depth_multiplier": 1}),
        ("CONV_2D", (9, 1, 1, 4), (1, 7, 5, 9), {"padding": "SAME", **steps}),
        ("CONV_2D", (5, 3, 3, 9), (1, 7, 5, 5), {"padding": "SAME", **steps}),
        ("FULLY_CONNECTED", (11, 175), (1, 11), {}),
    ):
        weights = model.constant(numbers(random, filters, "uint8"), quant=per_tensor(0.01, zero))
        bias = random.integers(-5000, 5000, shape[-1]).astype(np.int32)
        operands = [value, weights, model.constant(bias, quant=per_tensor(scale * 0.01))]
        scale *= 2 * np.prod(filters[1:]) ** 0.6
        value = model.op(op, operands, shape, options=options, dtype="uint8", quant=per_tensor(scale, 120))
    model.output(value)
    return model.finish()


@pytest.mark.parametrize("zero", [0, 1, 128, 255])
def test_products_of_uint8_are_those_of_litert_in_a_launch_each(zero: int) -> None:
    graph, feed = lowered(of_uint8(zero)), numbers(np.random.default_rng(zero), (1, 7, 5, 4), "uint8")
    (found,) = run(graph, [feed])
    np.testing.assert_array_equal(found, LiteRT(of_uint8(zero)).run(feed))
    assert len(np.unique(found)) > 3
    assert len(plan(graph, GPUS["sm_90"], "float32").launches) <= 4
