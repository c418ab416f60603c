"""TensorBuffer: memory for an input or output of a CompiledModel, with the interface of `ai_edge_litert`'s."""

from __future__ import annotations

import ctypes
import sys

from jitdelegate.errors import TensorError
from jitdelegate.runtime.binding import Place
from jitdelegate.runtime.buffers import ELEMENTS, tensor_class

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import numpy as np

ALIGNMENT = 64
"""Of memory that is made here, in bytes, and of memory that LiteRT uses in place."""


class TensorBuffer:
    """Memory of one row-major tensor. `CompiledModel.create_input_buffers` and its siblings make buffers that fit.

    Attributes:
        dtype: numpy's name of the element type.
        shape: sizes, outermost first.
    """

    __slots__ = ("_place", "dtype", "shape")

    def __init__(self, place: Place, dtype: str, shape: tuple[int, ...]) -> None:
        self._place: Place | None = place
        self.dtype = dtype
        self.shape = shape

    @property
    def place(self) -> Place:
        """Where its memory lies.

        Raises:
            ValueError: the buffer was destroyed.
        """
        if self._place is None:
            raise TensorError("TensorBuffer has been destroyed")
        return self._place

    @property
    def nbytes(self) -> int:
        """Length of the tensor in bytes; raises the errors of `place`."""
        return self.place.nbytes

    @classmethod
    def create(cls, dtype: str, shape: tuple[int, ...]) -> TensorBuffer:
        """A buffer of zeros in new memory of the host.

        Raises:
            ValueError: the element type is unknown, or the tensor too large.
            MemoryError: out of memory.
        """
        nbytes = tensor_class(dtype, shape).nbytes
        memory = ctypes.create_string_buffer(nbytes + ALIGNMENT)
        address = ctypes.addressof(memory)
        return cls(Place(address + -address % ALIGNMENT, nbytes, memory), dtype, shape)

    @classmethod
    def create_from_host_memory(cls, data_array: np.ndarray) -> TensorBuffer:
        """A buffer on the array's own memory; on a copy where this is not aligned to 64 bytes.

        Raises:
            ValueError: it is no C-contiguous numpy array of a type that models have.
        """
        numpy = sys.modules.get("numpy")
        if numpy is None or not isinstance(data_array, numpy.ndarray):
            raise TensorError("data_array must be a NumPy array")
        if not data_array.flags.c_contiguous:
            raise TensorError("data_array must be C-contiguous for zero-copy host-memory binding")
        dtype = data_array.dtype.name
        if dtype not in ELEMENTS:
            raise TensorError(f"Unsupported dtype: {dtype}")
        if data_array.ctypes.data % ALIGNMENT:
            buffer = cls.create(dtype, data_array.shape)
            buffer.write(data_array)
            return buffer
        return cls(Place(data_array.ctypes.data, data_array.nbytes, data_array), dtype, data_array.shape)

    def write(self, data_array: np.ndarray) -> None:
        """Copy an array of the same type and number of elements into the buffer.

        Raises:
            ValueError: the type or number of elements differs.
        """
        view = self.view()
        if data_array.dtype != view.dtype or data_array.size != view.size:
            raise TensorError(
                f"data_array has {data_array.size} elements of {data_array.dtype.name},"
                f" expected {view.size} of {self.dtype}"
            )
        view.reshape(-1)[:] = data_array.reshape(-1)

    def read(self, num_elements: int, output_dtype: Any) -> np.ndarray:
        """A flat copy of the first elements.

        Raises:
            ValueError: the type is another one, or there are fewer elements.
        """
        import numpy

        flat = self.view().reshape(-1)
        if numpy.dtype(output_dtype) != flat.dtype or not 0 <= num_elements <= flat.size:
            raise TensorError(
                f"{num_elements} elements of {numpy.dtype(output_dtype).name} are asked for,"
                f" expected at most {flat.size} of {self.dtype}"
            )
        return flat[:num_elements].copy()

    def view(self) -> np.ndarray:
        """A numpy array on the buffer's memory; raises the errors of `place`."""
        import numpy

        place = self.place
        memory: Any = (ctypes.c_char * place.nbytes).from_address(place.address)
        memory.owner = place.owner
        array: np.ndarray = numpy.frombuffer(memory, self.dtype).reshape(self.shape)
        return array

    def get_tensor_details(self) -> dict[str, Any]:
        """{"dtype": name of the element type, "shape": list of sizes}; raises the errors of `place`."""
        assert self.place
        return {"dtype": self.dtype, "shape": list(self.shape)}

    def destroy(self) -> None:
        """Release the memory; the buffer cannot be used afterwards."""
        self._place = None

    def __repr__(self) -> str:
        return f"TensorBuffer({self.dtype}{list(self.shape)})"
