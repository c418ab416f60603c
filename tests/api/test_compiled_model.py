"""CompiledModel against LiteRT's own, call by call: the same dictionaries, results, and classes of errors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import compiled_model as litert

from jitdelegate import CompiledModel, Event, TensorBuffer
from jitdelegate.api.buffer_runs import MOST_BINDINGS
from jitdelegate.errors import ClosedError
from jitdelegate.tflite.write import ModelBuilder
from tests.api import partial_models, small_models

KEY = "<placeholder signature>"


def reordered() -> bytes:
    """RELU of f32[1,2] and of f32[1,3]; the signature's names are not in the order of the tensors."""
    model = ModelBuilder()
    left, right = model.input((1, 2), name="left"), model.input((1, 3), name="right")
    results = [model.op("RELU", [left], (1, 2)), model.op("RELU", [right], (1, 3))]
    model.output(*results)
    model.signature("serve", {"z": left, "b": right}, {"zo": results[0], "ao": results[1]})
    return model.finish()


MODELS: dict[str, Callable[[], bytes]] = {
    "unsigned": small_models.convolution,
    "signed": lambda: small_models.convolution(signature=True),
    "two signatures": small_models.two_signatures,
    "two outputs": small_models.two_outputs,
    "float16": lambda: small_models.two_outputs("float16"),
    "on LiteRT": small_models.uncompiled,
    "integers": small_models.integers,
    "reordered": reordered,
    "int8": lambda: small_models.integers_and_floats("int8"),
}


