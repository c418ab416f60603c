"""TensorBuffer: memory for an input or output of a CompiledModel, with the interface of `ai_edge_litert`'s and more."""

from __future__ import annotations

import ctypes
from _weakref import ref

from jitdelegate.api.array_types import LITERT_TYPES, ML_TYPES, array_type, numpy_module, numpy_type, type_name
from jitdelegate.errors import TensorBufferError, TensorError
from jitdelegate.runtime.binding import HOST, Place, host_place
from jitdelegate.runtime.buffers import Tensor, as_asked
from jitdelegate.runtime.element_types import bits_of, is_packed, nbytes_of
from jitdelegate.runtime.memory import ALIGNMENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from numpy.typing import NDArray

    from jitdelegate.runtime.binding import Binding
    from jitdelegate.runtime.event import Event

    class Bound(Protocol):
        """Buffers that a model is ready to run on.

        Attributes:
            is_idle: False once a buffer has an event or a request reads it, or was destroyed.
            binding: None once a buffer was destroyed.
        """

        is_idle: bool
        binding: Binding | None


class TensorBuffer:
    """Memory of one row-major tensor. `CompiledModel.create_input_buffers` and its siblings make buffers that fit.

    `numpy.asarray(buffer)`, `torch.from_dlpack(buffer)` and, on a GPU, `cupy.asarray(buffer)` share the memory, which
    lives as long as they do. A copied or unpickled buffer has memory of its own on the host.

    Attributes:
        dtype: numpy's name of the element type, or that of ml_dtypes. Types of less than a byte are packed as they are
            stored, and arrays of them are the bytes.
        shape: sizes, outermost first.
    """

    __slots__ = ("__weakref__", "_bounds", "_event", "_flat", "_place", "_readers", "_told_shape", "dtype", "shape")

    def __init__(self, place: Place, dtype: str, shape: tuple[int, ...]) -> None:
        self._place: Place | None = place
        self._bounds: list[ref[Bound]] = []
        self._event: Event | None = None
        self._flat: Any = None  # an array of all elements, for copies that need no checks
        self._readers: tuple[Event, ...] = ()
        self.dtype = dtype
        self.shape = self._told_shape = shape

    @property
    def place(self) -> Place:
        """Where its memory lies.

        Raises:
            TensorBufferError: the buffer was destroyed.
        """
        if self._place is None:
            self.expect_alive()
        return self._place  # type: ignore[return-value]  # it is there

    def expect_alive(self) -> None:
        """
        Raises:
            TensorBufferError: the buffer was destroyed.
        """
        if self._place is None:
            raise TensorBufferError("TensorBuffer has been destroyed")

    @property
    def nbytes(self) -> int:
        """Length of the tensor in bytes; raises the errors of `place`."""
        return self.place.nbytes

    def join(self, bound: Bound) -> None:
        """Tell a model, that is ready to run on the buffer, when it no longer is."""
        self._bounds = [ref(each) for each in (*self._live_bounds(), bound)]

    def _live_bounds(self) -> list[Bound]:
        return [bound for each in self._bounds if (bound := each()) is not None]

    @property
    def capsule(self) -> Any:
        """A new DLPack capsule of the memory, where LiteRT has a capsule of its own; raises the errors of `place`."""
        return self.__dlpack__()

    @classmethod
    def create(cls, dtype: str, shape: tuple[int, ...]) -> TensorBuffer:
        """A buffer of zeros in new memory of the host.

        Raises:
            TensorError: the element type is unknown, or a size negative.
            DeviceError: out of memory.
        """
        return cls(host_place(nbytes_of(dtype, shape)), dtype, shape)

    @classmethod
    def create_from_host_memory(cls, data_array: NDArray[Any]) -> TensorBuffer:
        """A buffer on the array's own memory; on a copy where this is not aligned to 64 bytes, as in LiteRT.

        `get_tensor_details` describes it as flat, as LiteRT does.

        Raises:
            TensorError: it is no C-contiguous numpy array, or strings or objects.
        """
        dtype = array_type(data_array)
        if not data_array.flags.c_contiguous:
            raise TensorError("data_array must be C-contiguous for zero-copy host-memory binding")
        address, shape = data_array.__array_interface__["data"][0], data_array.shape
        if address % ALIGNMENT:
            buffer = cls.create(dtype, shape)
            buffer._store(data_array)
        else:
            readonly = not data_array.flags.writeable
            buffer = cls(Place(address, data_array.nbytes, data_array, is_readonly=readonly), dtype, shape)
        buffer._told_shape = (data_array.size,)
        return buffer

    @classmethod
    def create_from_dlpack(cls, x: Any) -> TensorBuffer:
        """A buffer on the memory of an array of another library, on the host or on a GPU; nothing is copied.

        Runs of a model follow what the array's library has enqueued for it so far.

        Args:
            x: an object with `__dlpack__` (numpy, PyTorch, CuPy, JAX), or a DLPack capsule, which is consumed.
        Raises:
            TensorError: it is neither of the two, a capsule that was consumed before, not contiguous, of a type that
                models do not have, or on another kind of device.
            DeviceError: its GPU is not this process's, or the driver fails.
        """
        from jitdelegate.runtime import dlpack  # not before: most buffers are made by models

        device = dlpack.device_of(x)
        shared = dlpack.take(x, dlpack.DEFAULT_STREAM if device and device[0] in dlpack.GPUS else None)
        if shared.device_type in dlpack.HOSTS:
            place = Place(shared.address, shared.nbytes, shared, is_readonly=shared.is_readonly)
        elif shared.device_type in dlpack.GPUS:
            from jitdelegate.targets.cuda.target import open_memory

            place = open_memory(shared.device).foreign_place(
                shared.address, shared.nbytes, shared, is_readonly=shared.is_readonly, stream=dlpack.DEFAULT_STREAM
            )
        else:
            raise TensorError(f"the memory is on a device of DLPack's kind {shared.device_type}, expected CPU or CUDA")
        return cls(place, shared.dtype, shared.shape)

    @classmethod
    def create_from_cuda_array(cls, x: Any) -> TensorBuffer:
        """A buffer on an array in memory of a GPU; nothing is copied.

        Runs of a model follow the array's stream.

        Args:
            x: an object with `__cuda_array_interface__` (CuPy, PyTorch, Numba), which the buffer keeps.
        Raises:
            TensorError: it has no such interface, or is masked, not contiguous, or of a type without a name there.
            DeviceError: its memory is none of this process's GPUs', or the driver fails.
        """
        from jitdelegate.runtime.cuda_array import CudaArray
        from jitdelegate.targets.cuda.target import open_memory_at

        array = CudaArray(x)
        nbytes = nbytes_of(array.dtype, array.shape)
        gpu = open_memory_at(array.address if nbytes else 0)
        place = gpu.foreign_place(array.address, nbytes, x, is_readonly=array.is_readonly, stream=array.stream)
        return cls(place, array.dtype, array.shape)

    @classmethod
    def create_from_gl_buffer(
        cls,
        target: int,
        gl_buffer: int,
        dtype: str,
        shape: tuple[int, ...],
        *,
        size_bytes: int | None = None,
        offset: int = 0,
        device: int = 0,
    ) -> TensorBuffer:
        """A buffer on an OpenGL buffer of the calling thread's current OpenGL context; nothing is copied.

        It is mapped for CUDA during a run, a read or a write, in threads in which this context is current, and is
        OpenGL's again afterwards. Destroy the TensorBuffer before the OpenGL buffer or its context.

        Args:
            target: what the OpenGL buffer is bound to, such as GL_SHADER_STORAGE_BUFFER; CUDA does not need it.
            gl_buffer: the OpenGL buffer's name, as glGenBuffers gives it.
            size_bytes: of the OpenGL buffer's part from `offset` on; None for as much as the tensor takes.
            offset: bytes from the OpenGL buffer's start to the tensor.
            device: number of the GPU that draws.
        Raises:
            TensorError: unknown element type, or the tensor does not fit.
            DeviceError: the driver refuses the buffer.
        """
        nbytes = nbytes_of(dtype, shape)
        if offset < 0 or (size_bytes is not None and size_bytes < nbytes):
            raise TensorError(f"a tensor of {nbytes} bytes is to lie in {size_bytes} bytes from byte {offset} on")
        from jitdelegate.targets.cuda.target import open_memory

        return cls(open_memory(device).gl_place(gl_buffer, offset, nbytes), dtype, shape)

    def write(self, data_array: NDArray[Any]) -> None:
        """Copy an array's elements, row by row, to the start of the buffer.

        As in LiteRT, bytes are copied as they are, whatever the shape, also to a buffer of a type of another size, or
        of a type that numpy lacks.

        Raises:
            TensorError: it is no numpy array, of a type that neither LiteRT's buffers nor this one have, of another
                type of the same size, whose bytes LiteRT would take for other numbers, or the memory is read-only.
            TensorBufferError: the array is larger than the buffer, or the buffer was destroyed.
        """
        flat = self._flat
        if (
            flat is not None
            and data_array.__class__ is flat.__class__
            and data_array.dtype is flat.dtype
            and data_array.size <= flat.size
        ):
            if self._readers or self._event is not None:
                self.wait_for_users()
            flat[: data_array.size] = data_array.ravel()
            return
        if isinstance(data_array, Tensor):
            data_array = data_array.__array__()
        dtype = array_type(data_array)
        self._expect_type(dtype)
        if dtype != self.dtype and bits_of(dtype) == bits_of(self.dtype) and self.dtype not in ML_TYPES:
            raise TensorError(f"data_array has the type {dtype}, expected {self.dtype}: array.astype({self.dtype!r})")
        if data_array.nbytes > self.place.nbytes:
            raise TensorBufferError(
                f"data_array has {data_array.nbytes} bytes, which is more than the {self.place.nbytes} of the buffer"
            )
        if self.place.is_readonly:
            raise TensorError("the buffer's memory is read-only")
        self.wait_for_users()
        self._store(data_array)
        self._flatten()

    def read(self, num_elements: int | None = None, output_dtype: Any = None) -> NDArray[Any]:
        """A copy: of the whole tensor in its shape, or, as in LiteRT, of the first bytes as a flat array.

        Args:
            num_elements: number of elements, or a shape of them; None for the buffer's shape.
            output_dtype: their type, which need not be the buffer's; None for the buffer's.
        Raises:
            TensorError: a negative number, or a type that neither LiteRT's buffers nor this one have.
            TensorBufferError: the buffer is smaller, or was destroyed.
        """
        flat = self._flat
        if (
            flat is not None
            and output_dtype is flat.dtype.type
            and num_elements.__class__ is int
            and 0 <= num_elements <= flat.size
        ):
            self.wait_event()
            return flat[:num_elements].copy()  # type: ignore[no-any-return]
        place, dtype = self.place, self.dtype
        if output_dtype is not None:
            dtype = type_name(output_dtype)
            self._expect_type(dtype)
        shape = self._array_shape if num_elements is None else num_elements
        array: NDArray[Any] = numpy_module().empty(shape, numpy_type(dtype))
        if array.nbytes > place.nbytes:
            raise TensorBufferError(f"{array.nbytes} bytes are asked for, the buffer has {place.nbytes}")
        self.wait_event()
        place.load(array.ctypes.data, array.nbytes)
        self._flatten()
        return array

    def view(self) -> NDArray[Any]:
        """A numpy array on the buffer's memory, which it keeps alive.

        Raises:
            TensorBufferError: the buffer was destroyed.
            TensorError: it is on a GPU.
        """
        place = self.place
        if place.gpu != HOST:
            raise TensorError(f"the buffer lies on GPU {place.gpu}, where numpy does not reach it; read() copies it")
        self.wait_event()
        array: NDArray[Any] = numpy_module().ndarray(self._array_shape, numpy_type(self.dtype), self._memory())
        array.flags.writeable = not place.is_readonly
        return array

    def get_tensor_details(self) -> dict[str, Any]:
        """{"dtype": name of the element type, "shape": list of sizes}; raises the errors of `place`."""
        self.expect_alive()
        return {"dtype": self.dtype, "shape": list(self._told_shape)}

    def destroy(self) -> None:
        """Release the memory; harmless a second time. Arrays on the memory keep it."""
        self._place = self._event = self._flat = None
        for bound in self._live_bounds():
            bound.is_idle, bound.binding = False, None
        self._readers = ()

    def set_event(self, event: Event) -> None:
        """Let everyone who reads or writes the buffer wait for an event first: LiteRT's TensorBuffer::SetEvent.

        Raises:
            TensorError: it is no event.
            TensorBufferError: the buffer was destroyed.
        """
        from jitdelegate.runtime.event import Event  # not before: most buffers have none

        self.expect_alive()
        if not isinstance(event, Event):
            raise TensorError(f"an event is {type(event).__name__}, expected jitdelegate.Event")
        self.add_writer(event)

    def has_event(self) -> bool:
        """Whether there is an event that nobody has waited for."""
        return self._event is not None

    def get_event(self) -> Event | None:
        """The event that is to be waited for."""
        return self._event

    def clear_event(self) -> None:
        """Wait for nothing anymore."""
        self._event = None

    def wait_event(self, timeout: float | None = None) -> None:
        """Wait for the event, if there is one, for at most `timeout` seconds; raises the errors of `Event.wait`."""
        event = self._event
        if event is not None:
            event.wait(timeout)
            if self._event is event:
                self.clear_event()

    def add_reader(self, event: Event) -> None:
        """Note that a request reads the memory until `event`; whoever writes to the buffer waits for it."""
        self._forget_readers()
        self._readers = (*self._readers, event)
        self._interrupt()

    def add_writer(self, event: Event) -> None:
        """Note that a request writes the memory until `event`; whoever uses the buffer waits for it."""
        self._event = event
        self._interrupt()

    def users(self) -> tuple[Event, ...]:
        """Events for which whoever writes to the buffer has to wait."""
        self._forget_readers()
        return self._readers if self._event is None else (*self._readers, self._event)

    def wait_for_users(self) -> None:
        """Wait until nobody uses the memory. What they were to write is lost, so their errors do not matter."""
        for user in self.users():
            user.wait_quietly()
        self._forget_readers()
        if self._event is not None and self._event.done:
            self.clear_event()

    def _interrupt(self) -> None:
        """Let the next run on the buffer look for events first."""
        for bound in self._live_bounds():
            bound.is_idle = False

    def _forget_readers(self) -> None:
        """Forget requests that have ended."""
        if self._readers:
            self._readers = tuple([reader for reader in self._readers if not reader.done])  # faster than a generator

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return as_asked(self, self.view(), dtype, copy)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Description of a buffer on a GPU, version 3. Where another library made the memory and may still work on it,
        the default stream follows that work, and is named.

        Raises:
            AttributeError: the buffer is on the host or OpenGL's, or its elements share bytes.
            DeviceError: the driver fails.
        """
        place = self.place
        if place.gpu == HOST or is_packed(self.dtype):
            raise AttributeError(f"{self!r} has no __cuda_array_interface__")
        try:
            address = place.shared_address()
        except BufferError as error:
            raise AttributeError(str(error)) from error
        self.wait_event()
        from jitdelegate.runtime.cuda_array import interface
        from jitdelegate.runtime.dlpack import DEFAULT_STREAM

        stream = DEFAULT_STREAM if place.hand_over(DEFAULT_STREAM) else None
        return interface(address, self.dtype, self.shape, readonly=place.is_readonly, stream=stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's (kind, number) of the device; raises the errors of `place`."""
        from jitdelegate.runtime import dlpack

        return (dlpack.CPU, 0) if self.place.gpu == HOST else (dlpack.CUDA, self.place.gpu)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule of the memory, which it keeps alive.

        Args:
            stream: of the consumer on a GPU, which then follows the work of the library that made the memory: None or 1
                for the default one, 2 for the thread's, -1 for none. Our own work has ended.
            max_version: newest version that the consumer reads; None for those before 1.0.
            dl_device: where the consumer wants it: on its own device, or copied to the host.
            copy: True asks for a copy on the host, False forbids one.
        Raises:
            BufferError: the consumer cannot have it in this way, or names stream 0, which DLPack does not allow.
            DeviceError: the driver does not know the stream.
            TensorBufferError: the buffer was destroyed.
        """
        from jitdelegate.runtime import dlpack

        own = self.__dlpack_device__()
        wanted = own if dl_device is None else (int(dl_device[0]), int(dl_device[1]))
        if wanted not in (own, (dlpack.CPU, 0)):
            raise BufferError(f"{self!r} is on device {own} and cannot be moved to {wanted}")
        self.wait_event()
        buffer = self
        if copy or wanted != own:
            if copy is False or wanted != (dlpack.CPU, 0):
                raise BufferError(f"{self!r} can be copied to the host only, and only where copies are allowed")
            buffer = self._copied()
        place, memory = buffer.place, buffer._memory()
        if place.gpu != HOST:
            if stream == 0:
                raise BufferError("the consumer's stream is 0, which DLPack does not allow; expected 1, 2 or a handle")
            if stream != dlpack.NO_STREAM:
                place.hand_over(stream or dlpack.DEFAULT_STREAM)
        return dlpack.share(
            memory,
            self.dtype,
            self.shape,
            wanted,
            readonly=place.is_readonly,
            asked={} if max_version is None else {"max_version": max_version},
        )

    def __reduce__(self) -> tuple[Callable[..., TensorBuffer], tuple[Any, ...]]:
        """Copy and pickle by type, shape and content; raises the errors of `read`."""
        content = self._copied()
        memory: Any = content._memory()
        return _buffer_of, (self.dtype, self.shape, memory.raw)

    def __repr__(self) -> str:
        if self._place is None:
            return "TensorBuffer(destroyed)"
        on = "" if self._place.gpu == HOST else f", GPU {self._place.gpu}"
        return f"TensorBuffer({self.dtype}{list(self.shape)}{on})"

    @property
    def _array_shape(self) -> tuple[int, ...]:
        """The shape of arrays of the buffer: its own, or the number of its bytes where elements share these."""
        return (self.place.nbytes,) if is_packed(self.dtype) else self.shape

    def _copied(self) -> TensorBuffer:
        """A copy on the host."""
        self.wait_event()
        place = self.place
        buffer = TensorBuffer.create(self.dtype, self.shape)
        place.load(buffer.place.address, place.nbytes)
        return buffer

    def _memory(self) -> Any:
        """A ctypes array on the memory, which it keeps alive."""
        place = self.place
        memory: Any = (ctypes.c_char * place.nbytes).from_address(place.shared_address())
        memory.owner = place
        return memory

    def _flatten(self) -> None:
        """Let copies of arrays of the buffer's type be quick from now on."""
        place = self.place
        if self._flat is None and place.gpu == HOST and not place.is_readonly and not is_packed(self.dtype):
            self._flat = self.view().reshape(-1)

    def _expect_type(self, dtype: str) -> None:
        if dtype not in LITERT_TYPES and dtype != self.dtype:
            raise TensorError(f"Unsupported dtype: {dtype}, the buffer has {self.dtype}")

    def _store(self, array: NDArray[Any]) -> None:
        dense: Any = array if array.flags.c_contiguous else array.copy("C")
        self.place.store(dense.ctypes.data, dense.nbytes)


def _buffer_of(dtype: str, shape: tuple[int, ...], content: bytes) -> TensorBuffer:
    buffer = TensorBuffer.create(dtype, shape)
    ctypes.memmove(buffer.place.address, content, len(content))
    return buffer
