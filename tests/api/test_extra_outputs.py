"""extra_outputs and preserved tensors: intermediate tensors of compiled models, with LiteRT's numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT
from ai_edge_litert.interpreter import OpResolverType

import jitdelegate
from jitdelegate import CompiledModel, GpuDelegate, TensorBuffer
from jitdelegate.errors import ModelError, OptionError
from jitdelegate.tflite.write import ModelBuilder
from tests.api import small_models
from tests.gpu.stub.install import install_simulated_gpu
from tests.tflite.example_models import sparse_matrix

X = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
KINDS = {np.dtype("float32"): (-1, 1), np.dtype("int8"): (-128, 127), np.dtype("uint8"): (0, 255)}


def chain() -> bytes:
    """x -> hidden = x + 1 -> RELU bent -> y = bent * 2, which one kernel computes; with a signature."""
    model = ModelBuilder()
    x = model.input((3, 4), name="x")
    hidden = model.op("ADD", [x, model.constant(np.float32(1), name="one")], (3, 4), name="hidden")
    bent = model.op("RELU", [hidden], (3, 4), name="bent")
    y = model.op("MUL", [bent, model.constant(np.float32(2), name="two")], (3, 4), name="y")
    model.output(y)
    model.signature("serve", {"value": x}, {"hidden": y})
    return model.finish()


HIDDEN, BENT = X + 1, np.maximum(X + 1, 0)


@pytest.fixture
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A target's name; "cuda" puts a GPU of simulated kernels into this machine."""
    if request.param == "cuda":
        install_simulated_gpu(monkeypatch)
    return str(request.param)


@pytest.mark.parametrize("target", ["cpu", "cuda", "litert", "reference"], indirect=True)
def test_named_tensors_follow_the_model_s_outputs(target: str, tmp_path: Path) -> None:
    for hit in (False, True):
        model = jitdelegate.load(chain(), target=target, extra_outputs=["bent", 2, "y"], serialization_dir=tmp_path)
        assert model.report().target == target and model.report().cache.hit == hit
        assert [output.name for output in model.outputs] == ["y", "bent", "hidden"]
        assert model.report().notes == ()
        for output, expected in zip(model(X), (BENT * 2, BENT, HIDDEN), strict=True):
            np.testing.assert_array_equal(output, expected)
        assert [*model.run({"value": X}, signature="serve")] == ["bent", "hidden", "hidden:2"]
    plain = jitdelegate.load(chain(), target=target, serialization_dir=tmp_path)
    assert not plain.report().cache.hit
    np.testing.assert_array_equal(plain(X), BENT * 2)


def test_inputs_and_constants_may_be_outputs() -> None:
    for target in ("cpu", "litert"):
        _, given, one = jitdelegate.load(chain(), target=target, extra_outputs=("x", "one"))(X)
        np.testing.assert_array_equal(given, X)
        np.testing.assert_array_equal(one, np.float32(1))


def test_a_signature_of_another_subgraph_has_its_own_tensors() -> None:
    content = small_models.two_signatures()
    model = jitdelegate.load(content, extra_outputs="triple value")
    value = np.ones((2, 2), np.float32)
    assert [*model.run({"x": value}, signature="double")] == ["y"]
    assert [*model.run({"x": value}, signature="triple")] == ["triple value", "y"]


def test_an_interpreter_and_a_compiled_model_have_them() -> None:
    interpreter = jitdelegate.Interpreter(model_content=chain(), extra_outputs=["bent"])
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, X)
    interpreter.invoke()
    bent = interpreter.get_output_details()[1]
    assert (bent["name"], interpreter.report().target) == ("bent", "cpu")
    np.testing.assert_array_equal(interpreter.get_tensor(bent["index"]), BENT)
    np.testing.assert_array_equal(interpreter.get_signature_runner()(value=X)["bent"], BENT)
    with pytest.raises(ValueError, match=r"neither an input nor an output.*extra_outputs=\[2\]"):
        interpreter.get_tensor(2)
    for model in (
        CompiledModel.from_buffer(chain(), extra_outputs=["bent"]),
        CompiledModel.create(chain(), extra_outputs=["bent"]),
    ):
        assert model.get_signature_list() == {"serve": {"inputs": ["value"], "outputs": ["hidden", "bent"]}}
        outputs = model.run({"value": TensorBuffer.create_from_host_memory(X)})
        np.testing.assert_array_equal(outputs["bent"].view(), BENT)


