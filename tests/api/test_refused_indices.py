"""An index outside the data ends a run as in LiteRT, through every interface, and does not affect the next run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT

import jitdelegate
from jitdelegate.api.compiled_model import CompiledModel
from jitdelegate.errors import DeviceError, RefusedValueError
from jitdelegate.tflite.write import ModelBuilder
from tests.api import partial_models as partial
from tests.api.refusing_models import GATHER, REFUSING, Values, built, chain, constant, rows

BAD = GATHER.bad[0]
OPTIONS: dict[str, Any] = {"serialization_dir": False, "num_threads": 1}


def load(content: bytes, target: str = "cpu", **options: Any) -> jitdelegate.Model:
    model = jitdelegate.load(content, target=target, options=OPTIONS | options)
    assert model.report().fully_delegated
    return model


def litert(content: bytes, values: Values, **arguments: Any) -> np.ndarray:
    interpreter = LiteRT(model_content=content, **arguments)
    interpreter.allocate_tensors()
    for detail, value in zip(interpreter.get_input_details(), values, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    found: np.ndarray = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    return found


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("name", REFUSING)
def test_what_litert_refuses_is_refused_in_its_words(name: str, target: str) -> None:
    case = REFUSING[name]
    model, expected = load(case.content, target), litert(case.content, case.good)
    np.testing.assert_array_equal(np.asarray(model(*case.good)), expected)
    for bad in case.bad:
        with pytest.raises(RuntimeError) as theirs:
            litert(case.content, case.inputs(bad))
        with pytest.raises(RefusedValueError) as ours:
            model(*case.inputs(bad))
        assert case.words in str(ours.value) and name.split()[0] in str(ours.value)
        own = str(ours.value).split(":")[0]
        assert own in str(theirs.value) or "positive_elements" in str(theirs.value) or "Invalid begin" in own
        np.testing.assert_array_equal(np.asarray(model(*case.good)), expected)
    for beyond in case.beyond:
        with pytest.raises(RefusedValueError):
            model(*case.inputs(beyond))


@pytest.mark.parametrize("threads", [1, 2])
def test_the_message_names_the_operator_and_the_index(threads: int) -> None:
    model = load(GATHER.content, num_threads=threads)
    with pytest.raises(RefusedValueError) as error:
        model(*GATHER.inputs(np.array([0, 1, -9, 7], np.int32)))
    words = "gather index out of bounds: found -9, expected an index from 0 to 2 (operator 0, GATHER)"
    assert str(error.value) == words
    model = load(REFUSING["EMBEDDING_LOOKUP"].content)
    with pytest.raises(RefusedValueError, match=r"Got 5, and bounds are \[0, 4\] \(operator 0, EMBEDDING_LOOKUP\)"):
        model(np.array([1, 5, 0], np.int32))


def run_interpreter(content: bytes) -> Callable[[Values], np.ndarray]:
    interpreter = jitdelegate.Interpreter(model_content=content, experimental_delegates=[delegate()])
    return _invoked(interpreter)


def run_inside_litert(content: bytes) -> Callable[[Values], np.ndarray]:
    partial.skip_without_host()
    return _invoked(LiteRT(model_content=content, experimental_delegates=[delegate()]))


def delegate() -> Any:
    return jitdelegate.GpuDelegate(**OPTIONS, target="cpu")


def _invoked(interpreter: Any) -> Callable[[Values], np.ndarray]:
    interpreter.allocate_tensors()

    def run(values: Values) -> np.ndarray:
        for detail, value in zip(interpreter.get_input_details(), values, strict=True):
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
        found: np.ndarray = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
        return found

    return run


def run_signature(content: bytes) -> Callable[[Values], np.ndarray]:
    interpreter = jitdelegate.Interpreter(model_content=content, experimental_delegates=[delegate()])
    runner = interpreter.get_signature_runner()
    return lambda values: np.asarray(runner(x0=values[0], x1=values[1])["y"])


def run_out(content: bytes) -> Callable[[Values], np.ndarray]:
    model, out = load(content), {"y": np.zeros((4, 5, 7), np.float32)}

    def run(values: Values) -> np.ndarray:
        model.run(dict(zip(("x0", "x1"), values, strict=True)), signature="serving_default", out=out)
        return out["y"].copy()

    return run


def opened(content: bytes, **options: Any) -> CompiledModel:
    return CompiledModel.create(content, target="cpu", serialization_dir=False, **options)


def _compiled(content: bytes, start: Callable[[CompiledModel, Any, Any], Any]) -> Callable[[Values], np.ndarray]:
    model = opened(content)
    given, made = model.create_input_buffers(0), model.create_output_buffers(0)

    def run(values: Values) -> np.ndarray:
        for buffer, value in zip(given, values, strict=True):
            buffer.write(value)
        start(model, given, made)
        return np.array(made[0].read(4 * 5 * 7, np.float32)).reshape(4, 5, 7)

    return run


def run_by_index(content: bytes) -> Callable[[Values], np.ndarray]:
    return _compiled(content, lambda model, given, made: model.run_by_index(0, given, made))


def run_by_name(content: bytes) -> Callable[[Values], np.ndarray]:
    def start(model: CompiledModel, given: Any, made: Any) -> None:
        model.run_by_name("serving_default", dict(zip(("x0", "x1"), given, strict=True)), {"y": made[0]})

    return _compiled(content, start)


def run_async(content: bytes) -> Callable[[Values], np.ndarray]:
    return _compiled(content, lambda model, given, made: model.run_async(given, made).wait())


ROADS = {
    each.__name__.removeprefix("run_"): each
    for each in (
        *(run_interpreter, run_inside_litert, run_signature, run_out),
        *(run_by_index, run_by_name, run_async),
    )
}


@pytest.mark.parametrize("road", ROADS)
def test_every_road_refuses_and_goes_on(road: str) -> None:
    for content in (GATHER.content, chain("ABS"), chain("FLOOR")):
        run, expected = ROADS[road](content), litert(content, GATHER.good)
        for bad in GATHER.bad:
            with pytest.raises(RuntimeError, match="gather index out of bounds"):
                run(GATHER.inputs(bad))
            np.testing.assert_array_equal(run(GATHER.good), expected)


@pytest.mark.parametrize("name", REFUSING)
def test_inside_litert_every_operator_refuses(name: str) -> None:
    case = REFUSING[name]
    run = run_inside_litert(case.content)
    for bad in case.bad:
        with pytest.raises(RuntimeError) as error:
            run(case.inputs(bad))
        assert case.words in str(error.value) and "jitdelegate" in str(error.value)
    np.testing.assert_array_equal(run(case.good), litert(case.content, case.good))


@pytest.mark.parametrize("loader", partial.LOADERS)
@pytest.mark.parametrize("only", ["GATHER", "ABS"])
def test_partitions_refuse(loader: str, only: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The partition that gathers is compiled, or LiteRT's."""
    partial.choose_loader(monkeypatch, loader)
    content = chain("ABS")
    model = jitdelegate.load(content, options=partial.options(only_ops=(only,)))
    expected = litert(content, GATHER.good)
    for bad in GATHER.bad:
        with pytest.raises(RuntimeError, match="gather index out of bounds"):
            model(*GATHER.inputs(bad))
        np.testing.assert_array_equal(np.asarray(model(*GATHER.good)), expected)


