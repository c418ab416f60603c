"""quantize_inputs and dequantize_outputs: float32 in place of quantized inputs and outputs, however a model runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT

import jitdelegate
from jitdelegate.errors import OptionError, TensorError
from jitdelegate.ir.graph import Quant
from jitdelegate.tflite.float_ports import with_float_ports
from jitdelegate.tflite.write import ModelBuilder
from tests.api import small_models

VALUES = np.array([[-300, -7.6, 0.1, 0.3, 2.9, 900]], np.float32)
STORED = np.array([[-128, -12, 3, 4, 9, 127]], np.int8)
"""VALUES as int8 with IN's parameters."""
IN, OUT = Quant((0.5,), (3,)), Quant((1 / 128,), (-5,))
WEIGHTS = np.random.default_rng(0).standard_normal((1, 3000)).astype(np.float32)
FLOATS: dict[str, Any] = {"quantize_inputs": True, "dequantize_outputs": True}


def model() -> bytes:
    """i8[?,6], f32[1,3000] -> TANH: i8[?,6], and the float32 unchanged; the custom options of nobody's operator and a
    constant lie behind the FlatBuffer."""
    build = ModelBuilder()
    x = build.input((1, 6), "int8", name="x", quant=IN, shape_signature=(-1, 6))
    other = build.input((1, 3000), name="other")
    y = build.op("TANH", [x], (1, 6), dtype="int8", quant=OUT, name="y")
    total = build.op("ADD", [other, build.constant(WEIGHTS, external=True)], (1, 3000), name="total")
    for each in (y, total, x):
        build.output(each)
    build.signature("serve", {"value": x, "rest": other}, {"found": y, "again": x, "total": total})
    return build.finish()


def expected() -> list[np.ndarray]:
    """LiteRT's answers to STORED, and what these stand for."""
    interpreter = LiteRT(model_content=model())
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, STORED)
    interpreter.set_tensor(1, WEIGHTS)
    interpreter.invoke()
    y, total, x = (interpreter.get_tensor(each["index"]) for each in interpreter.get_output_details())
    return [(y.astype(np.float32) + 5) / 128, total, (x.astype(np.float32) - 3) * np.float32(0.5)]


@pytest.mark.parametrize("target", ["cpu", "litert"])
def test_floats_stand_for_what_is_stored(target: str, tmp_path: Path) -> None:
    for hit in (False, True):
        found = jitdelegate.load(model(), target=target, serialization_dir=tmp_path, **FLOATS)
        assert found.report().cache.hit == hit
        assert [(each.name, each.dtype, each.quantization) for each in (*found.inputs, *found.outputs)] == [
            (name, "float32", None) for name in ("x", "other", "y", "total", "x")
        ]
        assert found.inputs[0].shape_signature == (-1, 6)
        for answer, reference in zip(found(VALUES, WEIGHTS), expected(), strict=True):
            np.testing.assert_array_equal(answer, reference)
        named = found.run({"value": VALUES, "rest": WEIGHTS}, "serve")
        np.testing.assert_array_equal(named["found"], expected()[0])
        np.testing.assert_array_equal(named["again"], expected()[2])
        assert found(np.repeat(VALUES, 4, 0), WEIGHTS)[0].shape == (4, 6)


def test_each_side_is_asked_for_by_itself() -> None:
    load = jitdelegate.load
    one = load(model(), target="litert", serialization_dir=False, dequantize_outputs=True)
    assert [each.dtype for each in (*one.inputs, *one.outputs)] == ["int8", "float32", *["float32"] * 3]
    np.testing.assert_array_equal(one(STORED, WEIGHTS)[0], expected()[0])
    other = load(model(), target="litert", serialization_dir=False, quantize_inputs=True)
    assert [each.dtype for each in (*other.inputs, *other.outputs)] == ["float32", "float32", "int8", "float32", "int8"]
    assert np.asarray(other(VALUES, WEIGHTS)[2]).tolist() == STORED.tolist()


@pytest.mark.parametrize("target", ["cpu", "litert"])
def test_floats_without_being_asked_for_are_refused_with_the_option_that_takes_them(target: str) -> None:
    found = jitdelegate.load(model(), target=target, serialization_dir=False)
    with pytest.raises(TensorError, match=r"expected int8\[1, 6\] or 6 bytes, or the option quantize_inputs$"):
        found(VALUES, WEIGHTS)
    with pytest.raises(TensorError, match=r"expected float32\[1, 3000\] or 12000 bytes$"):
        found(STORED, STORED)


def test_litert_s_methods_know_the_floats_too() -> None:
    delegate = jitdelegate.GpuDelegate(target="cpu", serialization_dir=False, **FLOATS)
    interpreter = jitdelegate.Interpreter(model_content=model(), experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    details = interpreter.get_input_details()[0]
    assert (details["name"], details["dtype"], details["quantization"]) == ("x", np.float32, (0.0, 0))
    assert interpreter.get_tensor_details()[0]["quantization"] == (0.5, 3)
    interpreter.set_tensor(details["index"], VALUES)
    interpreter.invoke()
    found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    np.testing.assert_array_equal(found, expected()[0])


def test_litert_s_own_interpreter_has_the_ports_of_the_file() -> None:
    delegate = jitdelegate.GpuDelegate(serialization_dir=False, dequantize_outputs=True)
    with pytest.raises(OptionError, match="dequantize_outputs=True, but LiteRT's own interpreter has the inputs"):
        LiteRT(model_content=model(), experimental_delegates=[delegate])


def test_models_without_quantized_ports_stay_as_they_are() -> None:
    for content in (small_models.convolution(), small_models.two_signatures()):
        assert with_float_ports(content, inputs=True, outputs=True) is content


def in_a_loop() -> bytes:
    """i32[], i8[1,6] -> LEAKY_RELU again and again, until the number is 2."""
    build = ModelBuilder()
    started = [build.input((), "int32"), build.input((1, 6), "int8", quant=IN)]
    ended = [build.tensor((), "int32"), build.tensor((1, 6), "int8", quant=IN)]
    build.node("WHILE", started, ended, options={"cond_subgraph_index": 1, "body_subgraph_index": 2})
    build.output(*ended)
    condition, body = build.subgraph(), build.subgraph()
    count, _ = condition.input((), "int32"), condition.input((1, 6), "int8", quant=IN)
    condition.output(condition.op("LESS", [count, condition.constant(np.int32(2))], (), dtype="bool"))
    count, x = body.input((), "int32"), body.input((1, 6), "int8", quant=IN)
    body.output(body.op("ADD", [count, body.constant(np.int32(1))], (), dtype="int32"))
    body.output(body.op("LEAKY_RELU", [x], (1, 6), dtype="int8", quant=IN, options={"alpha": 0.5}))
    build.signature("step", {"count": count, "x": x}, {}, 2)
    return build.finish()


def test_subgraphs_that_operators_run_stay_as_they_are() -> None:
    interpreter = LiteRT(model_content=in_a_loop())
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, np.int32(0))
    interpreter.set_tensor(1, STORED)
    interpreter.invoke()
    stored = interpreter.get_tensor(interpreter.get_output_details()[1]["index"]).astype(np.float32)
    found = jitdelegate.load(in_a_loop(), target="litert", serialization_dir=False, **FLOATS)(np.int32(0), VALUES)
    np.testing.assert_array_equal(found[1], (stored - 3) / 2)
