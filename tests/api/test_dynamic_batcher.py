"""DynamicBatcher: rows that coroutines await at the same time run together."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import jitdelegate
from jitdelegate import DeviceError, DynamicBatcher, TensorError
from jitdelegate.api.tensor_info import TensorInfo
from jitdelegate.program.program import Port
from jitdelegate.runtime import worker
from tests.api import small_models

ROWS = np.random.default_rng(1).standard_normal((40, 8, 8, 3)).astype(np.float32)


class Doubling:
    """A model that doubles rows of two inputs, and notes the number of rows that it was asked for together.

    Attributes:
        before: called at the beginning of each inference.
    """

    inputs = tuple(
        TensorInfo(
            Port(name=name, index=index, shape=(1, index + 1), shape_signature=(-1, -1), dtype="float32", nbytes=4)
        )
        for index, name in enumerate("ab")
    )

    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        self.before = before
        self.seen: list[tuple[int, ...]] = []

    def run(self, inputs: Any) -> dict[str, np.ndarray]:
        self.before()
        self.seen.append(inputs["a"].shape)
        return {name: 2 * array for name, array in inputs.items()}


def _two(number: float, lengths: tuple[int, int] = (1, 2)) -> dict[str, np.ndarray]:
    return {name: np.full(length, number, np.float32) for name, length in zip("ab", lengths, strict=True)}


def _doubling(model: Doubling, **options: Any) -> DynamicBatcher:
    return DynamicBatcher(model, **options)  # type: ignore[arg-type]


async def _within(call: Any, seconds: float = 20) -> Any:
    """What a call returns, or an error instead of a test that hangs."""
    return await asyncio.wait_for(asyncio.ensure_future(call), seconds)


@pytest.fixture(scope="module")
def model() -> jitdelegate.Model:
    return jitdelegate.load(small_models.convolution(open_batch=True), target="cpu")


@pytest.fixture(scope="module")
def expected(model: jitdelegate.Model) -> np.ndarray:
    return np.concatenate([np.asarray(model(ROWS[k : k + 1])) for k in range(len(ROWS))])


class Counted:
    """A model that counts its inferences, and holds the first one until it is told to go on."""

    def __init__(self, model: jitdelegate.Model) -> None:
        self._model, self.runs, self.go_on = model, 0, threading.Event()
        self.inputs = model.inputs

    def run(self, inputs: Any) -> Any:
        self.runs += 1
        assert self.go_on.wait(30)
        return self._model.run(inputs)


async def _all(batcher: DynamicBatcher, rows: np.ndarray) -> np.ndarray:
    found = await asyncio.gather(*(batcher({"image": row}) for row in rows))
    return np.stack([each["features"] for each in found])


def test_rows_that_wait_together_run_together(model: jitdelegate.Model, expected: np.ndarray) -> None:
    counted: Any = Counted(model)

    async def serve() -> np.ndarray:
        async with DynamicBatcher(counted, max_batch_size=8, max_delay=60) as batcher:
            answers = asyncio.ensure_future(_all(batcher, ROWS))
            await asyncio.sleep(0)
            counted.go_on.set()
            return await answers

    np.testing.assert_allclose(asyncio.run(serve()), expected, atol=1e-5)
    assert counted.runs == 5


def test_a_row_alone_does_not_wait_for_others(model: jitdelegate.Model, expected: np.ndarray) -> None:
    async def serve() -> np.ndarray:
        async with DynamicBatcher(model, max_delay=0) as batcher:
            return (await batcher({"image": ROWS[3]}))["features"]

    np.testing.assert_allclose(asyncio.run(serve()), expected[3], atol=1e-5)


def test_models_of_one_row_serve_too(expected: np.ndarray) -> None:
    async def serve() -> np.ndarray:
        async with DynamicBatcher(jitdelegate.load(small_models.convolution()), max_waiting=3) as batcher:
            return await _all(batcher, ROWS)

    np.testing.assert_allclose(asyncio.run(serve()), expected, atol=1e-5)


def test_a_wrong_row_fails_alone(model: jitdelegate.Model, expected: np.ndarray) -> None:
    async def serve() -> list[Any]:
        async with DynamicBatcher(model, max_delay=0.01) as batcher:
            rows: list[Any] = [
                {"image": ROWS[0]},
                {"image": ROWS[0, :4]},
                {"picture": ROWS[0]},
                ROWS[0],
                {"image": ROWS[1]},
            ]
            return await asyncio.gather(*map(batcher, rows), return_exceptions=True)

    right, short, misnamed, nameless, right_too = asyncio.run(serve())
    np.testing.assert_allclose(right["features"], expected[0], atol=1e-5)
    np.testing.assert_allclose(right_too["features"], expected[1], atol=1e-5)
    assert isinstance(short, TensorError) and "float32[4, 8, 3], expected float32[8, 8, 3]" in str(short)
    assert isinstance(misnamed, TensorError) and "the row has 'picture'; expected 'image'" in str(misnamed)
    assert isinstance(nameless, TensorError) and "the row is ndarray, expected a mapping" in str(nameless)


def test_a_failed_batch_reaches_its_callers_and_the_next_one_runs(model: jitdelegate.Model) -> None:
    class FailsOnce(Counted):
        def run(self, inputs: Any) -> Any:
            if self.runs == 0:
                self.runs = 1
                raise DeviceError("planted")
            return model.run(inputs)

    async def serve() -> list[Any]:
        async with DynamicBatcher(FailsOnce(model), max_batch_size=2, max_delay=60) as batcher:  # type: ignore[arg-type]
            calls = (batcher({"image": row}) for row in ROWS[:4])
            return await asyncio.gather(*calls, return_exceptions=True)

    found = asyncio.run(serve())
    assert [str(each) for each in found[:2]] == ["planted", "planted"]
    assert [each["features"].shape for each in found[2:]] == [(4, 4, 4), (4, 4, 4)]


def test_a_cancelled_call_leaves_the_others(model: jitdelegate.Model, expected: np.ndarray) -> None:
    counted: Any = Counted(model)

    async def serve() -> np.ndarray:
        async with DynamicBatcher(counted, max_batch_size=1, max_delay=0) as batcher:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(batcher({"image": ROWS[0]}), 0.01)
            counted.go_on.set()
            return await _all(batcher, ROWS[:3])

    np.testing.assert_allclose(asyncio.run(serve()), expected[:3], atol=1e-5)


def test_closing_fails_those_that_wait(model: jitdelegate.Model) -> None:
    counted: Any = Counted(model)

    async def serve() -> list[Any]:
        batcher = DynamicBatcher(counted, max_batch_size=2, max_delay=60, max_waiting=2)
        calls = [asyncio.ensure_future(batcher({"image": row})) for row in ROWS[:7]]
        await asyncio.sleep(0.05)
        await batcher.aclose()
        counted.go_on.set()
        return await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 20)

    found = asyncio.run(serve())
    assert {str(each) for each in found} == {"the batcher is closed"}


@pytest.mark.parametrize(
    "wrong",
    [{"max_batch_size": 0}, {"max_delay": -1.0}, {"max_delay": float("nan")}, {"max_waiting": 0}, {"max_waiting": 1.5}],
)
def test_wrong_numbers_are_named(model: jitdelegate.Model, wrong: dict[str, Any]) -> None:
    with pytest.raises(TensorError, match=str(next(iter(wrong.values())))):
        DynamicBatcher(model, **wrong)


def closes(count: int, seed: int) -> int:
    """How many calls were answered before one of `count` closes, each at a random moment of some calls."""
    draw, answered = random.Random(seed), 0

    async def close_once() -> int:
        model = Doubling(lambda: time.sleep(draw.choice((0, 0, 0.0005))))
        options = {"max_batch_size": draw.randint(1, 4), "max_delay": draw.choice((0, 0.0005, 0.001, 0.002, 60))}
        batcher = _doubling(model, **options, max_waiting=draw.choice((1, 3, 1024)))
        calls = [asyncio.ensure_future(batcher(_two(number))) for number in range(draw.randint(0, 12))]
        await asyncio.sleep(draw.choice((0, 0.0005, 0.001, 0.0015, 0.002, 0.003)))
        for call in draw.sample(calls, draw.randint(0, len(calls) // 3)):
            call.cancel()
        late = [asyncio.ensure_future(batcher(_two(number))) for number in range(draw.randint(0, 2))]
        await _within(batcher.aclose())
        found = await _within(asyncio.gather(*calls, *late, return_exceptions=True))
        answers = [each for each in found if isinstance(each, dict)]
        others = [each for each in found if not isinstance(each, dict)]
        assert all(isinstance(each, asyncio.CancelledError) or str(each) == "the batcher is closed" for each in others)
        assert not asyncio.all_tasks() - {asyncio.current_task()}
        return len(answers)

    for _ in range(count):
        answered += asyncio.run(close_once())
    return answered


def test_closing_at_any_moment_ends_all_calls() -> None:
    assert closes(60, seed=1) > 0


def test_a_second_event_loop_is_served_after_the_first_has_ended() -> None:
    batcher = _doubling(Doubling())

    async def call() -> float:
        return float((await _within(batcher(_two(3))))["a"][0])

    assert [asyncio.run(call()) for _ in range(3)] == [6, 6, 6]
    asyncio.run(batcher.aclose())
    with pytest.raises(DeviceError, match="the batcher is closed"):
        asyncio.run(call())


def test_event_loops_of_several_threads_are_served_at_the_same_time() -> None:
    batcher, found = _doubling(Doubling(), max_batch_size=4), list[Any]()

    async def calls() -> None:
        found.extend(await _within(asyncio.gather(*(batcher(_two(number)) for number in range(30)))))

    threads = [threading.Thread(target=lambda: asyncio.run(calls())) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert sorted(float(each["b"][1]) for each in found) == sorted(2.0 * number for number in [*range(30)] * 4)


def test_closing_from_another_event_loop_ends_calls() -> None:
    hold, runs = threading.Event(), threading.Event()

    def wait() -> None:
        runs.set()
        assert hold.wait(30)

    batcher = _doubling(Doubling(wait), max_batch_size=1)
    errors: list[Any] = []

    async def calls() -> None:
        errors.extend(await _within(asyncio.gather(*(batcher(_two(1)) for _ in range(3)), return_exceptions=True)))

    thread = threading.Thread(target=lambda: asyncio.run(calls()))
    thread.start()
    assert runs.wait(30)
    asyncio.run(batcher.aclose())
    thread.join(60)
    hold.set()
    assert [str(each) for each in errors] == ["the batcher is closed"] * 3


def test_a_batch_outlives_its_event_loop_and_the_next_loop_is_served() -> None:
    hold, runs = threading.Event(), threading.Event()

    def wait() -> None:
        runs.set()
        assert hold.wait(30)

    batcher = _doubling(Doubling(wait), max_batch_size=1)

    async def begin() -> None:
        batcher_call = asyncio.ensure_future(batcher(_two(1)))
        await asyncio.get_running_loop().run_in_executor(None, runs.wait, 30)
        batcher_call.cancel()

    asyncio.run(begin())
    hold.set()
    assert asyncio.run(_within(batcher(_two(4))))["a"].tolist() == [8]


def test_the_order_of_a_row_s_inputs_does_not_matter() -> None:
    model = Doubling()

    async def serve() -> list[Any]:
        async with _doubling(model, max_batch_size=4, max_delay=60) as batcher:
            rows = [_two(1, (2, 1)), dict(reversed(_two(2, (2, 1)).items()))] * 2
            return await _within(asyncio.gather(*map(batcher, rows)))  # type: ignore[no-any-return]

    assert [each["a"].tolist() for each in asyncio.run(serve())] == [[2, 2], [4, 4]] * 2
    assert model.seen == [(4, 2)]


def test_only_rows_of_equal_shapes_run_together() -> None:
    model = Doubling()

    async def serve() -> list[Any]:
        async with _doubling(model, max_batch_size=2, max_delay=60) as batcher:
            rows = [_two(number, (1 + number % 2, 1)) for number in range(4)]
            return await _within(asyncio.gather(*map(batcher, rows)))  # type: ignore[no-any-return]

    assert [each["a"].tolist() for each in asyncio.run(serve())] == [[0], [2, 2], [4], [6, 6]]
    assert sorted(model.seen) == [(2, 1), (2, 2)]


@pytest.mark.parametrize(
    ("planted", "told"),
    [
        (RuntimeError("planted"), "planted"),
        (MemoryError(), "no memory for a batch"),
        (StopIteration(), "the model ended with StopIteration"),
        (SystemExit(3), "the model ended with SystemExit"),
        (KeyboardInterrupt(), "the model ended with KeyboardInterrupt"),
        (asyncio.CancelledError(), "the model ended with CancelledError"),
    ],
)
@pytest.mark.parametrize("place", ["model", "stack"])
def test_whatever_ends_a_batch_reaches_its_callers_and_the_next_one_runs(
    place: str, planted: BaseException, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, stack = [planted], np.stack

    def fail() -> None:
        if left:
            raise left.pop()

    def failing_stack(*arguments: Any) -> Any:
        fail()
        return stack(*arguments)

    if place == "stack":
        monkeypatch.setattr(np, "stack", failing_stack)

    async def serve() -> list[Any]:
        async with _doubling(Doubling(fail), max_batch_size=2, max_delay=60) as batcher:
            calls = (batcher(_two(number)) for number in range(4))
            return await _within(asyncio.gather(*calls, return_exceptions=True))  # type: ignore[no-any-return]

    first, second, *others = asyncio.run(serve())
    assert isinstance(first, RuntimeError) and (str(first), str(second)) == (told, told)
    assert [each["a"].tolist() for each in others] == [[4], [6]]


@pytest.mark.parametrize("planted", [RuntimeError("can't start new thread"), MemoryError()])
def test_without_a_thread_calls_fail_and_the_next_one_is_served(
    planted: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, left = worker._thread.start_new_thread, [planted]

    def refuse_once(*arguments: Any) -> Any:
        if left:
            raise left.pop()
        return start(*arguments)

    async def serve() -> Any:
        async with _doubling(Doubling(), max_batch_size=1) as batcher:
            with monkeypatch.context() as patched:
                patched.setattr(worker._thread, "start_new_thread", refuse_once)
                with pytest.raises(DeviceError, match="no thread"):
                    await _within(batcher(_two(1)))
            return await _within(batcher(_two(2)))

    assert asyncio.run(serve())["a"].tolist() == [4]


def test_a_cancelled_call_leaves_its_place_in_the_batch() -> None:
    model = Doubling()

    async def serve() -> list[Any]:
        async with _doubling(model, max_batch_size=2, max_delay=60) as batcher:
            first, *others = (asyncio.ensure_future(batcher(_two(number))) for number in range(3))
            first.cancel()
            return await _within(asyncio.gather(*others))  # type: ignore[no-any-return]

    assert [each["a"].tolist() for each in asyncio.run(serve())] == [[2], [4]]
    assert model.seen == [(2, 1)]


def test_a_row_waits_for_others_from_when_it_came(model: jitdelegate.Model) -> None:
    """Also while another batch runs, which may take longer than the delay."""
    hold = threading.Event()
    doubling = Doubling(lambda: hold.wait(30) and None)

    async def serve() -> list[Any]:
        async with _doubling(doubling, max_batch_size=2, max_delay=0.01) as batcher:
            calls = [asyncio.ensure_future(batcher(_two(number))) for number in range(3)]
            await asyncio.sleep(0.05)
            hold.set()
            return await _within(asyncio.gather(*calls))  # type: ignore[no-any-return]

    assert [each["a"].tolist() for each in asyncio.run(serve())] == [[0], [2], [4]]
    assert doubling.seen == [(2, 1), (1, 1)]


def test_a_model_of_one_row_waits_for_no_others() -> None:
    """Rows that would run one after another gain nothing from each other."""
    opened = jitdelegate.load(small_models.convolution(), target="cpu")

    async def ask() -> None:
        async with DynamicBatcher(opened, max_batch_size=8, max_delay=3600) as batcher:
            await _within(batcher({"image": ROWS[0]}))
            await _within(asyncio.gather(*(batcher({"image": row}) for row in ROWS[:5])))

    asyncio.run(ask())


def test_a_lone_client_waits_for_nobody() -> None:
    model = Doubling()

    async def serve() -> None:
        async with _doubling(model, max_delay=3600) as batcher:
            for number in range(3):
                await _within(batcher(_two(number)))
            await _within(batcher(_two(3, (4, 2))))  # there is no program of one such row

    asyncio.run(serve())
    assert model.seen == [*[(1, 1)] * 3, (8, 4)]


def test_a_row_waits_for_as_many_as_asked_last() -> None:
    model = Doubling()

    async def serve() -> None:
        async with _doubling(model, max_delay=3600) as batcher:
            await _within(asyncio.gather(*(batcher(_two(number)) for number in range(3))))
            first, second = (asyncio.ensure_future(batcher(_two(number))) for number in range(2))
            await asyncio.sleep(0.05)
            assert batcher.waiting == 2
            await _within(asyncio.gather(first, second, batcher(_two(2))))
            assert (batcher.counts.batches, batcher.counts.rows) == (2, 6)

    asyncio.run(serve())
    assert model.seen == [(8, 1)] * 2


def test_rows_that_waited_for_a_batch_join_the_next_one_with_its_callers() -> None:
    hold = threading.Event()
    model = Doubling(lambda: hold.wait(30) and None)

    async def serve() -> None:
        async with _doubling(model, max_delay=3600) as batcher:
            first = asyncio.ensure_future(batcher(_two(0)))
            await asyncio.sleep(0)  # the call enters
            while batcher.waiting:
                await asyncio.sleep(0.001)
            second = asyncio.ensure_future(batcher(_two(1)))
            await asyncio.sleep(0.01)
            hold.set()
            await _within(first)
            await _within(asyncio.gather(second, batcher(_two(2))))
            assert (batcher.counts.batches, batcher.counts.rows) == (2, 3)

    asyncio.run(serve())
    assert model.seen == [(1, 1), (8, 1)]
