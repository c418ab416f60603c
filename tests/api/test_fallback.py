"""LiteRT as the fallback: strings, open shapes, several subgraphs, variables, and models that XNNPACK refuses."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT

import jitdelegate
from jitdelegate.compiler import litert_child
from jitdelegate.errors import DeviceError, JitDelegateError, ModelError, TensorError
from jitdelegate.ir.graph import Quant
from jitdelegate.runtime.string_guard import StringGuard
from jitdelegate.targets.cpu import target as cpu_target
from jitdelegate.tflite.write import ModelBuilder
from tests.api import partial_models as partial
from tests.api import programs, small_models
from tests.child import in_child


def test_strings_go_in_and_out(models: Path) -> None:
    model = jitdelegate.load(models / "fixtures/string_input_model_with_signature.bin.tflite", serialization_dir=False)
    words = np.array([[b"one", b"two", b"three"]])
    answered = model(words)
    assert answered.tolist() == words.tolist()
    assert (model.inputs[0].dtype, model.inputs[0].shape_signature) == ("string", (-1, 3))


def test_strings_may_have_another_count_where_the_model_leaves_it_open(models: Path) -> None:
    model = jitdelegate.load(models / "fixtures/string_input_model_with_signature.bin.tflite", serialization_dir=False)
    assert model([[b"a", b"b", b"c"], [b"d", b"e", b"f"]]).shape == (2, 3)
    with pytest.raises(TensorError, match=r"\[1, 2\].*\[-1, 3\]"):
        model([[b"a", b"b"]])
    assert model([[b"a", b"b", b"c"]]).shape == (1, 3)


def test_a_model_that_xnnpack_refuses_runs_on_the_builtin_kernels(models: Path) -> None:
    path = models / "real/deeplabv3_mnv2_pascal_quant_2.tflite"
    with pytest.raises(RuntimeError, match="XNNPack"):
        LiteRT(str(path)).allocate_tensors()
    model = jitdelegate.load(path, serialization_dir=False)
    assert model(np.zeros(model.inputs[0].shape, np.uint8)).shape == (1, 513, 513)
    interpreter = jitdelegate.Interpreter(path)
    interpreter.allocate_tensors()
    interpreter.invoke()


def test_a_model_that_xnnpack_fails_on_while_running_runs_on_the_builtin_kernels(models: Path) -> None:
    model = jitdelegate.load(models / "fixtures/dynamic_shapes.bin.tflite", serialization_dir=False)
    inputs = [np.zeros(info.shape, info.dtype) for info in model.inputs]
    for _ in range(2):
        model(*inputs)


def test_custom_operators_that_only_xnnpack_has_run(models: Path) -> None:
    model = jitdelegate.load(models / "real/selfie_segmentation.tflite", target="litert", serialization_dir=False)
    assert model(np.zeros(model.inputs[0].shape, np.float32)).shape == model.outputs[0].shape


def test_litert_gets_those_arguments_only_that_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Older versions lack some of the others."""
    given: list[dict[str, Any]] = []
    make = StringGuard.__init__
    monkeypatch.setattr(StringGuard, "__init__", lambda self, **given_: (given.append(given_), make(self, **given_))[1])
    flags = ("experimental_disable_delegate_clustering", "experimental_disable_delegate_node_fusion")
    for names in ((), flags):
        jitdelegate.Interpreter(
            model_content=partial.alternating(),
            experimental_delegates=[jitdelegate.GpuDelegate(target="litert")],
            **dict.fromkeys(names, True),
        )
        assert {name for name in given.pop() if name.startswith("experimental")} == {*names}


def test_signatures_of_several_subgraphs_run_as_in_litert(models: Path) -> None:
    path = str(models / "fixtures/multi_signatures.bin.tflite")
    ours, theirs = jitdelegate.Interpreter(path), LiteRT(path)
    assert ours.get_signature_list() == theirs.get_signature_list()
    assert ours.num_subgraphs() == 2
    for key in ("add", "sub"):
        value = np.array([5, 7], np.float32)
        found = ours.get_signature_runner(key)(x=value)["output_0"]
        np.testing.assert_array_equal(found, theirs.get_signature_runner(key)(x=value)["output_0"])


def test_variables_keep_their_value_and_are_reset_as_in_litert(models: Path) -> None:
    path = str(models / "real/hey_jarvis.tflite")
    random = np.random.default_rng(0)
    pair = jitdelegate.Interpreter(path), LiteRT(path)
    for interpreter in pair:
        interpreter.allocate_tensors()
    index = pair[1].get_output_details()[0]["index"]
    for turn in range(6):
        value = random.integers(-128, 128, (1, 3, 40), np.int8)
        for interpreter in pair:
            if turn == 3:
                interpreter.reset_all_variables()
            interpreter.set_tensor(interpreter.get_input_details()[0]["index"], value)
            interpreter.invoke()
        np.testing.assert_array_equal(pair[0].get_tensor(index), pair[1].get_tensor(index))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fixtures/custom_sinh.bin.tflite", "Sinh"),
        ("fixtures/double_flex.bin.tflite", "Select TensorFlow op"),
        ("fixtures/segment_sum_invalid_buffer.bin.tflite", "before it is written"),
        ("fixtures/0_subgraphs.bin.tflite", "no subgraph"),
        ("real/person_detect.tflite", "quantized"),
    ],
)
def test_what_cannot_run_ends_in_one_clear_error(models: Path, name: str, words: str) -> None:
    with pytest.raises(JitDelegateError, match=words):
        jitdelegate.load(models / name, serialization_dir=False)


