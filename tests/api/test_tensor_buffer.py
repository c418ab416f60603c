"""TensorBuffer on the host: compared with LiteRT's, shared with other libraries without copies, alive as long as
needed."""

from __future__ import annotations

import copy
import ctypes
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from jitdelegate.api.tensor_buffer import TensorBuffer
from jitdelegate.errors import TensorError
from jitdelegate.runtime.binding import Place
from jitdelegate.runtime.element_types import TYPES, is_packed, nbytes_of
from jitdelegate.runtime.event import Event
from tests import imports
from tests.api import programs
from tests.child import answer_of

LITERT = pytest.importorskip("ai_edge_litert.tensor_buffer").TensorBuffer
VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)
DTYPES = [name for name in TYPES if not is_packed(name)]


def numpy_type(name: str) -> Any:
    """numpy's type, or that of ml_dtypes."""
    return np.dtype(getattr(ml_dtypes, name, name))


def aligned(values: np.ndarray, by: int = 64, past: int = 0) -> np.ndarray:
    """A copy that lies `past` bytes behind a multiple of `by`."""
    room = np.zeros(values.nbytes + by + past, np.uint8)
    start = -room.ctypes.data % by + past
    copied = room[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    copied[...] = values
    return copied


def outcome(act: Callable[[], Any]) -> Any:
    """What a call answers, as plain values, or the built-in classes of its error."""
    try:
        found = act()
    except (ValueError, RuntimeError, TypeError) as error:
        return [kind for kind in (ValueError, RuntimeError, TypeError) if isinstance(error, kind)][-1:]
    return (found.dtype.name, found.shape, found.tolist()) if isinstance(found, np.ndarray) else found


def written(kind: Any, values: Any) -> Any:
    """What a buffer of six floats holds after a write, which is not its first."""
    buffer = kind.create_from_host_memory(aligned(VALUES))
    buffer.write(VALUES)
    buffer.write(values)
    return buffer.read(6, np.float32)


def destroyed(kind: Any) -> Any:
    """A buffer after its end, which came twice."""
    buffer = kind.create_from_host_memory(aligned(VALUES))
    buffer.write(VALUES)
    buffer.destroy()
    buffer.destroy()
    return buffer


READ_ONLY = np.arange(6, dtype=np.float32)
READ_ONLY.flags.writeable = False
WRITTEN = {
    "other shape": VALUES.reshape(3, 2),
    "fewer": np.full(2, 9, np.float32),
    "more": np.full(7, 9, np.float32),
    "none": np.zeros(0, np.float32),
    "bytes of int8": np.arange(24, dtype=np.int8),
    "float64": np.arange(6.0),
    "other byte order": np.arange(6, dtype=">f4"),
    "list": [1.0] * 6,
    "bytes": bytes(24),
    "every second": np.arange(12, dtype=np.float32).reshape(2, 6)[:, ::2],
    "transposed": VALUES.reshape(3, 2).T,
    "read-only": READ_ONLY,
}
READ = [
    *((6, np.float32), (6, "float32"), (2, np.float32), (0, np.float32), (-1, np.float32), (7, np.float32)),
    *((6, np.int32), (24, np.int8), (6, np.float64), (6, float), (6, "nonsense"), ((2, 3), np.float32)),
]
MADE = {
    **{f"shape {shape}": np.ones(shape, np.float32) for shape in ((0,), (2, 0, 3), (1,), (1,) * 9)},
    **{str(dtype): np.ones((2, 2), dtype) for dtype in ("float16", "int32", "int8", "uint8", "bool")},
    **{name: np.ones((2, 2), numpy_type(name)) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4")},
    "strings": np.zeros((2, 2), "S4"),
    "objects": np.zeros((2, 2), object),
    "list": [1.0],
    "every second": np.zeros((4, 4), np.float32)[:, ::2],
}


@pytest.mark.parametrize("name", WRITTEN)
def test_writes_are_litert_s(name: str) -> None:
    ours, theirs = (outcome(lambda kind=kind: written(kind, WRITTEN[name])) for kind in (TensorBuffer, LITERT))
    assert ours == theirs


@pytest.mark.parametrize(
    ("dtype", "other"), [("float32", "int32"), ("uint8", "int8"), ("int8", "bool"), ("int32", "float32")]
)
def test_another_type_of_the_same_size_is_refused_where_litert_takes_its_bytes(dtype: str, other: str) -> None:
    buffer = TensorBuffer.create(dtype, (6,))
    buffer.write(np.arange(6).astype(dtype))
    with pytest.raises(TensorError, match=f"has the type {other}, expected {dtype}"):
        buffer.write(np.ones(6, other))
    np.testing.assert_array_equal(buffer.read(), np.arange(6).astype(dtype))


def test_a_type_that_numpy_lacks_is_written_as_bytes() -> None:
    buffer = TensorBuffer.create("float8_e5m2", (2,))
    buffer.write(np.array([0x3C, 0x40], np.uint8))
    assert bytes(memoryview(buffer.read(2, "uint8"))) == b"\x3c\x40"


@pytest.mark.parametrize(("count", "dtype"), READ, ids=str)
def test_reads_are_litert_s(count: Any, dtype: Any) -> None:
    ours, theirs = (
        [outcome(lambda buffer=buffer: buffer.read(count, dtype)) for _ in range(2)]
        for buffer in (kind.create_from_host_memory(aligned(VALUES)) for kind in (TensorBuffer, LITERT))
    )
    assert ours == theirs


@pytest.mark.parametrize("name", MADE)
def test_buffers_are_made_and_described_as_litert_s(name: str) -> None:
    ours, theirs = (
        outcome(lambda kind=kind: kind.create_from_host_memory(MADE[name]).get_tensor_details())
        for kind in (TensorBuffer, LITERT)
    )
    assert ours == theirs


@pytest.mark.parametrize(
    "act", [lambda b: b.read(6, np.float32), lambda b: b.write(VALUES), lambda b: b.get_tensor_details()]
)
def test_a_destroyed_buffer_answers_as_litert_s(act: Callable[[Any], Any]) -> None:
    assert outcome(lambda: act(destroyed(TensorBuffer))) == outcome(lambda: act(destroyed(LITERT))) == [RuntimeError]
    with pytest.raises(ValueError, match="TensorBuffer has been destroyed"):
        _ = destroyed(TensorBuffer).capsule


def test_aligned_memory_is_used_in_place_and_other_memory_copied() -> None:
    values, elsewhere = aligned(VALUES), aligned(VALUES, past=4)
    buffer, copied = map(TensorBuffer.create_from_host_memory, (values, elsewhere))
    assert buffer.place.address == values.ctypes.data == buffer.view().ctypes.data
    values[0, 0] = elsewhere[0, 0] = 42
    assert buffer.view()[0, 0] == 42 and copied.view()[0, 0] == 0
    assert copied.place.address % 64 == 0 and copied.shape == (2, 3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 3), (), (2, 0, 3)], ids=str)
