"""Interpreter against LiteRT's own: the same dictionaries, the same answers, the same errors."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT
from ai_edge_litert.interpreter import OpResolverType

import jitdelegate
from jitdelegate.engine.compiled_interpreter import describe
from jitdelegate.tflite.write import ModelBuilder
from tests.api import small_models
from tests.conftest import models_dir

IMAGE = np.random.default_rng(1).uniform(-1, 1, (1, 8, 8, 3)).astype(np.float32)
MODELS = {
    "compiled": small_models.convolution(signature=True),
    "open sizes": small_models.convolution(signature=True, open_batch=True),
    "two outputs": small_models.two_outputs(),
    "integers": small_models.integers(),
    "uncompiled": small_models.uncompiled(),
    "quantized": small_models.quantized(),
}
Both = tuple[Any, Any]


def both(content: bytes) -> Both:
    """Ours and LiteRT's, allocated."""
    pair = jitdelegate.Interpreter(model_content=content), LiteRT(model_content=content)
    for interpreter in pair:
        interpreter.allocate_tensors()
    return pair


def same(found: Any, expected: Any) -> bool:
    """Equality of LiteRT's dictionaries, arrays by value and type."""
    if isinstance(expected, dict):
        return list(found) == list(expected) and all(same(found[key], expected[key]) for key in expected)
    if isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, np.ndarray):
        return bool(found.dtype == expected.dtype and np.array_equal(found, expected))
    return bool(type(found) is type(expected) and found == expected)


def assert_same_details(ours: Any, theirs: Any) -> None:
    for name in ("get_input_details", "get_output_details", "get_tensor_details", "get_signature_list"):
        found, expected = getattr(ours, name)(), getattr(theirs, name)()
        assert same(found, expected), f"{name}: {found} is not {expected}"
    assert ours.num_subgraphs() == theirs.num_subgraphs()
    for key in theirs.get_signature_list():
        mine, other = ours.get_signature_runner(key), theirs.get_signature_runner(key)
        assert same(mine.get_input_details(), other.get_input_details())
        assert same(mine.get_output_details(), other.get_output_details())


@pytest.mark.parametrize("content", MODELS.values(), ids=MODELS)
def test_details_equal_litert_s_before_and_after_allocation(content: bytes) -> None:
    ours, theirs = jitdelegate.Interpreter(model_content=content), LiteRT(model_content=content)
    assert_same_details(ours, theirs)
    ours.allocate_tensors()
    theirs.allocate_tensors()
    assert_same_details(ours, theirs)
    assert same(ours._get_ops_details(), theirs._get_ops_details())


def test_a_run_equals_litert_s() -> None:
    ours, theirs = both(small_models.convolution())
    assert ours.report().target == "cpu"
    answers = []
    for interpreter in (ours, theirs):
        interpreter.set_tensor(0, IMAGE)
        interpreter.invoke()
        answers.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))
    np.testing.assert_allclose(*answers, atol=1e-5)


def test_set_and_get_copy_while_tensor_shares() -> None:
    interpreter = jitdelegate.Interpreter(model_content=small_models.convolution())
    interpreter.allocate_tensors()
    value = IMAGE.copy()
    interpreter.set_tensor(0, value)
    value[:] = 0
    copy = interpreter.get_tensor(0)
    np.testing.assert_array_equal(copy, IMAGE)
    interpreter.tensor(0)()[:] = 7
    assert (interpreter.get_tensor(0) == 7).all()
    np.testing.assert_array_equal(copy, IMAGE)


def test_after_a_resize_the_new_shape_alone_is_taken() -> None:
    interpreter = jitdelegate.Interpreter(model_content=small_models.convolution(open_batch=True))
    output = interpreter.get_output_details()[0]["index"]
    for batch in (1, 3, 1):
        interpreter.resize_tensor_input(0, [batch, 8, 8, 3])
        interpreter.allocate_tensors()
        for other in ({1, 3} - {batch}, {1, 3} - {batch}):
            with pytest.raises(ValueError, match="Dimension mismatch"):
                interpreter.set_tensor(0, np.repeat(IMAGE, *other, axis=0))
            interpreter.set_tensor(0, np.repeat(IMAGE, batch, axis=0))
            interpreter.invoke()
            assert interpreter.get_tensor(output).shape == (batch, 4, 4, 4)
            assert interpreter.get_tensor(output).any()


