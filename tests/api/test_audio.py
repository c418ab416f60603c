"""Audio front ends are compiled whole, for every length of the signal, and agree with LiteRT."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT

import jitdelegate
from tests.api.partial_models import skip_without_host
from tests.targets.audio import birds, words

FRONT_ENDS = [
    pytest.param(words, (400,), id="words"),
    pytest.param(words, (1234,), id="words of another length"),
    pytest.param(birds, (1, 900), id="birds"),
    pytest.param(birds, (3, 900), id="birds, three signals"),
]
ERROR = 5e-7
"""Norm of the difference over the norm of LiteRT's answer."""


def answer(interpreter: object, shape: tuple[int, ...]) -> np.ndarray:
    (given,) = interpreter.get_input_details()
    interpreter.resize_tensor_input(given["index"], shape)
    interpreter.allocate_tensors()
    signal = np.sin(np.arange(np.prod(shape)) / 7) + np.random.default_rng(0).normal(size=np.prod(shape)) / 9
    interpreter.set_tensor(given["index"], signal.reshape(shape).astype(np.float32))
    interpreter.invoke()
    (made,) = interpreter.get_output_details()
    return np.asarray(interpreter.get_tensor(made["index"]))


def error(found: np.ndarray, expected: np.ndarray) -> float:
    assert found.shape == expected.shape
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize(("make", "shape"), FRONT_ENDS)
def test_a_front_end_is_compiled_whole(make: Callable[[], bytes], shape: tuple[int, ...], target: str) -> None:
    content = make()
    delegate = jitdelegate.GpuDelegate(target=target, serialization_dir=False)
    ours = jitdelegate.Interpreter(model_content=content, experimental_delegates=[delegate])
    found, expected = answer(ours, shape), answer(LiteRT(model_content=content), shape)
    report = ours.report()
    assert (report.fully_delegated, report.target) == (True, target)
    assert error(found, expected) < ERROR


@pytest.mark.parametrize(("make", "shape"), FRONT_ENDS)
def test_a_front_end_in_litert_s_own_interpreter(make: Callable[[], bytes], shape: tuple[int, ...]) -> None:
    skip_without_host()
    content = make()
    delegate = jitdelegate.GpuDelegate(target="cpu", serialization_dir=False)
    ours = LiteRT(model_content=content, experimental_delegates=[delegate])
    assert error(answer(ours, shape), answer(LiteRT(model_content=content), shape)) < ERROR


@pytest.mark.parametrize("left", ["COMPLEX_ABS", "RFFT2D", "RESHAPE"])
def test_complex_numbers_do_not_cross_to_litert(left: str) -> None:
    """An operator on the other side of complex numbers goes with them; the rest of the front end is compiled."""
    content = words()
    only = {"MUL", "GATHER", "PAD", "FULLY_CONNECTED", "LOG", "RFFT2D", "RESHAPE", "COMPLEX_ABS", "STRIDED_SLICE"} - {
        left
    }
    options = {"partitioning": "all", "only_ops": ",".join(sorted(only)), "target": "cpu", "serialization_dir": False}
    ours = jitdelegate.Interpreter(model_content=content, experimental_delegates=[jitdelegate.GpuDelegate(**options)])
    assert error(answer(ours, (400,)), answer(LiteRT(model_content=content), (400,))) < ERROR
    places = {each.op: each.place for each in ours.report().operators}
    assert (places["RFFT2D"], places["COMPLEX_ABS"], places["LOG"]) == ("litert", "litert", "cpu")


def test_a_partition_that_litert_cuts_between_complex_numbers_is_not_compiled() -> None:
    skip_without_host()
    content = words()
    delegate = jitdelegate.GpuDelegate(target="cpu", serialization_dir=False)
    interpreter = LiteRT(model_content=content, experimental_delegates=[delegate])
    answer(interpreter, (400,))
    shapes = {each["index"]: tuple(each["shape"]) for each in interpreter.get_tensor_details()}
    found = next(each.index for each in delegate.report().operators if each.op == "RFFT2D")
    delegate._hosted.kernel(0, (found,), shapes, 0)
    assert any("is complex64, which does not pass to and from LiteRT" in note for note in delegate.report().notes)