def test_every_type_goes_in_and_out(dtype: str, shape: tuple[int, ...]) -> None:
    values = np.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape) % 3).astype(numpy_type(dtype))
    buffer = TensorBuffer.create(dtype, shape)
    buffer.write(values)
    assert buffer.nbytes == values.nbytes
    for found in (buffer.read(), buffer.view(), np.asarray(buffer), pickle.loads(pickle.dumps(buffer)).read()):
        assert (found.dtype, found.shape) == (values.dtype, shape)
        np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("dtype", [name for name in DTYPES if name not in ("bfloat16",) and "float8" not in name])
def test_numpy_shares_every_type_of_its_own_through_dlpack(dtype: str) -> None:
    buffer = TensorBuffer.create(dtype, (2, 3))
    array = np.from_dlpack(buffer)
    assert (array.dtype, array.shape, array.ctypes.data) == (np.dtype(dtype), (2, 3), buffer.place.address)


@pytest.mark.parametrize("version", [None, (1, 0)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_capsules_lead_back_to_the_same_memory(dtype: str, version: Any) -> None:
    buffer = TensorBuffer.create(dtype, (2, 3))
    again = TensorBuffer.create_from_dlpack(buffer.__dlpack__(max_version=version))
    assert (again.place.address, again.dtype, again.shape) == (buffer.place.address, dtype, (2, 3))


@pytest.mark.parametrize("size", [2, 0])
def test_numpy_s_memory_is_taken_in_place(size: int) -> None:
    values = np.zeros((size, 3), np.int16)
    buffer = TensorBuffer.create_from_dlpack(values)
    assert buffer.place.address == values.ctypes.data or not size
    assert buffer.shape == values.shape and not buffer.place.is_readonly
    values.flags.writeable = False
    fixed = TensorBuffer.create_from_dlpack(values)
    assert fixed.place.is_readonly and not fixed.view().flags.writeable
    with pytest.raises(TensorError, match="read-only"):
        fixed.write(np.ones(values.size, np.int16))
    with pytest.raises(BufferError):
        fixed.__dlpack__()
    assert not np.from_dlpack(fixed).flags.writeable


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_a_capsule_is_consumed_once(version: Any) -> None:
    capsule = VALUES.copy().__dlpack__(max_version=version)
    TensorBuffer.create_from_dlpack(capsule)
    with pytest.raises(TensorError, match="consumed before"):
        TensorBuffer.create_from_dlpack(capsule)
    own = TensorBuffer.create("int8", (3,)).__dlpack__(max_version=version)
    TensorBuffer.create_from_dlpack(own)
    with pytest.raises(TensorError, match="consumed before"):
        TensorBuffer.create_from_dlpack(own)


def of_unknown_type() -> Any:
    """A capsule of vectors of four floats."""
    capsule = VALUES.__dlpack__()
    find = ctypes.pythonapi.PyCapsule_GetPointer
    find.argtypes, find.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
    ctypes.c_uint16.from_address(find(capsule, b"dltensor") + 22).value = 4
    return capsule


def test_what_cannot_be_taken_is_told_and_stays_untaken() -> None:
    for value, reason in (
        (3, "expected an object with __dlpack__"),
        (VALUES[:, ::2], r"shape \[2, 2\] has the strides \[3, 2\], expected contiguous"),
        (np.zeros(2, np.longdouble), "does not share its memory through DLPack"),
        (of_unknown_type(), r"unsupported dtype \(code 2, 32 bits, 4 lanes\)"),
    ):
        with pytest.raises(TensorError, match=reason):
            TensorBuffer.create_from_dlpack(value)
    capsule = VALUES[:, ::2].__dlpack__()
    for _ in range(2):
        with pytest.raises(TensorError, match="contiguous"):
            TensorBuffer.create_from_dlpack(capsule)
    assert TensorBuffer.create_from_dlpack(VALUES[:1, :].copy()[:, None]).shape == (1, 1, 3)


def test_consumers_that_ask_for_what_is_not_there_are_refused() -> None:
    buffer = TensorBuffer.create("float32", (2,))
    assert buffer.__dlpack_device__() == (1, 0) and not hasattr(buffer, "__cuda_array_interface__")
    with pytest.raises(BufferError, match="cannot be moved"):
        buffer.__dlpack__(dl_device=(2, 0))
    copied = TensorBuffer.create_from_dlpack(buffer.__dlpack__(copy=True))
    assert copied.place.address != buffer.place.address
    with pytest.raises(BufferError, match="share bytes"):
        TensorBuffer.create("int4", (3,)).__dlpack__()


class Owner(np.ndarray):
    """An array whose end can be watched."""


@pytest.mark.parametrize(
    "make",
    [
        lambda buffer: buffer.view(),
        lambda buffer: np.asarray(buffer),
        lambda buffer: np.from_dlpack(buffer),
        lambda buffer: buffer.__dlpack__(),
        lambda buffer: buffer.__dlpack__(max_version=(1, 0)),
        lambda buffer: TensorBuffer.create_from_dlpack(buffer),
    ],
)
def test_memory_lives_as_long_as_anyone_uses_it_and_no_longer(make: Callable[[TensorBuffer], Any]) -> None:
    values = aligned(VALUES).view(Owner)
    end = weakref.ref(values)
    buffer = TensorBuffer.create_from_host_memory(values)
    user = make(buffer)
    buffer.destroy()
    del buffer, values
    gc.collect()
    assert end() is not None
    del user
    gc.collect()
    assert end() is None


def test_a_capsule_that_is_dropped_while_an_error_is_raised_leaves_the_error() -> None:
    def refuse(capsule: object) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        refuse(TensorBuffer.create("int8", (3,)).__dlpack__())
    with pytest.raises(TypeError):
        divmod(TensorBuffer.create("int8", (3,)).__dlpack__(), 1)  # type: ignore[operator]


def test_copies_have_memory_of_their_own() -> None:
    buffer = TensorBuffer.create("float32", (2, 3))
    for copied in (copy.copy(buffer), copy.deepcopy(buffer)):
        buffer.write(VALUES)
        assert not copied.view().any() and copied.shape == (2, 3)
        buffer.write(np.zeros(6, np.float32))


def test_elements_that_share_bytes_are_read_and_written_as_bytes() -> None:
    buffer = TensorBuffer.create("int4", (3, 3))
    packed = np.arange(5, dtype=np.uint8)
    buffer.write(packed)
    assert (buffer.nbytes, buffer.shape) == (5, (3, 3)) and buffer.read().tolist() == packed.tolist()


def test_strings_and_sizes_that_cannot_be_are_refused_in_a_sentence() -> None:
    for dtype, shape, reason in (
        ("string", (2,), "strings differ in length"),
        ("float31", (2,), "Unsupported dtype: float31"),
        ("int8", (-1,), "a size is negative"),
        ("int8", (1 << 40, 1 << 40), "too many"),
    ):
        with pytest.raises(TensorError, match=reason):
            TensorBuffer.create(dtype, shape)
    assert nbytes_of("uint4", (3,)) == 2


class CountingEvent(Event):
    """An event that counts who waits for it, and happens then."""

    waits = 0

    def _block(self, timeout: float | None) -> bool:
        self.waits += 1
        self.signal()
        return True


def test_whoever_uses_the_content_waits_for_the_event_once() -> None:
    buffer = TensorBuffer.create("float32", (2, 3))
    for use in (buffer.read, buffer.view, buffer.__dlpack__, lambda: buffer.write(VALUES), buffer.wait_event):
        event = CountingEvent()
        buffer.set_event(event)
        assert buffer.has_event() and buffer.get_event() is event
        use()
        buffer.read()
        assert event.waits == 1 and not buffer.has_event()
    buffer.set_event(CountingEvent())
    buffer.clear_event()
    buffer.read()


def test_whoever_writes_waits_for_readers_and_needs_no_former_content() -> None:
    buffer = TensorBuffer.create("float32", (2, 3))
    readers = CountingEvent(), CountingEvent()
    for reader in readers:
        buffer.add_reader(reader)
    buffer.read()
    assert not any(reader.waits for reader in readers) and buffer.users() == readers
    failed = Event()
    failed._finish(ValueError("on purpose"))
    buffer.set_event(failed)
    with pytest.raises(ValueError, match="on purpose"):
        buffer.read()
    buffer.write(VALUES)
    assert [reader.waits for reader in readers] == [1, 1] and not buffer.has_event()
    assert buffer.users() == ()
    with pytest.raises(TensorError, match=r"an event is int, expected jitdelegate\.Event"):
        buffer.set_event(1)  # type: ignore[arg-type]


def test_outputs_of_runs_can_be_written_to_buffers_without_numpy_s_arrays() -> None:
    from jitdelegate.runtime.buffers import tensor_class

    made = tensor_class("float32", (2, 3)).from_buffer_copy(VALUES.tobytes())
    buffer = TensorBuffer.create("float32", (2, 3))
    buffer.write(made)
    assert buffer.view().tolist() == VALUES.tolist()


def test_buffers_of_the_host_need_no_numpy() -> None:
    answer_of(imports.a_buffer_of_the_host)


def test_places_copy_bytes() -> None:
    memory = ctypes.create_string_buffer(b"abcd", 4)
    place = Place(ctypes.addressof(memory), 4, memory)
    place.store(ctypes.addressof(memory) + 2, 1)
    assert memory.raw == b"cbcd"


def test_a_destroyed_buffer_is_told_where_python_drops_assertions() -> None:
    told = answer_of(programs.use_a_destroyed_buffer, flags=["-O"])
    assert told.splitlines() == ["TensorBuffer has been destroyed"] * 3