def test_of_many_requests_the_refused_ones_fail() -> None:
    model = opened(GATHER.content, requests_in_flight=2)
    pairs, events = [], []
    for number in range(600):  # more than the ring of requests holds
        given, made = model.create_input_buffers(0), model.create_output_buffers(0)
        for buffer, value in zip(given, GATHER.inputs(BAD) if number % 7 == 3 else GATHER.good, strict=True):
            buffer.write(value)
        pairs.append((given, made))
        events.append(model.run_async(given, made))
    failed = [number for number, event in enumerate(events) if _failure(event)]
    assert failed == [number for number in range(600) if number % 7 == 3]
    assert "gather index out of bounds" in str(_failure(events[3]))


def _failure(event: Any) -> RuntimeError | None:
    try:
        event.wait()
    except RuntimeError as error:
        return error
    return None


def test_a_request_that_reads_what_a_refused_one_writes_fails_too() -> None:
    first = opened(GATHER.content)
    given, made = first.create_input_buffers(0), first.create_output_buffers(0)
    for buffer, value in zip(given, GATHER.inputs(BAD), strict=True):
        buffer.write(value)
    event = first.run_async(given, made)
    again = first.run_async(given, made)
    assert "gather index" in str(_failure(again)) and "gather index" in str(_failure(event))
    given[1].write(GATHER.good[1])
    first.run_async(given, made).wait()


