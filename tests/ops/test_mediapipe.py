"""MediaPipe's custom operators against XNNPACK, the only kernels for them that LiteRT has."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from jitdelegate.ops import OPS
from jitdelegate.ops.case import Case, Weights
from jitdelegate.passes.decode_custom_options import decode_custom_options
from jitdelegate.passes.lower import lower
from jitdelegate.passes.support import node_reason
from jitdelegate.targets.host import level
from jitdelegate.tflite.read import read
from jitdelegate.tflite.write import ModelBuilder
from tests.targets.execute import execute

NAMES = ("Convolution2DTransposeBias", "MaxPoolingWithArgmax2D", "MaxUnpooling2D")
CASES = [pytest.param(name, case, id=f"{name}-{i}") for name in NAMES for i, case in enumerate(OPS[name].cases)]
PADDING = {"SAME": 1, "VALID": 2}
ACTIVATION = {"NONE": 0, "RELU": 1}


def options_of(attrs: dict[str, Any]) -> bytes:
    """As converters write them: the memory of LiteRT's structures."""
    padding = struct.pack("<3i", PADDING[attrs["padding"]], attrs["stride_w"], attrs["stride_h"])
    if "filter_width" not in attrs:
        return padding
    activation = ACTIVATION[attrs["fused_activation_function"]]
    return padding + struct.pack("<3i16x", attrs["filter_width"], attrs["filter_height"], activation)


def model_of(name: str, case: Case, options: bytes) -> bytes:
    graph = case.graph(OPS[name])
    builder = ModelBuilder()
    for index, tensor in enumerate(graph.tensors):
        if tensor.data is not None:
            builder.constant(tensor.data)
        elif index in graph.inputs:
            builder.input(tensor.shape, tensor.dtype)
        else:
            builder.tensor(tensor.shape, tensor.dtype)
    builder.node(name, graph.nodes[0].inputs, graph.nodes[0].outputs, custom_options=options)
    builder.output(*graph.outputs)
    return builder.finish()


@pytest.mark.parametrize(("name", "case"), CASES)
def test_the_reference_is_what_xnnpack_computes(name: str, case: Case) -> None:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=model_of(name, case, options_of(dict(case.attrs))))
    try:
        interpreter.allocate_tensors()
    except RuntimeError as error:
        pytest.skip(f"XNNPACK does not take it: {str(error)[:80]}")
    for detail, feed in zip(interpreter.get_input_details(), case.feeds(), strict=True):
        interpreter.set_tensor(detail["index"], feed)
    interpreter.invoke()
    answer = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    np.testing.assert_allclose(answer, case.outputs(OPS[name])[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "case"), CASES)
def test_options_are_read_as_they_are_written(name: str, case: Case) -> None:
    graph = decode_custom_options(read(model_of(name, case, options_of(dict(case.attrs)))).graphs[0])
    assert {key: graph.nodes[0].attrs[key] for key in case.attrs} == case.attrs
    assert node_reason(graph, graph.nodes[0]) is None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("options", [b"", b"\x01", b"\xff" * 40, bytes(40)], ids=["none", "one", "ones", "zeros"])
def test_options_that_no_kernel_reads_are_refused_in_one_sentence(name: str, options: bytes) -> None:
    graph = decode_custom_options(read(model_of(name, OPS[name].cases[0], options)).graphs[0])
    reason = node_reason(graph, graph.nodes[0])
    assert reason is not None
    assert reason.startswith(name)


def test_a_custom_operator_is_no_builtin_of_the_same_name() -> None:
    builder = ModelBuilder()
    builder.input((2,))
    builder.tensor((2,))
    builder.node("RELU", (0,), (1,), custom_options=b"")
    builder.output(1)
    graph = decode_custom_options(read(builder.finish()).graphs[0])
    assert node_reason(graph, graph.nodes[0]) == "The custom operator RELU is not supported."


def test_a_bias_may_come_at_run_time() -> None:
    op = OPS["Convolution2DTransposeBias"]
    case = Case(((1, 5, 4, 3), Weights((2, 3, 3, 3)), (2,)), op.cases[2].attrs)
    (found,) = execute(lower(case.graph(op)), case.feeds(), level())
    np.testing.assert_allclose(found, case.expected(op), rtol=1e-5, atol=1e-5)
