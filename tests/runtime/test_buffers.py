"""Inputs are read where they lie; outputs are tensors without numpy."""

from __future__ import annotations

import array
import ctypes
import gc
import math
import mmap
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from jitdelegate.errors import DeviceError, TensorError
from jitdelegate.program.program import Port
from jitdelegate.runtime.buffers import ELEMENTS, Borrowed, borrow, integers, tensor_class
from tests import imports
from tests.child import answer_of

SHAPES = [(), (3,), (0,), (2, 0, 3), (2, 3), (1, 2, 3, 4, 1)]


def port(dtype: str, shape: tuple[int, ...]) -> Port:
    nbytes = math.prod(shape) * ctypes.sizeof(ELEMENTS[dtype])
    return Port(name="x", index=0, shape=shape, dtype=dtype, nbytes=nbytes)


def read(borrowed: Borrowed) -> bytes:
    return ctypes.string_at(borrowed.address, borrowed.nbytes) if borrowed.nbytes else b""


def address(values: np.ndarray) -> int:
    return int(values.__array_interface__["data"][0])


@pytest.mark.parametrize("dtype", ELEMENTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_tensor_is_an_array_to_numpy_without_a_copy(dtype: str, shape: tuple[int, ...]) -> None:
    tensor = tensor_class(dtype, shape)()
    values = np.asarray(tensor)
    assert (values.shape, values.dtype) == (tensor.shape, tensor.dtype) == (shape, dtype)
    assert values.nbytes == tensor.nbytes == len(bytes(tensor))
    values[...] = np.arange(values.size).reshape(shape) % 2
    assert tensor.tolist() == values.tolist()
    assert bytes(tensor) == values.tobytes()


@pytest.mark.parametrize("dtype", ELEMENTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_arrays_tensors_and_their_bytes_are_borrowed_in_place(dtype: str, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(1).integers(0, 2, shape).astype(dtype)
    assert borrow(values, port(dtype, shape)).address == address(values) or not values.size
    for same in (values, values.tobytes(), bytearray(values.tobytes()), memoryview(values.tobytes())):
        assert read(borrow(same, port(dtype, shape))) == values.tobytes()
    tensor = tensor_class(dtype, shape)()
    assert borrow(tensor, port(dtype, shape)).address == ctypes.addressof(tensor) or not values.size


def test_mapped_and_typed_standard_buffers_are_borrowed_in_place() -> None:
    pages = mmap.mmap(-1, 8)
    pages[:] = b"12345678"
    assert read(borrow(pages, port("float32", (2,)))) == b"12345678"
    floats = array.array("f", [1, 2])
    assert borrow(floats, port("float32", (2,))).address == floats.buffer_info()[0]


@pytest.mark.parametrize(
    "values",
    [
        np.arange(12, dtype="f4").reshape(3, 4).T,
        np.arange(24, dtype="f4").reshape(4, 6)[:, ::2],
        np.arange(12, dtype="f4").reshape(4, 3)[::-1],
        np.asfortranarray(np.arange(12, dtype="f4").reshape(4, 3)),
    ],
)
def test_what_is_not_contiguous_is_copied_in_row_major_order(values: np.ndarray) -> None:
    assert read(borrow(values, port("float32", (4, 3)))) == np.ascontiguousarray(values).tobytes()


class DlpackArray:
    """An array that speaks DLPack alone."""

    def __init__(self, values: np.ndarray, device: tuple[int, int] = (1, 0)) -> None:
        self.values, self.device = values, device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **asked: Any) -> Any:
        if self.device[0] != 1:
            raise BufferError("the memory is a GPU's")
        return self.values.__dlpack__(**asked)


def test_arrays_that_speak_dlpack_alone_are_borrowed_in_place() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert borrow(DlpackArray(values), port("float32", (2, 3))).address == address(values)
    with pytest.raises(TensorError, match=r"found int32\[2, 3\], expected float32"):
        borrow(DlpackArray(values.astype(np.int32)), port("float32", (2, 3)))
    with pytest.raises(TensorError, match="cannot be made from DlpackArray: "):
        borrow(DlpackArray(values, (2, 0)), port("float32", (2, 3)))


def test_what_is_not_aligned_to_its_elements_is_copied() -> None:
    shifted = memoryview(bytearray(b"x" + bytes(range(8))))[1:]
    borrowed = borrow(shifted, port("float32", (2,)))
    assert borrowed.address % 4 == 0 and read(borrowed) == bytes(range(8))


def test_lists_take_the_ports_type_and_arrays_keep_theirs() -> None:
    assert read(borrow([[1, 2], [3, 4]], port("int16", (2, 2)))) == np.array([1, 2, 3, 4], "i2").tobytes()

    class Wrapped:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            return np.zeros(2, "f8")

    with pytest.raises(TensorError, match=r"float64\[2\], expected float32\[2\] or 8 bytes"):
        borrow(Wrapped(), port("float32", (2,)))


@pytest.mark.parametrize(
    "value",
    [
        np.zeros(2, "f2"),
        np.zeros(2, "i4"),
        np.zeros((1, 2), "f4"),
        np.zeros(2, ">f4"),
        np.zeros(2, "c16"),
        np.zeros(1, "M8[s]"),
        bytes(7),
        bytes(9),
        memoryview(bytes(8)).cast("B", (2, 4)),
        ["a", "b"],
        object(),
        {},
    ],
)
def test_another_type_shape_or_length_is_refused(value: object) -> None:
    with pytest.raises(TensorError, match="'x'"):
        borrow(value, port("float32", (2,)))


def test_borrowed_memory_is_held_until_release() -> None:
    values = bytearray(8)
    borrowed = borrow(values, port("float32", (2,)))
    with pytest.raises(BufferError):
        values.append(0)
    borrowed.release()
    borrowed.release()
    values.append(0)


def test_a_dropped_borrow_lets_go() -> None:
    class Held(bytearray):
        pass

    values = Held(8)
    gone = weakref.ref(values)
    borrowed = borrow(values, port("float32", (2,)))
    del values
    gc.collect()
    assert gone() is not None
    del borrowed
    gc.collect()
    assert gone() is None


def test_arrays_of_another_type_are_made_on_request() -> None:
    tensor = tensor_class("int8", (2,))()
    assert tensor.__array__().dtype == "int8"
    assert tensor.__array__("float64").dtype == "float64"
    assert not np.shares_memory(tensor.__array__(copy=True), np.asarray(tensor))
    with pytest.raises(ValueError, match="cannot be shared as float64"):
        tensor.__array__("float64", copy=False)


def test_a_tensor_shows_its_type_and_shape() -> None:
    assert repr(tensor_class("float32", (1, 2))()) == "Tensor(float32[1, 2])"


def test_tensors_of_one_shape_share_a_class() -> None:
    assert tensor_class("float32", (1, 2)) is tensor_class("float32", (1, 2))


def test_a_type_that_no_tensor_has_is_refused() -> None:
    with pytest.raises(TensorError, match="complex64"):
        tensor_class("complex64", (1,))


@pytest.mark.parametrize("shape", [(1 << 62, 4), (1 << 70,), (-1, 4)])
def test_a_size_that_no_tensor_has_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(TensorError, match=r"a tensor float32\[.*\] cannot be made"):
        tensor_class("float32", shape)


@pytest.mark.parametrize("act", [borrow, lambda value, port: integers(value, port, port.shape)])
def test_an_input_that_cannot_be_copied_is_a_device_error(act: Callable[[object, Port], object]) -> None:
    rows = np.broadcast_to(np.int32(0), (1 << 50,))
    given = Port(name="x", index=0, shape=rows.shape, dtype="int32", nbytes=4 << 50)
    with pytest.raises(DeviceError, match=f"no memory of {4 << 50} bytes for tensor 'x'"):
        act(rows, given)


def test_buffers_are_used_without_numpy() -> None:
    answer_of(imports.borrowed_and_own_memory)