def test_a_view_sees_the_next_run() -> None:
    interpreter = jitdelegate.Interpreter(model_content=small_models.convolution())
    interpreter.allocate_tensors()
    index = interpreter.get_output_details()[0]["index"]
    view = interpreter.tensor(index)
    interpreter.tensor(0)()[:] = IMAGE
    interpreter.invoke()
    np.testing.assert_array_equal(view(), interpreter.get_tensor(index))
    assert view().any()


def test_a_view_that_nobody_holds_any_more_forbids_nothing() -> None:
    for interpreter in both(small_models.convolution(open_batch=True)):
        view = interpreter.tensor(0)()
        interpreter.set_tensor(0, IMAGE)
        with pytest.raises(RuntimeError, match="at least 1 reference to internal data"):
            interpreter.invoke()
        np.testing.assert_array_equal(view, IMAGE)
        del view
        interpreter.invoke()
        interpreter.resize_tensor_input(0, [2, 8, 8, 3])
        interpreter.allocate_tensors()
        assert interpreter.tensor(0)().shape == (2, 8, 8, 3)


def test_a_signature_runs_while_a_view_is_held_but_moves_no_memory() -> None:
    interpreter = jitdelegate.Interpreter(model_content=small_models.convolution(signature=True, open_batch=True))
    runner = interpreter.get_signature_runner()
    interpreter.allocate_tensors()
    name, held = *runner.get_input_details(), interpreter.tensor(0)()
    runner(**{name: IMAGE})
    np.testing.assert_array_equal(held, IMAGE)
    with pytest.raises(RuntimeError, match="at least 1 reference"):
        runner(**{name: np.repeat(IMAGE, 2, axis=0)})


@pytest.mark.parametrize("content", [b"short", b"wrong_identifier", bytes(99), small_models.convolution()[:200]])
def test_bytes_that_are_no_model_are_told_in_litert_s_words(content: bytes) -> None:
    for kind in (jitdelegate.Interpreter, LiteRT):
        with pytest.raises(ValueError, match="The model is not a valid Flatbuffer buffer"):
            kind(model_content=content)


def test_a_missing_file_is_told_in_litert_s_words() -> None:
    for kind in (jitdelegate.Interpreter, LiteRT):
        with pytest.raises(ValueError, match="Could not open 'totally_invalid_file_name'"):
            kind("totally_invalid_file_name")


def test_constants_can_be_read() -> None:
    ours, theirs = both(small_models.convolution())
    np.testing.assert_array_equal(ours.get_tensor(1), theirs.get_tensor(1))


def misuse(act: Callable[[Any], Any], ready: bool = True) -> tuple[Exception, Exception]:
    """What ours and LiteRT's raise for the same wrong call."""
    errors: list[Exception] = []
    for interpreter in (
        jitdelegate.Interpreter(model_content=small_models.convolution()),
        LiteRT(model_content=small_models.convolution()),
    ):
        if ready:
            interpreter.allocate_tensors()
            interpreter.set_tensor(0, IMAGE)  # later calls take another way
            interpreter.get_tensor(0)
        try:
            act(interpreter)
        except Exception as error:  # noqa: BLE001
            errors.append(error)
    assert len(errors) == 2, f"only {len(errors)} of 2 refused: {errors}"
    return errors[0], errors[1]


MOVING: dict[str, Callable[[Any], Any]] = {
    "invoke": lambda it: it.invoke(),
    "allocate": lambda it: it.allocate_tensors(),
    "resize": lambda it: it.resize_tensor_input(0, [1, 8, 8, 3]),
}


def holding(interpreter: Any, act: Callable[[Any], Any], index: int) -> None:
    """Act while a slice of a tensor's memory is held."""
    held = interpreter.tensor(index)().reshape(-1)[1:]
    assert not interpreter._safe_to_run()
    interpreter.set_tensor(0, IMAGE)  # which moves no memory
    act(interpreter)
    del held