@pytest.fixture(params=MODELS)
def both(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """LiteRT's CompiledModel and ours, of the same model."""
    content = MODELS[request.param]()
    return litert.CompiledModel.from_buffer(content), CompiledModel.from_buffer(content)


pytestmark = pytest.mark.filterwarnings("ignore::jitdelegate.DelegateWarning")


def test_descriptions_are_litert_s(both: tuple[Any, Any]) -> None:
    def described(model: Any) -> list[Any]:
        signatures = model.get_signature_list()
        found: list[Any] = [signatures, model.get_num_signatures(), model.get_signature_index("nope")]
        for index, (key, names) in enumerate(signatures.items()):
            found += [model.get_signature_by_index(index), model.get_signature_index(key)]
            found += [model.get_input_tensor_details(key), model.get_output_tensor_details(key)]
            found += [model.get_input_buffer_requirements(at, index) for at in range(len(names["inputs"]))]
            found += [model.get_output_buffer_requirements(at, index) for at in range(len(names["outputs"]))]
            found += [each.get_tensor_details() for each in model.create_input_buffers(index)]
            found += [each.get_tensor_details() for each in model.create_output_buffers(index)]
            found += [model.create_input_buffer_by_name(key, name).get_tensor_details() for name in names["inputs"]]
            found += [model.create_output_buffer_by_name(key, name).get_tensor_details() for name in names["outputs"]]
        return found

    theirs, ours = map(described, both)
    assert ours == theirs


def fill(buffers: list[Any], seed: int = 0) -> None:
    """The same random values for both sides."""
    dice = np.random.default_rng(seed)
    for buffer in buffers:
        details = buffer.get_tensor_details()
        buffer.write(dice.uniform(-4, 40, details["shape"]).astype(details["dtype"]))


def values(buffers: list[Any]) -> list[np.ndarray]:
    found = [each.get_tensor_details() for each in buffers]
    return [each.read(int(np.prod(one["shape"])), one["dtype"]) for each, one in zip(buffers, found, strict=True)]


def test_results_are_litert_s_by_index_and_by_name(both: tuple[Any, Any]) -> None:
    theirs, ours = both
    for index, (key, names) in enumerate(theirs.get_signature_list().items()):
        results = []
        for model in (theirs, ours):
            inputs, outputs = model.create_input_buffers(index), model.create_output_buffers(index)
            for seed in (0, 1):
                fill(inputs, seed)
                model.run_by_index(index, inputs, outputs)
                first = values(outputs)
                given = dict(zip(names["inputs"], inputs, strict=True))
                model.run_by_name(key, given, dict(zip(names["outputs"], outputs, strict=True)))
                results.append([first, values(outputs)])
        for expected, found in zip(results[:2], results[2:], strict=True):
            for side, other in zip([*expected[0], *expected[1]], [*found[0], *found[1]], strict=True):
                np.testing.assert_allclose(other, side, rtol=1e-4, atol=1e-4)


ERRORS = (RuntimeError, ValueError, AttributeError, TypeError)


def attempt(call: Callable[[], object]) -> Exception | None:
    """The error that a call raises; None for none."""
    try:
        call()
    except ERRORS as error:
        return error
    return None


def calls(model: Any, buffer_class: Any) -> dict[str, Callable[[], object]]:
    """Wrong calls, and some that look wrong, on the model "signed"; LiteRT survives all of them."""
    inputs, outputs = model.create_input_buffers(0), model.create_output_buffers(0)

    def host(size: int) -> Any:
        return buffer_class.create_from_host_memory(np.zeros(size, np.float32))

    destroyed = model.create_input_buffers(0)
    destroyed[0].destroy()
    given, made = {"picture": inputs[0]}, {"found": outputs[0]}
    return {
        "no input": lambda: model.run_by_index(0, [], outputs),
        "two inputs": lambda: model.run_by_index(0, inputs * 2, outputs),
        "no output": lambda: model.run_by_index(0, inputs, []),
        "tuples": lambda: model.run_by_index(0, tuple(inputs), tuple(outputs)),
        "no such signature": lambda: model.run_by_index(3, inputs, outputs),
        "negative signature": lambda: model.run_by_index(-1, inputs, outputs),
        "swapped": lambda: model.run_by_index(0, outputs, inputs),
        "small input": lambda: model.run_by_index(0, [host(16)], outputs),
        "large input": lambda: model.run_by_index(0, [host(1600)], outputs),
        "small output": lambda: model.run_by_index(0, inputs, [host(1)]),
        "large output": lambda: model.run_by_index(0, inputs, [host(1600)]),
        "flat output": lambda: model.run_by_index(0, inputs, [host(64)]),
        "by name": lambda: model.run_by_name("serve", given, made),
        "first key": lambda: model.run_by_name("", given, made),
        "further names": lambda: model.run_by_name("serve", {**given, "z": inputs[0]}, {**made, "z": outputs[0]}),
        "missing output": lambda: model.run_by_name("serve", given, {}),
        "unknown key": lambda: model.run_by_name("nope", given, made),
        "details of an unknown key": lambda: model.get_input_tensor_details("nope"),
        "key that is no string": lambda: model.get_signature_index(None),
        "buffers of an unknown signature": lambda: model.create_input_buffers(2),
        "buffer of an unknown key": lambda: model.create_input_buffer_by_name("nope", "picture"),
        "buffer of an unknown name": lambda: model.create_output_buffer_by_name("serve", "picture"),
        "requirements of no input": lambda: model.get_input_buffer_requirements(1),
        "requirements of no signature": lambda: model.get_output_buffer_requirements(0, 1),
        "fixed size": lambda: model.resize_input_tensor(0, [2, 8, 8, 3]),
        "negative size": lambda: model.resize_input_tensor(0, [-1, 8, 8, 3], 0, False),
        "no size": lambda: model.resize_input_tensor(0, [0, 8, 8, 3], 0, False),
        "broken size": lambda: model.resize_input_tensor(0, [1.0, 8, 8, 3], 0, False),
        "no such input": lambda: model.resize_input_tensor(4, [1, 8, 8, 3], 0, False),
        "resize no signature": lambda: model.resize_input_tensor(0, [1, 8, 8, 3], 4, False),
        "resize an unknown key": lambda: model.resize_input_tensor_by_name("nope", "picture", [1, 8, 8, 3]),
        "resize an unknown name": lambda: model.resize_input_tensor_by_name("serve", "nope", [1, 8, 8, 3]),
        "destroyed": lambda: model.run_by_index(0, destroyed, outputs),
        "still good": lambda: model.run_by_index(0, inputs, outputs),
    }


LITERT_CALLS = [*calls(CompiledModel.from_buffer(small_models.convolution(signature=True), 1), TensorBuffer)]


@pytest.fixture(scope="module")
def theirs_and_ours() -> list[dict[str, Callable[[], object]]]:
    content = small_models.convolution(signature=True)
    return [
        calls(litert.CompiledModel.from_buffer(content), litert.TensorBuffer),
        calls(CompiledModel.create(content, serialization_dir=False), TensorBuffer),
    ]


@pytest.mark.parametrize("name", LITERT_CALLS)
def test_a_wrong_call_raises_what_litert_raises(
    name: str, theirs_and_ours: list[dict[str, Callable[[], object]]]
) -> None:
    theirs, ours = (attempt(side[name]) for side in theirs_and_ours)
    assert isinstance(ours, type(theirs)), (theirs, ours)


def host(values: Any) -> TensorBuffer:
    return TensorBuffer.create_from_host_memory(np.ascontiguousarray(values, np.float32))


@pytest.mark.parametrize("target", ["cpu", "litert"])
def test_shapes_follow_resizes_and_buffers(target: str) -> None:
    model = CompiledModel.create(small_models.two_signatures(), serialization_dir=False, target=target)
    old = model.create_input_buffers("triple"), model.create_output_buffers("triple")
    for batch in (3, 1, 3):
        model.resize_input_tensor_by_name("triple", "x", [batch, 2])
        assert model.get_output_tensor_details("triple")["y"]["shape"] == [batch, 2]
        inputs, outputs = model.create_input_buffers("triple"), model.create_output_buffers(1)
        inputs[0].write(np.arange(2 * batch, dtype=np.float32))
        model.run(inputs, outputs, "triple")
        np.testing.assert_array_equal(outputs[0].view(), 3.0 * np.arange(2 * batch).reshape(batch, 2))
    model.run(*old, signature="triple")  # on buffers of the old shape, to which the model returns
    assert model.get_input_tensor_details("triple")["x"]["shape"] == [1, 2]
    made = model.run({"x": host(np.ones((5, 2)))}, signature="triple")
    np.testing.assert_array_equal(made["y"].view(), np.full((5, 2), 3, np.float32))
    with pytest.raises(RuntimeError, match="24"):
        model.run([host(np.ones((5, 2)))], [host(np.ones((3, 2)))], 1)
    assert model.get_input_tensor_details("double")["x"]["shape"] == [1, 2]


@pytest.mark.parametrize("target", ["cpu", "litert"])
def test_a_size_that_the_model_fixes_changes_where_it_may(target: str) -> None:
    content = small_models.convolution()
    models = [litert.CompiledModel.from_buffer(content)]
    models.append(CompiledModel.create(content, serialization_dir=False, target=target))
    results = []
    for model in models:
        model.resize_input_tensor(0, [2, 8, 8, 3], strict=False)
        assert model.get_output_tensor_details(KEY)["features"]["shape"] == [2, 4, 4, 4]
        inputs, outputs = model.create_input_buffers(0), model.create_output_buffers(0)
        fill(inputs)
        model.run_by_index(0, inputs, outputs)
        results.append(values(outputs)[0])
    np.testing.assert_allclose(results[1], results[0], rtol=1e-4, atol=1e-4)


def test_buffers_are_used_in_place_and_bound_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = CompiledModel.create(small_models.two_outputs(), serialization_dir=False, target="cpu")
    session = model._opened.session
    assert session is not None
    bound: list[list[int]] = []
    bind = session.bind
    monkeypatch.setattr(session, "bind", lambda places: bound.append([each.address for each in places]) or bind(places))
    inputs, outputs = model.create_input_buffers(), model.create_output_buffers()
    for seed in range(5):
        fill(inputs, seed)
        model.run_by_index(0, inputs, outputs)
        left, right = (each.view() for each in inputs)
        np.testing.assert_array_equal(outputs[0].view(), left + right)
        np.testing.assert_array_equal(outputs[1].view(), left * right)
    assert bound == [[each.place.address for each in (*inputs, *outputs)]]
    model.run(inputs, outputs[::-1])
    np.testing.assert_array_equal(outputs[1].view(), left + right)
    assert len(bound) == 2


def test_buffers_that_are_gone_are_not_kept_bound() -> None:
    model = CompiledModel.create(small_models.two_outputs(), serialization_dir=False)
    array = np.ones((2, 3), np.float32)
    kept = TensorBuffer.create_from_host_memory(array), host(np.ones((2, 3)))
    for _ in range(40):
        model.run(list(kept), model.create_output_buffers())
    assert model._bound == {}
    outputs = model.create_output_buffers()
    for _ in range(2):
        model.run(list(kept), outputs)
    kept[1].destroy()
    with pytest.raises(RuntimeError, match="destroyed"):
        model.run(list(kept), outputs)
    with pytest.raises(ValueError, match="destroyed"):
        model.run_by_index(0, list(kept), outputs)
    many = [model.create_output_buffers() for _ in range(40)]
    for each in many:
        model.run([kept[0], kept[0]], each)
    assert len(model._bound) == MOST_BINDINGS
    np.testing.assert_array_equal(many[0][0].view(), 2 * array)


class Later(Event):
    """An event that lets a value appear when it is waited for."""

    def __init__(self, buffer: TensorBuffer) -> None:
        super().__init__()
        self.view = buffer.view()

    def _block(self, timeout: float | None) -> bool:
        self.view[...] = 7
        self.signal()
        return True


def test_a_run_waits_for_the_events_of_its_buffers() -> None:
    model = CompiledModel.create(small_models.two_outputs(), serialization_dir=False)
    inputs, outputs = model.create_input_buffers(), model.create_output_buffers()
    model.run(inputs, outputs)
    inputs[1].set_event(Later(inputs[1]))
    model.run(inputs, outputs)
    np.testing.assert_array_equal(outputs[0].view(), np.full((2, 3), 7, np.float32))
    assert not inputs[1].has_event()


def test_a_closed_model_says_so_and_its_buffers_live_on() -> None:
    with CompiledModel.create(small_models.two_outputs(), serialization_dir=False) as model:
        inputs, outputs = model.create_input_buffers(), model.create_output_buffers()
        model.run(inputs, outputs)
        environment = model.environment
    for call in (
        lambda: model.run(inputs, outputs),
        model.get_signature_list,
        model.is_fully_accelerated,
        lambda: model.create_input_buffers(0),
    ):
        with pytest.raises(ClosedError):
            call()
    model.close()
    assert model.environment is environment
    np.testing.assert_array_equal(outputs[0].view(), np.zeros((2, 3)))


def test_a_damaged_program_is_replaced(tmp_path: Path) -> None:
    content = small_models.convolution()
    CompiledModel.create(content, serialization_dir=tmp_path).close()
    (entry,) = tmp_path.glob("*.jitd")
    damaged = bytearray(entry.read_bytes())
    damaged[-8] ^= 255  # among the weights
    entry.chmod(0o600)
    entry.write_bytes(damaged)
    models = [CompiledModel.create(content, serialization_dir=place) for place in (tmp_path, False)]
    results = []
    for model in models:
        inputs, outputs = model.create_input_buffers(), model.create_output_buffers()
        fill(inputs)
        for _ in range(2):
            model.run(inputs, outputs)
        results.append(values(outputs)[0])
    np.testing.assert_array_equal(*results)
    assert "damaged" in models[0].report().cache.reason


def test_variables_live_from_run_to_run() -> None:
    content = partial_models.remembering()
    models = [CompiledModel.create(content, serialization_dir=False, target=target) for target in ("cpu", "litert")]
    found = []
    for model in models:
        inputs, outputs = model.create_input_buffers(0), model.create_output_buffers(0)
        fill(inputs)
        sums = []
        for _ in range(3):
            model.run_by_index(0, inputs, outputs)
            sums.append(values(outputs)[0])
        found.append(sums)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-5)
    assert np.abs(found[0][0] - found[0][1]).max() > 0


