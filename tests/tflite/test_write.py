from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from jitdelegate.errors import OptionError
from jitdelegate.ir.graph import Quant
from jitdelegate.tflite.write import ModelBuilder
from tests.child import answer_of
from tests.tflite.example_models import convolution, everything


def run(content: bytes, *inputs: np.ndarray) -> list[np.ndarray]:
    """The outputs of LiteRT."""
    interpreter = Interpreter(model_content=content)
    interpreter.allocate_tensors()
    for details, value in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(details["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(details["index"]) for details in interpreter.get_output_details()]


def test_litert_runs_a_written_convolution() -> None:
    image = np.random.default_rng(2).normal(size=(1, 8, 8, 3)).astype(np.float32)
    (flat,) = run(convolution(), image)
    assert flat.shape == (1, 64)
    assert flat.std() > 0.1


def test_litert_finds_buffers_behind_the_flatbuffer() -> None:
    image = np.random.default_rng(2).normal(size=(1, 8, 8, 3)).astype(np.float32)
    np.testing.assert_array_equal(run(convolution(external=True), image)[0], run(convolution(), image)[0])


@pytest.mark.parametrize("external", [False, True])
def test_buffers_are_aligned_to_16_bytes(external: bool) -> None:
    model = ModelBuilder()
    for value in (1, 2, 3):
        model.output(model.constant(np.full(5, value, np.uint8), external=external))
    content = model.finish()
    assert [content.index(bytes([value] * 5)) % 16 for value in (1, 2, 3)] == [0, 0, 0]


def test_litert_runs_an_operator_with_several_outputs() -> None:
    model = ModelBuilder()
    x = model.input((1, 4))
    axis = model.constant(np.array(1, np.int32))
    parts = [model.tensor((1, 2)), model.tensor((1, 2))]
    model.node("SPLIT", [axis, x], parts, options={"num_splits": 2})
    model.output(*reversed(parts))
    right, left = run(model.finish(), np.array([[1, 2, 3, 4]], np.float32))
    assert (left.tolist(), right.tolist()) == ([[1, 2]], [[3, 4]])


def test_litert_runs_an_operator_without_its_optional_input() -> None:
    model = ModelBuilder()
    x = model.input((1, 2))
    weights = model.constant(np.array([[1, 2], [3, 4]], np.float32))
    model.output(model.op("FULLY_CONNECTED", [x, weights, None], (1, 2)))
    assert run(model.finish(), np.array([[1, 10]], np.float32))[0].tolist() == [[21, 43]]


def test_litert_runs_options_of_the_second_union() -> None:
    model = ModelBuilder()
    x = model.input((4,))
    start = model.constant(np.array(0, np.float32))
    sizes = [model.constant(np.array([size], np.int64)) for size in (2, 2, 1)]
    model.output(model.op("REDUCE_WINDOW", [x, start, *sizes], (2,), options={"reduce_function": "ADD"}))
    assert run(model.finish(), np.array([1, 2, 3, 4], np.float32))[0].tolist() == [3, 7]


def test_litert_reads_the_written_quantization() -> None:
    model = ModelBuilder()
    x = model.input((1, 4), "int8", quant=Quant((0.5,), (3,)))
    model.output(model.op("DEQUANTIZE", [x], (1, 4)))
    assert run(model.finish(), np.array([[3, 5, 7, 1]], np.int8))[0].tolist() == [[0, 1, 2, -1]]


def test_litert_widens_written_halves() -> None:
    model = ModelBuilder()
    x = model.input((2,))
    halves = model.constant(np.array([0.5, -2], np.float16))
    model.output(model.op("ADD", [x, model.op("DEQUANTIZE", [halves], (2,))], (2,)))
    assert run(model.finish(), np.zeros(2, np.float32))[0].tolist() == [0.5, -2]


def test_litert_lists_the_written_signature() -> None:
    interpreter = Interpreter(model_content=convolution())
    assert interpreter.get_signature_list() == {"serving_default": {"inputs": ["image"], "outputs": ["flat"]}}


def everything_in_hex() -> str:
    return everything().hex()


def test_equal_calls_give_equal_bytes_in_every_process() -> None:
    runs = [answer_of(everything_in_hex, PYTHONHASHSEED=seed) for seed in ("1", "2")]
    assert runs == [everything_in_hex()] * 2


def test_an_unknown_option_is_refused_by_name() -> None:
    model = ModelBuilder()
    with pytest.raises(OptionError, match=r"Conv2DOptions has no 'stride'; it has padding, stride_w"):
        model.op("CONV_2D", [], (1,), options={"stride": 2})


def test_an_option_for_an_operator_without_options_is_refused() -> None:
    with pytest.raises(OptionError, match="LOGISTIC has no options, found axis"):
        ModelBuilder().op("LOGISTIC", [], (1,), options={"axis": 2})


def test_an_unknown_value_of_an_option_is_refused() -> None:
    model = ModelBuilder()
    model.op("CONV_2D", [], (1,), options={"padding": "MOST"})
    with pytest.raises(OptionError, match="padding is 'MOST', expected one of Padding: SAME, VALID"):
        model.finish()


def test_an_unknown_operator_is_refused() -> None:
    with pytest.raises(OptionError, match="'CONV2D' is no builtin operator"):
        ModelBuilder().op("CONV2D", [], (1,))


def test_an_unknown_type_is_refused() -> None:
    model = ModelBuilder()
    model.input((1,), "float31")
    with pytest.raises(OptionError, match="type is 'FLOAT31', expected one of TensorType"):
        model.finish()