QUANTIZED = {
    **{dtype: small_models.integers_and_floats(dtype, open_batch=False) for dtype in ("int8", "uint8")},
    "halves": small_models.halves(),
    "partly on LiteRT": small_models.uncompiled(),
    "chain": chain(),
}


def preserved(kind: Any, content: bytes, **arguments: Any) -> Any:
    """An interpreter after a run on random inputs."""
    interpreter = kind(model_content=content, **arguments)
    interpreter.allocate_tensors()
    dice = np.random.default_rng(0)
    for detail in interpreter.get_input_details():
        low, high = KINDS[np.dtype(detail["dtype"])]
        interpreter.set_tensor(detail["index"], dice.uniform(low, high, detail["shape"]).astype(detail["dtype"]))
    interpreter.invoke()
    return interpreter


@pytest.mark.parametrize("target", ["cpu", "cuda"], indirect=True)
@pytest.mark.parametrize("content", QUANTIZED.values(), ids=QUANTIZED)
def test_a_model_that_preserves_all_tensors_is_compiled_and_has_litert_s_numbers(content: bytes, target: str) -> None:
    delegates = [GpuDelegate(target=target)]
    ours = preserved(
        jitdelegate.Interpreter, content, experimental_preserve_all_tensors=True, experimental_delegates=delegates
    )
    kernels = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES  # XNNPACK does not write all tensors
    usual = preserved(LiteRT, content, experimental_preserve_all_tensors=True, experimental_op_resolver_type=kernels)
    plain = preserved(jitdelegate.Interpreter, content, experimental_delegates=delegates)
    assert ours.report().target == plain.report().target
    outputs, expected = ([detail["index"] for detail in one.get_output_details()] for one in (ours, usual))
    assert outputs == expected
    assert ours.get_signature_list() == usual.get_signature_list()
    compared = 0
    for detail in LiteRT(model_content=content).get_tensor_details():  # once allocated, it adds its own
        index, tolerance = detail["index"], 1e-5 if detail["dtype"] is np.float32 else 0
        np.testing.assert_allclose(ours.get_tensor(index), usual.get_tensor(index), atol=tolerance, rtol=tolerance)
        compared += 1
    assert compared > 1


def test_nothing_is_copied_to_preserve_a_tensor() -> None:
    interpreter = preserved(
        jitdelegate.Interpreter,
        chain(),
        experimental_preserve_all_tensors=True,
        experimental_delegates=[GpuDelegate(target="cpu", profile=True)],
    )
    assert len(interpreter.report().kernel_times) == 3  # ADD, RELU and MUL, each into the memory that is read


def test_constants_that_a_model_unpacks_are_no_outputs_but_have_values() -> None:
    model = jitdelegate.load(small_models.halves(), extra_outputs=True)
    assert [output.name for output in model.outputs] == ["t6", "t5"]  # not those of DEQUANTIZE
    interpreter = jitdelegate.Interpreter(model_content=small_models.halves())
    interpreter.allocate_tensors()
    np.testing.assert_array_equal(interpreter.get_tensor(3), interpreter.get_tensor(1).astype(np.float32))


def test_a_sparse_constant_of_float16_is_unpacked_in_two_steps() -> None:
    values, rows = sparse_matrix()
    model = ModelBuilder()
    x = model.input((1, 4), name="x")
    stored = model.constant(values.astype(np.float16), shape=(2, 4), sparsity=rows)
    dense = model.op("DENSIFY", [stored], (2, 4), dtype="float16")
    wide = model.op("DEQUANTIZE", [dense], (2, 4))
    model.output(model.op("FULLY_CONNECTED", [x, wide, None], (1, 2), name="y"))
    content = model.finish()
    assert [output.name for output in jitdelegate.load(content, extra_outputs=True).outputs] == ["y"]
    interpreter = jitdelegate.Interpreter(model_content=content)
    interpreter.allocate_tensors()
    for index in (dense, wide):
        np.testing.assert_array_equal(interpreter.get_tensor(index), [[0, 1, 0, 2], [0, 0, 3, 0]])