WRONG = {
    "invoke too early": (lambda it: it.invoke(), False),
    "set too early": (lambda it: it.set_tensor(0, IMAGE), False),
    "get too early": (lambda it: it.get_tensor(0), False),
    "view too early": (lambda it: it.tensor(0)(), False),
    "other type": (lambda it: it.set_tensor(0, IMAGE.astype(np.float64)), True),
    "other size": (lambda it: it.set_tensor(0, IMAGE[:, :7]), True),
    "other rank": (lambda it: it.set_tensor(0, IMAGE[0]), True),
    "no such tensor": (lambda it: it.get_tensor(99), True),
    "no such signature": (lambda it: it.get_signature_runner("serve"), True),
    "no signature at all": (lambda it: it.get_signature_runner(), True),
    "no such subgraph": (lambda it: it.get_tensor_details(7), True),
    "no whole number to get": (lambda it: it.get_tensor(0.0), True),
    "a text to set": (lambda it: it.set_tensor("0", IMAGE), True),
    "no whole number to view": (lambda it: it.tensor(0.0)(), True),
    "a text to resize": (lambda it: it.resize_tensor_input("0", [1, 8, 8, 3]), True),
    "negative tensor to resize": (lambda it: it.resize_tensor_input(-1, [1, 8, 8, 3]), True),
    "nested sizes": (lambda it: it.resize_tensor_input(0, [[1, 8, 8, 3]]), True),
    "one size alone": (lambda it: it.resize_tensor_input(0, 5), True),
    "more elements than can be counted": (lambda it: it.resize_tensor_input(0, [2147483647] * 4), True),
    "negative size": (lambda it: it.resize_tensor_input(0, [-1, 8, 8, 3]), True),
    "no such operator": (lambda it: it._get_op_details(9), True),
    "a negative operator": (lambda it: it._get_op_details(-1), True),
    "a text as operator": (lambda it: it._get_op_details("0"), True),
    **{f"{name} with a view": (lambda it, act=act: holding(it, act, 0), True) for name, act in MOVING.items()},
    "a slice of an output": (lambda it: holding(it, MOVING["invoke"], it.get_output_details()[0]["index"]), True),
}


@pytest.mark.parametrize(("act", "ready"), WRONG.values(), ids=WRONG)
def test_misuse_raises_litert_s_error(act: Callable[[Any], Any], ready: bool) -> None:
    ours, theirs = misuse(act, ready)
    base = next(base for base in (RuntimeError, TypeError, ValueError) if isinstance(theirs, base))
    assert isinstance(ours, base)
    if base is TypeError:  # whose words are the binding's
        return
    words, expected = (" ".join(str(error).split()).split(".")[0].split(":")[0] for error in (ours, theirs))
    assert words == expected


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"model_path": "a", "model_content": b"b"},
        {"model_path": "/nowhere/model.tflite"},
        {"model_path": b"/nowhere/model.tflite"},
        {"model_path": small_models.convolution()},
        {"model_content": b"nonsense" * 20},
        {"model_content": small_models.convolution(), "num_threads": 0},
        {"model_content": small_models.convolution(), "num_threads": "2"},
        {"model_content": small_models.convolution(), "experimental_op_resolver_type": 7},
    ],
)
def test_wrong_arguments_raise_value_errors_as_litert_s(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        LiteRT(**arguments)
    with pytest.raises(ValueError, match=r".+"):
        jitdelegate.Interpreter(**arguments)


def test_a_resize_that_fails_leaves_the_compiled_program() -> None:
    interpreter = jitdelegate.Interpreter(model_content=small_models.convolution())
    for index, shape in ((-1, [1, 8, 8, 3]), (0, [2, 8, 8, 3]), (0, [-1, 8, 8, 3])):
        with pytest.raises((RuntimeError, ValueError)):
            interpreter.resize_tensor_input(index, shape, strict=True)
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, IMAGE)
    interpreter.invoke()
    assert interpreter.report().target == "cpu"