def test_what_fails_while_running_carries_litert_s_message(models: Path) -> None:
    model = jitdelegate.load(models / "fixtures/tensor_string_data_type.bin.tflite", serialization_dir=False)
    with pytest.raises(DeviceError, match="STRING is unsupported"):
        model(*(np.full(info.shape, b"word") for info in model.inputs))


@pytest.mark.parametrize("name", ["real/keyword_scrambled_8bit", "fixtures/while_op_with_forwarding_input.bin"])
def test_no_model_kills_the_process(models: Path, name: str) -> None:
    assert in_child(programs.run_on_words_or_ones, models / f"{name}.tflite").returncode == 0


def test_a_model_whose_inputs_litert_cannot_describe_is_refused() -> None:
    builder = ModelBuilder()
    x, y = builder.input((2,), "bfloat16"), builder.tensor((2,), "bfloat16")
    builder.node("ABS", [x], [y])
    builder.output(y)
    with pytest.raises(JitDelegateError):  # which one depends on whether someone has told numpy of bfloat16
        jitdelegate.load(builder.finish(), target="cpu", serialization_dir=False)


@pytest.mark.parametrize(("op", "operands"), [("ABS", [None]), ("MUL", [None, 0]), ("SLICE", [])])
def test_a_node_that_lacks_an_input_is_refused_before_xnnpack_looks_at_it(op: str, operands: list[int | None]) -> None:
    builder = ModelBuilder()
    builder.input((4,))
    made = builder.tensor((4,))
    builder.node(op, operands, [made])
    builder.output(made)
    with pytest.raises(ModelError, match=rf"operator 0 \({op}\) lacks its input 0"):
        jitdelegate.load(builder.finish(), target="cpu", serialization_dir=False)


def test_a_split_into_more_parts_than_outputs_is_refused_before_xnnpack_looks_for_them() -> None:
    builder = ModelBuilder()
    operands = [builder.constant(np.array(0, np.int32)), builder.input((6,))]
    made = [builder.tensor((2,)), builder.tensor((2,))]
    builder.node("SPLIT", operands, made, options={"num_splits": 3})
    builder.output(*made)
    with pytest.raises(ModelError, match=r"operator 0 \(SPLIT\) has 2 outputs for 3 parts"):
        jitdelegate.load(builder.finish(), target="cpu", serialization_dir=False)


def test_our_interpreter_in_the_place_of_litert_s_still_finds_litert(monkeypatch: pytest.MonkeyPatch) -> None:
    content = partial.alternating()
    rounds = partial.rounds_for(content)
    wanted = partial.expected(content, rounds)
    monkeypatch.setattr("ai_edge_litert.interpreter.Interpreter", jitdelegate.Interpreter)
    for loader in (None, "nowhere"):
        if loader is not None:
            monkeypatch.setattr(cpu_target, "IN_LITERT", loader)
        for options in ({}, {"only_ops": None}, {"target": "litert"}):
            partial.assert_same(partial.by_interpreter(content, rounds, **options), wanted)
            partial.assert_same(partial.by_load(content, rounds, **options), wanted)


def added(scale: float | None, others: float = 0.5) -> bytes:
    """i8 + i8, where LiteRT divides scales by each other."""
    model = ModelBuilder()
    quants = [None if each is None else Quant((each,), (0,)) for each in (scale, others, others)]
    a, b = (model.input((1, 4), "int8", quant=quant) for quant in quants[:2])
    model.output(model.op("ADD", [a, b], (1, 4), dtype="int8", quant=quants[2]))
    return model.finish()


@pytest.mark.parametrize("scale", [None, 0.0, -0.0, float("nan"), float("inf"), 1e-45, 1e38])
def test_scales_that_litert_ends_the_process_at_are_refused(scale: float | None, tmp_path: Path) -> None:
    """In children, where LiteRT is asked alone first: a model that it prepares is never refused."""
    (tmp_path / "model").write_bytes(added(scale))
    alone, ours = (in_child(run, tmp_path / "model") for run in (allocated_by_litert, refusals))
    assert ours.returncode >= 0
    if alone.returncode < 0:
        for target, refusal in zip(TARGETS, ours.stdout.splitlines(), strict=True):
            assert refusal.startswith(f"{target}: operator 0 (ADD) has a tensor of int8 with ")
            assert f"LiteRT would end the process by signal {-alone.returncode}" in refusal
    elif alone.returncode == 0:
        assert ours.stdout == ""


TARGETS = ("auto", "litert")


def allocated_by_litert(path: str) -> None:
    LiteRT(path).allocate_tensors()


def refusals(path: str) -> None:
    """Prints what each target says of a model that it refuses."""
    for target in TARGETS:
        try:
            jitdelegate.load(path, target=target, serialization_dir=False)
        except jitdelegate.ModelError as error:
            sys.stdout.write(f"{target}: {error}\n")


def test_models_with_ordinary_scales_are_not_tried_in_a_child() -> None:
    before = litert_child.children
    for content in (added(0.25), small_models.convolution(), small_models.flattened(), partial.alternating()):
        jitdelegate.load(content, serialization_dir=False).close()
    assert litert_child.children == before