@pytest.mark.parametrize("shared", [False, True], ids=["buffers of their own", "shared inputs"])
def test_many_threads_run_many_models(shared: bool) -> None:
    contents = [small_models.two_outputs(), small_models.two_signatures(), small_models.uncompiled(), reordered()]
    models = [CompiledModel.create(content, serialization_dir=False, num_threads=2) for content in contents]
    inputs = [model.create_input_buffers() for model in models]
    expected = []
    for model, buffers in zip(models, inputs, strict=True):
        fill(buffers)
        expected.append([each.read() for each in model.run(buffers)])
    wrong: list[object] = []

    def work() -> None:
        own = inputs if shared else [model.create_input_buffers() for model in models]
        outputs = [model.create_output_buffers() for model in models]
        for buffers in own if not shared else ():
            fill(buffers)
        for turn in range(200):
            for place, model in enumerate(models):
                outputs[place][0].view()[...] = -1
                model.run_by_index(0, own[place], outputs[place])
                for buffer, value in zip(outputs[place], expected[place], strict=True):
                    if not np.array_equal(buffer.view(), value):
                        wrong.append((turn, place))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_threads_with_other_shapes_get_their_own_answers() -> None:
    model = CompiledModel.create(small_models.two_signatures(), serialization_dir=False)
    wrong: list[int] = []

    def work(batch: int) -> None:
        inputs, outputs = [host(np.full((batch, 2), batch))], [host(np.zeros((batch, 2)))]
        for _ in range(100):
            outputs[0].view()[...] = 0
            model.run(inputs, outputs, 1)
            if (outputs[0].view() != 3 * batch).any():
                wrong.append(batch)

    threads = [threading.Thread(target=work, args=(batch,)) for batch in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_signature_that_names_some_outputs_runs() -> None:
    builder = ModelBuilder()
    value = builder.input((1, 2), name="value")
    results = [builder.op(op, [value], (1, 2)) for op in ("NEG", "ABS", "RELU")]
    builder.output(*results)
    builder.signature("some", {"x": value}, {"b": results[2], "a": results[0]})
    model = CompiledModel.create(builder.finish(), serialization_dir=False)
    assert model.get_signature_list()["some"]["outputs"] == ["a", "b"]
    negative, positive = model.run([host([[-3, 5]])])
    assert negative.view().tolist() == [[3, -5]] and positive.view().tolist() == [[0, 5]]
    with pytest.raises(RuntimeError, match="missing the input 'x'"):
        model.run_by_name("some", {"y": negative}, {"a": negative, "b": positive})


def test_values_that_decide_shapes_run_compiled() -> None:
    model = CompiledModel.create(small_models.rows_of_a_dozen(), serialization_dir=False)
    (rows,) = model.run([host(np.arange(72).reshape(2, 36))])
    np.testing.assert_array_equal(rows.view(), np.arange(72, dtype=np.float32).reshape(6, 12))
    assert model.report().target == "cpu"


@pytest.mark.parametrize("loader", ["partitions", "delegate"])
def test_a_model_that_is_compiled_in_part_runs(loader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    partial_models.choose_loader(monkeypatch, loader)
    content = partial_models.alternating()
    models = [litert.CompiledModel.from_buffer(content), CompiledModel.create(content, **partial_models.options())]
    results = []
    for model in models:
        inputs, outputs = model.create_input_buffers(0), model.create_output_buffers(0)
        fill(inputs)
        for _ in range(2):
            model.run_by_index(0, inputs, outputs)
        results.append(values(outputs))
    for found, wanted in zip(*results, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert models[1]._opened.program.loader == loader
    assert not models[1].is_fully_accelerated()
    assert 0 < models[1].report().delegated < len(models[1].report().operators)


def test_shapes_that_alternate_are_told_and_reset_variables() -> None:
    content = partial_models.remembering()
    results = []
    for target in ("cpu", "litert"):
        model = CompiledModel.create(content, serialization_dir=False, target=target)
        short = [host(np.full((1, 3, 3), 0.5))]
        long, outputs = model.create_input_buffers(), model.create_output_buffers()
        found = []
        for _ in range(2):
            for inputs, steps in ((long, 5), (short, 3)):
                model.resize_input_tensor(0, [1, steps, 3], strict=False)
                for _ in range(2):
                    fill(inputs, 3)
                    model.run(inputs, outputs)
                    found.append(outputs[0].view().reshape(-1)[: steps * 4].copy())
        results.append(found)
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(results[0][0], results[0][4])
    open_sizes = CompiledModel.create(small_models.two_signatures(), serialization_dir=False)
    sides = [([host(np.ones((batch, 2)))], [host(np.zeros((batch, 2)))]) for batch in (1, 4)]
    for _ in range(2):
        for batch, (inputs, outputs) in zip((1, 4), sides, strict=True):
            open_sizes.run(inputs, outputs)
            assert open_sizes.get_input_tensor_details("double")["x"]["shape"] == [batch, 2]


def test_a_run_in_other_memory_between_two_runs_changes_nothing() -> None:
    model = CompiledModel.create(small_models.two_outputs(), serialization_dir=False, target="cpu")
    session = model._opened.session
    assert session is not None
    inputs, outputs = model.create_input_buffers(), model.create_output_buffers()
    for seed in range(3):
        fill(inputs, seed)
        session.run([np.ones((2, 3), np.float32)] * 2)
        model.run(inputs, outputs)
        model.run(inputs, outputs)
        np.testing.assert_array_equal(outputs[0].view(), inputs[0].view() + inputs[1].view())


@pytest.mark.parametrize("index", [None, 0.0])
def test_what_is_no_index_of_a_signature_is_named(index: Any) -> None:
    model = CompiledModel.from_buffer(small_models.two_outputs())
    with pytest.raises(TypeError, match=rf"index is {type(index).__name__}, expected int"):
        model.create_input_buffers(index)