def test_a_request_is_refused_whose_model_was_closed_meanwhile() -> None:
    model = opened(GATHER.content)
    given, made = model.create_input_buffers(0), model.create_output_buffers(0)
    for buffer, value in zip(given, GATHER.inputs(BAD), strict=True):
        buffer.write(value)
    events = [model.run_async(given, made) for _ in range(3)]
    model.close()
    assert all("gather index" in str(_failure(event)) for event in events)


def test_a_row_that_is_refused_fails_alone_in_a_batch() -> None:
    """The batcher runs the rows of a refused batch one by one."""

    async def main() -> list[Any]:
        model = jitdelegate.load(rows(), target="cpu", options=OPTIONS)
        async with jitdelegate.DynamicBatcher(model, max_batch_size=4, max_delay=1.0) as batcher:
            calls = (batcher({"x0": np.array(pair, np.int32)}) for pair in ([0, 1], [4, 5], [2, 2], [-1, 0]))
            return await asyncio.gather(*calls, return_exceptions=True)

    good, beyond, other, negative = asyncio.run(main())
    np.testing.assert_array_equal(good["y"], [[0, 1], [2, 3]])
    np.testing.assert_array_equal(other["y"], [[4, 5], [4, 5]])
    assert isinstance(beyond, RefusedValueError) and "found 5" in str(beyond)
    assert isinstance(negative, RefusedValueError) and "found -1" in str(negative)


def test_a_batch_predictor_says_what_is_wrong() -> None:
    predict = jitdelegate.BatchPredictor(rows(), options=OPTIONS | {"target": "cpu"})
    with pytest.raises(RefusedValueError, match="found 5"):
        predict({"x0": np.array([[0, 1], [4, 5]], np.int32)})
    assert predict({"x0": np.array([[0, 1]], np.int32)})["y"].tolist() == [[[0, 1], [2, 3]]]


def test_constants_outside_are_litert_s() -> None:
    """LiteRT runs the operator, and refuses it when it runs."""
    model = jitdelegate.load(constant(np.array([0, 9], np.int32)), options=OPTIONS)
    with pytest.raises(DeviceError, match="gather index out of bounds"):
        model(GATHER.good[0])


@pytest.mark.parametrize("divisor", [0.0, -0.0])
def test_a_constant_divisor_of_zero_is_litert_s(divisor: float) -> None:
    def build(model: ModelBuilder) -> int:
        return model.op("FLOOR_DIV", [model.input((2,)), model.constant(np.array([1, divisor], np.float32))], (2,))

    model = jitdelegate.load(built(build), options=OPTIONS)
    with pytest.raises(DeviceError, match="Division by 0"):
        model(np.ones(2, np.float32))


def test_a_program_from_the_cache_refuses_too(tmp_path: Path) -> None:
    options = OPTIONS | {"serialization_dir": str(tmp_path)}
    for hit in (False, True):
        model = jitdelegate.load(GATHER.content, target="cpu", options=options)
        assert model.report().cache.hit == hit
        with pytest.raises(RefusedValueError, match="operator 0, GATHER"):
            model(*GATHER.inputs(BAD))


def test_checks_take_no_kernels_of_their_own() -> None:
    """As many as of the operator whose constant indices are known to be right."""
    models = load(GATHER.content), load(constant(GATHER.good[1]))
    assert [model.report().kernels for model in models] == [1, 1]
