"""DynamicBatcher: rows that coroutines await at the same time run together."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

import jitdelegate
from jitdelegate import DeviceError, DynamicBatcher, TensorError
from tests.api import small_models

ROWS = np.random.default_rng(1).standard_normal((40, 8, 8, 3)).astype(np.float32)


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


@pytest.mark.parametrize("wrong", [{"max_batch_size": 0}, {"max_delay": -1.0}, {"max_waiting": 0}])
def test_wrong_numbers_are_named(model: jitdelegate.Model, wrong: dict[str, Any]) -> None:
    with pytest.raises(TensorError, match=str(next(iter(wrong.values())))):
        DynamicBatcher(model, **wrong)