def test_a_path_is_no_content_and_may_be_bytes(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(small_models.convolution())
    assert jitdelegate.Interpreter(model_path=os.fsencode(path)).report().target == "cpu"
    with pytest.raises(ValueError, match="goes into model_path"):
        jitdelegate.Interpreter(model_content=str(path))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        jitdelegate.Interpreter(model_path=5)  # type: ignore[arg-type]


def test_a_number_of_any_type_is_an_index() -> None:
    interpreter = jitdelegate.Interpreter(model_content=small_models.convolution())
    interpreter.allocate_tensors()
    interpreter.set_tensor(np.int64(0), IMAGE)
    np.testing.assert_array_equal(interpreter.get_tensor(np.uint8(0)), IMAGE)


def test_another_byte_order_is_refused_by_name() -> None:
    interpreter = jitdelegate.Interpreter(model_content=small_models.convolution())
    interpreter.allocate_tensors()
    with pytest.raises(ValueError, match="Got value of type >f4 but expected type FLOAT32"):
        interpreter.set_tensor(0, IMAGE.astype(">f4"))


def test_the_same_shape_stays_compiled() -> None:
    interpreter = jitdelegate.Interpreter(model_content=small_models.convolution())
    interpreter.resize_tensor_input(0, [1, 8, 8, 3])
    assert interpreter.report().target == "cpu"


def test_a_fixed_size_is_not_resized_where_that_is_strict() -> None:
    ours, theirs = both(small_models.convolution(open_batch=True))
    for interpreter in (ours, theirs):
        with pytest.raises(RuntimeError, match=r"strict|unknown|ResizeInputTensorStrict"):
            interpreter.resize_tensor_input(0, [1, 9, 8, 3], strict=True)


@pytest.mark.parametrize("batch", [1, 3])
def test_a_signature_runs_by_name(batch: int) -> None:
    content = small_models.convolution(signature=True, open_batch=True)
    picture = np.repeat(IMAGE, batch, axis=0)
    ours = jitdelegate.Interpreter(model_content=content).get_signature_runner("serve")(picture=picture)
    theirs = LiteRT(model_content=content).get_signature_runner("serve")(picture=picture)
    assert list(ours) == ["found"]
    np.testing.assert_allclose(ours["found"], theirs["found"], atol=1e-5)


def test_a_signature_is_compiled_for_every_shape() -> None:
    interpreter = jitdelegate.Interpreter(model_content=small_models.convolution(signature=True, open_batch=True))
    runner = interpreter.get_signature_runner()
    for batch in (1, 2, 1):
        assert runner(picture=np.repeat(IMAGE, batch, axis=0))["found"].shape == (batch, 4, 4, 4)
        assert interpreter.report().target == "cpu"


def test_where_a_shape_cannot_be_compiled_any_more_the_program_stays(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(small_models.convolution(signature=True, open_batch=True))
    delegate = jitdelegate.GpuDelegate(serialization_dir=tmp_path / "cache")
    interpreter = jitdelegate.Interpreter(path, experimental_delegates=[delegate])
    runner = interpreter.get_signature_runner()
    path.unlink()
    with pytest.raises(jitdelegate.ModelError, match="No such file"):
        runner(picture=np.repeat(IMAGE, 2, axis=0))
    assert interpreter.report().target == "cpu"
    assert runner(picture=IMAGE)["found"].shape == (1, 4, 4, 4)


def test_wrong_arguments_of_a_signature_are_refused() -> None:
    interpreter = jitdelegate.Interpreter(model_content=small_models.convolution(signature=True))
    runner = interpreter.get_signature_runner("serve")
    with pytest.raises(ValueError, match="expected 1 vs provided 0"):
        runner()
    with pytest.raises(ValueError, match=r"Invalid Input name \(image\)"):
        runner(image=IMAGE)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"experimental_op_resolver_type": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES}, "BUILTIN_WITHOUT"),
        ({"experimental_op_resolver_type": OpResolverType.BUILTIN_REF}, "BUILTIN_REF"),
    ],
)
@pytest.mark.filterwarnings("ignore:Warning. Enabling")
def test_what_only_litert_can_do_is_left_to_it(arguments: dict[str, Any], words: str) -> None:
    interpreter = jitdelegate.Interpreter(model_content=small_models.convolution(), **arguments)
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, IMAGE)
    interpreter.invoke()
    report = interpreter.report()
    assert report.target == "litert"
    assert any(words in note for note in report.notes)


def test_the_number_of_threads_is_the_delegate_s_or_else_the_argument() -> None:
    content = small_models.convolution()
    assert jitdelegate.Interpreter(model_content=content, num_threads=3).report().threads == 3
    assert jitdelegate.Interpreter(model_content=content, num_threads=100).report().threads == 64
    delegate = jitdelegate.GpuDelegate(num_threads=2)
    interpreter = jitdelegate.Interpreter(model_content=content, num_threads=3, experimental_delegates=[delegate])
    assert interpreter.report().threads == 2


