"""CompiledModel.run_async: right results in order, through every kind of session, and what surfaces at events."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jitdelegate import CompiledModel, DeviceError, Event, TensorBuffer
from jitdelegate.errors import CompiledModelError
from jitdelegate.tflite.write import ModelBuilder
from tests.api import small_models
from tests.api.test_compiled_model import MODELS, fill, reordered, values
from tests.runtime.test_requests import failure

pytestmark = pytest.mark.filterwarnings("ignore::jitdelegate.DelegateWarning")
TARGETS = "cpu", "generic", "litert", "reference"


def opened(content: bytes, target: str = "cpu", **options: Any) -> CompiledModel:
    if target == "generic":
        target, options = "cpu", options | {"cpu_features": "generic"}
    return CompiledModel.create(content, target=target, serialization_dir=False, **options)


@pytest.fixture(params=MODELS)
def content(request: pytest.FixtureRequest) -> bytes:
    return MODELS[request.param]()


@pytest.mark.parametrize("target", TARGETS)
def test_requests_give_the_results_of_run(content: bytes, target: str) -> None:
    with opened(content, target) as model:
        for key in model.get_signature_list():
            sets = [(model.create_input_buffers(key), model.create_output_buffers(key)) for _ in range(6)]
            expected = []
            for number, (inputs, outputs) in enumerate(sets):
                fill(inputs, number)
                model.run(inputs, outputs, key)
                expected.append(values(outputs))
                fill(outputs, 99)
            events = [model.run_async(inputs, outputs, key) for inputs, outputs in sets]
            names = model.get_signature_list()[key]
            by_name = [dict(zip(names[side], part, strict=True)) for side, part in zip(names, sets[0], strict=True)]
            events.append(model.run_async_by_name(key, by_name[0], by_name[1]))
            assert all(buffer.has_event() for _, outputs in sets for buffer in outputs)
            for (_, outputs), wanted in zip(sets, expected, strict=True):
                for found, each in zip(values(outputs), wanted, strict=True):  # reading waits
                    np.testing.assert_array_equal(found, each)
            assert all(event.done for event in events[1:6]) and not sets[1][1][0].has_event()


def accumulating() -> bytes:
    """y = x + x, of f32[64]."""
    model = ModelBuilder()
    x = model.input((64,))
    model.output(model.op("ADD", [x, x], (64,)))
    return model.finish()


@pytest.fixture
def model() -> Iterator[CompiledModel]:
    with opened(accumulating(), requests_in_flight=4) as made:
        yield made


def test_a_buffer_goes_through_many_requests(model: CompiledModel) -> None:
    """The same buffers in requests in flight: each waits for those before that read or write them."""
    a, b = model.create_input_buffers()[0], model.create_output_buffers()[0]
    a.write(np.ones(64, np.float32))
    for _ in range(50):
        model.run_async([a], [b])
        model.run_async([b], [a])
    expected = np.float32(2.0**100)
    np.testing.assert_array_equal(a.read(), expected)
    for _ in range(20):  # writing waits for whoever reads
        a.write(np.zeros(64, np.float32))
        model.run_async([a], [b])
    assert not b.view().any()


def test_a_thousand_requests_over_a_ring_of_four(model: CompiledModel) -> None:
    rings = [(model.create_input_buffers(), model.create_output_buffers()) for _ in range(8)]
    got = []
    for number in range(1000):
        inputs, outputs = rings[number % 8]
        if number >= 8:
            got.append(outputs[0].read()[0])
        inputs[0].write(np.full(64, number, np.float32))
        model.run_async(inputs, outputs)
    assert got == [2.0 * number for number in range(992)]


def test_eight_threads_share_a_model(model: CompiledModel) -> None:
    wrong: list[int] = []

    def call(number: int) -> None:
        inputs, outputs = model.create_input_buffers(), model.create_output_buffers()
        for turn in range(50):
            inputs[0].write(np.full(64, number * 100 + turn, np.float32))
            model.run_async(inputs, outputs).wait()
            if outputs[0].read()[63] != 2 * (number * 100 + turn):
                wrong.append(number)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_an_input_s_event_is_waited_for_and_another_model_s_too(model: CompiledModel) -> None:
    with opened(accumulating(), "litert") as other, opened(accumulating()) as third:
        managed, chain = Event.create_managed(), [TensorBuffer.create("float32", (64,)) for _ in range(4)]
        chain[0].set_event(managed)
        events = [
            each.run_async([source], [target])
            for each, source, target in zip((model, other, third), chain, chain[1:], strict=False)
        ]
        with pytest.raises(TimeoutError):
            events[-1].wait(0.05)
        chain[0].clear_event()
        chain[0]._store(np.ones(64, np.float32))
        managed.signal()
        assert chain[3].read()[5] == 8


def test_a_failed_request_fails_what_reads_its_outputs_and_nothing_else() -> None:
    model = opened(accumulating())
    buffers = [TensorBuffer.create("float32", (64,)) for _ in range(4)]
    with opened(accumulating(), "litert") as other:
        buffers[0].set_event(Event())
        stuck = other.run_async([buffers[0]], [buffers[1]])
        reader = model.run_async([buffers[1]], [buffers[2]])
        overwriting = model.run_async([buffers[3]], [buffers[1]])
    assert "closed before the request ran" in failure(stuck)
    with pytest.raises(DeviceError, match="closed before the request ran"):
        buffers[2].read()
    overwriting.wait()
    buffers[1].read()
    model.run([buffers[3]], [buffers[2]])  # what failed before is overwritten
    buffers[2].read()
    assert reader.done
    model.close()
    with pytest.raises(RuntimeError, match="closed"):
        model.run_async([buffers[3]], [buffers[2]])


def test_a_run_that_could_not_wait_for_its_buffers_does_not_let_the_next_one_pass(model: CompiledModel) -> None:
    """The buffers are bound, so that a run looks for events only if it has to."""
    inputs, outputs, lost, pending = model.create_input_buffers(), model.create_output_buffers(), Event(), Event()
    model.run(inputs, outputs)
    lost._finish(DeviceError("lost"))
    inputs[0].set_event(lost)
    outputs[0].set_event(pending)
    for _ in range(2):
        with pytest.raises(DeviceError, match="lost"):
            model.run(inputs, outputs)
    assert outputs[0].get_event() is pending


def test_a_wrong_request_is_refused_at_once_and_leaves_the_model_usable(model: CompiledModel) -> None:
    inputs, outputs = model.create_input_buffers(), model.create_output_buffers()
    small = TensorBuffer.create("float32", (2,))
    other = TensorBuffer.create("int32", (64,))
    for wrong in ([small], outputs), (inputs, [small]), ([other], outputs), ([], outputs), (inputs, [1]):
        with pytest.raises(CompiledModelError):
            model.run_async(*wrong)  # type: ignore[arg-type]
    with pytest.raises(CompiledModelError):
        model.run_async(inputs, outputs, 3)
    assert not outputs[0].has_event()
    model.run_async(inputs, outputs).wait()


def test_damaged_weights_are_compiled_again(tmp_path: Path) -> None:
    content = small_models.convolution()
    first = CompiledModel.create(content, target="cpu", serialization_dir=str(tmp_path))
    inputs, outputs = first.create_input_buffers(), first.create_output_buffers()
    fill(inputs)
    first.run(inputs, outputs)
    expected = values(outputs)
    first.close()
    model = CompiledModel.create(content, target="cpu", serialization_dir=str(tmp_path))
    session: Any = model._opened.session
    program = session._memory.weights._program
    damaged = bytearray(program.weights)
    damaged[0] ^= 1
    program.weights = bytes(damaged)
    model.run_async(inputs, outputs).wait()
    assert model._opened.damage
    for found, each in zip(values(outputs), expected, strict=True):
        np.testing.assert_array_equal(found, each)
    model.close()


def test_buffers_may_be_dropped_and_destroyed_in_flight(model: CompiledModel) -> None:
    gate, kept = Event(), np.zeros(64 + 16, np.float32)
    kept = kept[(-kept.ctypes.data % 64) // 4 :][:64]
    source, target = TensorBuffer.create("float32", (64,)), TensorBuffer.create_from_host_memory(kept)
    source.write(np.ones(64, np.float32))
    source.set_event(gate)
    event = model.run_async([source], [target])
    source.destroy()
    del target
    gate.signal()
    event.wait()
    assert kept[0] == 2


def test_awaiting_many_requests(model: CompiledModel) -> None:
    async def one(number: int) -> float:
        inputs, outputs = model.create_input_buffers(), model.create_output_buffers()
        inputs[0].write(np.full(64, number, np.float32))
        await model.run_async(inputs, outputs)
        return float(outputs[0].read()[0])

    async def main() -> None:
        assert await asyncio.gather(*map(one, range(100))) == [2.0 * number for number in range(100)]
        inputs, outputs = model.create_input_buffers(), model.create_output_buffers()
        gate = Event()
        inputs[0].set_event(gate)
        event = model.run_async(inputs, outputs)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_await(event), 0.02)
        gate.signal()
        await event

    asyncio.run(main())


async def _await(event: Event) -> None:
    await event


@pytest.mark.parametrize("target", ["cpu", "litert"])
def test_names_in_another_order_and_larger_outputs(target: str) -> None:
    with opened(reordered(), target) as model:
        inputs = model.create_input_buffers()
        outputs = [TensorBuffer.create("float32", (1, 8)) for _ in range(2)]
        fill(inputs)
        model.run_async(inputs, outputs)
        for given, made in zip(inputs, outputs, strict=True):
            np.testing.assert_array_equal(
                made.read(given.shape[1], np.float32), np.maximum(given.read().reshape(-1), 0)
            )


def test_a_request_waits_for_earlier_ones_that_read_what_it_writes(model: CompiledModel) -> None:
    a, b, c = (TensorBuffer.create("float32", (64,)) for _ in range(3))
    a.write(np.ones(64, np.float32))
    gate = Event()
    b.set_event(gate)
    first, second = model.run_async([a], [b]), model.run_async([c], [a])
    with pytest.raises(TimeoutError):
        second.wait(0.05)
    assert a.place.owner is not None and np.frombuffer(a._memory(), np.float32)[0] == 1
    gate.signal()
    assert b.read()[0] == 2 and a.read()[0] == 0
    first.wait(0)