def dequantize(operands: int, results: int) -> bytes:
    """A model with a DEQUANTIZE of so many operands and results, which its output does not need."""
    model = ModelBuilder()
    data, stored = model.input((3,)), model.constant(np.ones(3, np.float16))
    model.node("DEQUANTIZE", [stored] * operands, [model.tensor((3,)) for _ in range(results)])
    model.output(model.op("NEG", [data], (3,), name="y"))
    return model.finish()


def test_an_unpacking_without_results_has_no_outputs_and_one_without_operands_is_refused() -> None:
    assert [output.name for output in jitdelegate.load(dequantize(1, 0), extra_outputs=True).outputs] == ["y"]
    with pytest.raises(ModelError, match="lacks its input 0"):
        jitdelegate.load(dequantize(0, 1), extra_outputs=True)


def test_preserved_tensors_have_the_sizes_of_the_last_resize() -> None:
    content = small_models.integers_and_floats("int8")
    ours = jitdelegate.Interpreter(model_content=content, experimental_preserve_all_tensors=True)
    theirs = LiteRT(model_content=content, experimental_preserve_all_tensors=True)
    value = np.random.default_rng(0).integers(-128, 128, (3, 5, 5, 4)).astype(np.int8)
    for interpreter in (ours, theirs):
        interpreter.resize_tensor_input(0, value.shape)
        interpreter.allocate_tensors()
        interpreter.set_tensor(0, value)
        interpreter.invoke()
    for operator in ours._get_ops_details():
        index = operator["outputs"][0]
        np.testing.assert_allclose(ours.get_tensor(index), theirs.get_tensor(index), atol=1e-5)
        assert ours.get_tensor(index).shape[0] == 3


def test_a_runner_of_a_model_that_preserves_all_tensors_has_the_file_s_outputs() -> None:
    interpreter = jitdelegate.Interpreter(model_content=chain(), experimental_preserve_all_tensors=True)
    assert [*interpreter.get_signature_runner()(value=X)] == ["hidden"]
    np.testing.assert_array_equal(interpreter.get_tensor(3), BENT)
    both = jitdelegate.Interpreter(model_content=chain(), extra_outputs="bent", experimental_preserve_all_tensors=True)
    assert [detail["name"] for detail in both.get_output_details()] == ["y", "bent"]
    assert [*both.get_signature_runner()(value=X)] == ["bent", "hidden"]
    assert [*jitdelegate.load(chain(), extra_outputs=True).run({"x": X})] == ["y", "hidden", "bent"]


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("hiden", r"has 'hiden' \(did you mean hidden\?\), expected the name of one of the model's 6 tensors"),
        (["x", "zzzzzz"], r"extra_outputs has 'zzzzzz', expected the name"),
        (99, r"extra_outputs has tensor 99, expected a name, or an index up to 5"),
    ],
)
def test_what_is_no_tensor_is_one_clear_error(wanted: Any, words: str, tmp_path: Path) -> None:
    for act in (
        lambda: jitdelegate.load(chain(), extra_outputs=wanted, serialization_dir=tmp_path),
        lambda: jitdelegate.Interpreter(model_content=chain(), extra_outputs=wanted),
        lambda: CompiledModel.create(chain(), extra_outputs=wanted),
    ):
        with pytest.raises(OptionError, match=words):
            act()


def test_a_tensor_without_a_value_is_refused() -> None:
    model = ModelBuilder()
    model.tensor((3,), "float32", name="idle")
    x = model.input((3,), name="x")
    model.output(model.op("RELU", [x], (3,), name="y"))
    with pytest.raises(OptionError, match="extra_outputs has 'idle', a tensor that no operator writes"):
        jitdelegate.load(model.finish(), extra_outputs="idle")
