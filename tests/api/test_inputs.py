"""What counts as an input: the same compiled and on LiteRT, and nothing leaves the compiled program unasked."""

from __future__ import annotations

import array
import ctypes
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitdelegate
from jitdelegate.errors import TensorError
from jitdelegate.runtime.buffers import LARGEST_COPY
from jitdelegate.tflite.write import ModelBuilder
from tests import imports
from tests.api import small_models
from tests.child import answer_of

VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)
RAW = VALUES.tobytes()

ACCEPTED: dict[str, Any] = {
    "array": VALUES,
    "nested list": VALUES.tolist(),
    "bytes": RAW,
    "view of bytes": memoryview(RAW),
    "flat uint8 array": np.frombuffer(RAW, np.uint8),
    "every other column": memoryview(np.repeat(VALUES, 2, axis=1)[:, ::2]),
    "array.array": array.array("f", VALUES.ravel().tolist()),
    "flat ctypes floats": (ctypes.c_float * 6)(*VALUES.ravel().tolist()),
    "nested ctypes floats": (ctypes.c_float * 3 * 2).from_buffer_copy(RAW),
    "ctypes bytes": (ctypes.c_ubyte * 24).from_buffer_copy(RAW),
    "ctypes characters": ctypes.create_string_buffer(RAW, 24),
}
REFUSED: dict[str, Any] = {
    "flat array": VALUES.ravel(),
    "array of another type and length": VALUES.astype(np.float64),
    "doubles of the same length in bytes": array.array("d", [0.0] * 3),
    "short list": [[1.0, 2.0, 3.0]],
    "uneven list": [[1.0, 2.0, 3.0], [1.0]],
    "nothing in a list": [[None] * 3] * 2,
    "texts in a list": [["1"] * 3] * 2,
    "nothing": None,
    "text": "123456",
    "object with a shape": type("Odd", (), {"shape": 5})(),
}


@pytest.fixture(params=["cpu", "litert"])
def model(request: pytest.FixtureRequest) -> jitdelegate.Model:
    return jitdelegate.load(small_models.two_outputs(), target=request.param, serialization_dir=False)


@pytest.mark.parametrize("value", ACCEPTED.values(), ids=ACCEPTED)
def test_the_same_values_are_taken_compiled_and_on_litert(model: jitdelegate.Model, value: Any) -> None:
    total, product = model(value, value)
    np.testing.assert_array_equal(total, 2 * VALUES)
    np.testing.assert_array_equal(product, VALUES**2)


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
def test_the_same_values_are_refused_compiled_and_on_litert(model: jitdelegate.Model, value: Any) -> None:
    with pytest.raises(TensorError, match="'right'"):
        model(VALUES, value)


def test_a_later_call_takes_and_refuses_what_a_first_one_does(model: jitdelegate.Model) -> None:
    """The first array makes the way for further small ones."""
    for value in ACCEPTED.values():
        np.testing.assert_array_equal(model(VALUES, VALUES)[0], 2 * VALUES)
        np.testing.assert_array_equal(model(VALUES, value)[0], 2 * VALUES)
    np.testing.assert_array_equal(model(VALUES, (VALUES + 1).copy(order="F"))[0], 2 * VALUES + 1)
    for wrong in (*REFUSED.values(), VALUES.astype(np.float64), VALUES.astype(">f4"), VALUES.T):
        np.testing.assert_array_equal(model(VALUES, VALUES)[0], 2 * VALUES)
        with pytest.raises(TensorError, match="'right'"):
            model(VALUES, wrong)


def test_small_arrays_of_several_threads_do_not_mix(model: jitdelegate.Model) -> None:
    wrong: list[float] = []

    def call(number: float) -> None:
        value = np.full((2, 3), number, np.float32)
        for _ in range(200):
            wrong.extend({float(one) for one in np.asarray(model(value, value)[0]).ravel()} - {2 * number})

    threads = [threading.Thread(target=call, args=(number,)) for number in (1.0, 5.0, 9.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("nbytes", [24, LARGEST_COPY, LARGEST_COPY + 4])
def test_arrays_of_all_sizes_are_read_at_each_call(nbytes: int) -> None:
    builder = ModelBuilder()
    builder.output(builder.op("NEG", [builder.input((nbytes // 4,))], (nbytes // 4,)))
    model = jitdelegate.load(builder.finish(), target="cpu", serialization_dir=False)
    value = np.arange(nbytes // 4, dtype=np.float32)
    for _ in range(3):
        value += 1
        np.testing.assert_array_equal(model(value), -value)


@pytest.mark.parametrize("target", ["cpu", "litert"])
@pytest.mark.parametrize("value", [[1, 2, 3, 4], array.array("i", [1, 2, 3, 4])])
def test_integers_come_from_lists_and_flat_buffers(value: Any, target: str) -> None:
    model = jitdelegate.load(small_models.integers(), target=target, serialization_dir=False)
    assert model(value, value).tolist() == [2, 4, 6, 8]


@pytest.mark.parametrize("target", ["cpu", "litert"])
def test_fractions_are_not_cut_to_integers(target: str) -> None:
    model = jitdelegate.load(small_models.integers(), target=target, serialization_dir=False)
    with pytest.raises(TensorError, match=r"'left'.*float64 values, expected numbers that fit int32"):
        model([0.5, 1, 2, 3], [1, 2, 3, 4])


def test_no_input_leaves_the_compiled_program_but_an_array_of_another_open_size(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(small_models.convolution(open_batch=True))
    jitdelegate.load(path, serialization_dir=tmp_path / "cache")
    answer_of(imports.inputs_of_many_kinds, path, tmp_path / "cache")


@pytest.mark.parametrize("target", ["cpu", "litert"])
def test_a_buffer_has_no_open_sizes(target: str) -> None:
    model = jitdelegate.load(small_models.convolution(open_batch=True), target=target, serialization_dir=False)
    batch = np.zeros((2, 8, 8, 3), np.float32)
    for wrong in (memoryview(batch), batch.tobytes(), batch.tolist(), batch.astype(np.float64)):
        with pytest.raises(TensorError, match="'image'"):
            model(wrong)


@pytest.mark.parametrize("target", ["cpu", "litert"])
def test_bytes_are_raw_memory_where_the_only_size_is_open(target: str) -> None:
    builder = ModelBuilder()
    value = builder.input((6,), name="value", shape_signature=(-1,))
    builder.output(builder.op("MUL", [value, value], (6,), name="square"))
    model = jitdelegate.load(builder.finish(), target=target, serialization_dir=False)
    for same in (RAW, memoryview(RAW), np.frombuffer(RAW, np.uint8), VALUES.ravel()):
        np.testing.assert_array_equal(model(same), VALUES.ravel() ** 2)
    assert model(np.ones(9, np.float32)).shape == (9,)