def test_foreign_delegates_are_passed_to_litert() -> None:
    class Foreign:
        asked = False

        def _get_native_delegate_pointer(self) -> int:
            self.asked = True
            raise ValueError("seen")

    foreign = Foreign()
    with pytest.raises(ValueError, match="seen"):
        jitdelegate.Interpreter(model_content=small_models.convolution(), experimental_delegates=[foreign])
    assert foreign.asked


def test_variables_are_reset_as_in_litert() -> None:
    for interpreter in both(small_models.convolution()):
        interpreter.reset_all_variables()


def test_the_resolver_type_is_litert_s() -> None:
    assert jitdelegate.OpResolverType is OpResolverType


def _real() -> list[Any]:
    try:
        folder = models_dir()
    except pytest.skip.Exception as reason:
        return [pytest.param("", marks=pytest.mark.skip(str(reason)))]
    return sorted(f"{path.parent.name}/{path.name}" for path in folder.glob("[rf]*/*.tflite"))


@pytest.mark.parametrize("name", _real())
def test_details_of_real_models_equal_litert_s(models: Path, name: str, tmp_path: Path) -> None:
    content = (models / name).read_bytes()
    try:
        theirs = LiteRT(model_content=content)
    except ValueError as error:
        with pytest.raises(ValueError, match=r".+"):
            jitdelegate.Interpreter(model_content=content)
        pytest.skip(f"LiteRT refuses it, and so does jitdelegate: {error}")
    delegate = jitdelegate.GpuDelegate(target="litert", serialization_dir=tmp_path)
    try:
        ours = jitdelegate.Interpreter(model_content=content, experimental_delegates=[delegate])
    except jitdelegate.ModelError as error:
        pytest.skip(f"jitdelegate refuses it: {error}")
    ports = (*ours._opened.program.inputs, *ours._opened.program.outputs)
    expected = [*theirs.get_input_details(), *theirs.get_output_details()]
    if any(port.dtype == "string" for port in ports) or any(detail["sparsity_parameters"] for detail in expected):
        pytest.skip("strings and sparse inputs are never part of a compiled program")
    assert same([describe(port) for port in ports], expected)


def test_a_tensor_of_rank_0_is_a_scalar_as_litert_s() -> None:
    model = ModelBuilder()
    x = model.input((2,), name="x")
    total = model.op("SUM", [x, model.constant(np.zeros(1, np.int32))], (), name="total")
    model.output(total)
    model.signature("main", {"x": x}, {"total": total})
    values = {}
    for interpreter in both(model.finish()):
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], np.array([1, 2], np.float32))
        interpreter.invoke()
        read = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
        (ran,) = interpreter.get_signature_runner()(x=np.array([3, 4], np.float32)).values()
        values[type(interpreter)] = [(type(each), float(each)) for each in (read, ran)]
    assert values[jitdelegate.Interpreter] == values[LiteRT] == [(np.float32, 3), (np.float32, 7)]


def test_strings_that_are_not_there_are_told_where_litert_ends_the_process(models: Path) -> None:
    path = models / "fixtures/string_input_model_with_signature.bin.tflite"
    interpreter = jitdelegate.Interpreter(str(path))
    (given,), (result,) = interpreter.get_input_details(), interpreter.get_output_details()
    words = np.array([[b"one", b"two", b"three"]])
    for prepare in (lambda: None, interpreter.allocate_tensors):
        prepare()
        for detail in (given, result):
            with pytest.raises(ValueError, match="holds strings, which have no value before a run"):
                interpreter.get_tensor(detail["index"])
    interpreter.set_tensor(given["index"], words)
    assert interpreter.get_tensor(given["index"]).tolist() == words.tolist()
    interpreter.invoke()
    assert interpreter.get_tensor(result["index"]).tolist() == words.tolist()
    with pytest.raises(ValueError, match="holds strings, which have no view"):
        interpreter.tensor(result["index"])()
    other = jitdelegate.Interpreter(str(path))
    other.get_signature_runner()(**dict.fromkeys(other.get_signature_runner().get_input_details(), words))
    assert other.get_tensor(result["index"]).tolist() == words.tolist()
