"""CompiledGraph: a compiled program behind the methods of LiteRT's interpreter, with LiteRT's indices and arrays."""

from __future__ import annotations

from jitdelegate.errors import DeviceError, ProgramError, TensorError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import numpy as np

    from jitdelegate.opened import Opened
    from jitdelegate.program.program import Port

NOT_READY = "Invoke called on model that is not ready."
UNALLOCATED = "Cannot set tensor: Tensor is unallocated. Try calling allocate_tensors() first"
NO_DATA = "Tensor data is null. Run allocate_tensors() first"


class CompiledGraph:
    """What the interpreter does while its model is compiled; questions about the rest of the file go to LiteRT."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._inputs = opened.program.inputs
        self._outputs = opened.program.outputs
        self._input_places = {port.index: place for place, port in enumerate(self._inputs)}
        self._output_places = {port.index: place for place, port in enumerate(self._outputs)}
        self._allocated = False

    def allocate_tensors(self) -> None:
        self._allocated = True

    def invoke(self) -> None:
        """
        Raises:
            DeviceError: `allocate_tensors` was not called; a RuntimeError as LiteRT's.
        """
        if not self._allocated:
            raise DeviceError(NOT_READY)
        try:
            self._session.invoke()
        except ProgramError as error:
            self._heal(str(error))
            self._session.invoke()

    @property
    def _session(self) -> Any:
        return self._opened.session

    def _heal(self, reason: str) -> None:
        """Replace a program whose weights proved bad, keeping the inputs."""
        values = [bytes(self._session.input_memory(place)) for place in range(len(self._inputs))]
        self._opened.heal(self._session, reason)
        for place, value in enumerate(values):
            self._session.set_input(place, value)

    def set_tensor(self, tensor_index: int, value: Any) -> None:
        """Copy `value` into an input or output.

        Raises:
            TensorError: the tensor is neither, or its type or shape differs from the value's; a ValueError as LiteRT's.
            TypeError: the index is not a whole number; so for every other method that takes one.
        """
        import numpy as np

        tensor_index = _index(tensor_index)
        if not self._allocated:
            raise TensorError(UNALLOCATED)
        port, array = self._port(tensor_index), np.asarray(value)
        _check(array, port)
        self._view(tensor_index)[...] = array

    def get_tensor(self, tensor_index: int, subgraph_index: int = 0) -> np.ndarray:
        """A copy of an input or output. Constants come from LiteRT; what lies between is not computed as such.

        Raises:
            ValueError: no such tensor, or one without a value.
        """
        tensor_index, subgraph_index = _index(tensor_index), _index(subgraph_index)
        if not self._allocated:
            raise TensorError(NO_DATA)
        if subgraph_index != 0 or not self._is_port(tensor_index):
            return self._litert().get_tensor(tensor_index, subgraph_index)  # type: ignore[no-any-return]
        return self._view(tensor_index).copy()

    def tensor(self, tensor_index: int) -> Callable[[], np.ndarray]:
        """A function that gives a view of the tensor's memory."""

        def view() -> np.ndarray:
            if not self._allocated:
                raise TensorError(NO_DATA)
            index = _index(tensor_index)
            self._port(index)
            self._verify()
            return self._view(index)

        return view

    def _verify(self) -> None:
        """Check the weights now: replacing the program later would part a view from the memory that is computed on."""
        try:
            self._session.verify()
        except ProgramError as error:
            self._heal(str(error))

    def _is_port(self, tensor_index: int) -> bool:
        return tensor_index in self._input_places or tensor_index in self._output_places

    def _port(self, tensor_index: int) -> Port:
        if tensor_index in self._input_places:
            return self._inputs[self._input_places[tensor_index]]
        if tensor_index in self._output_places:
            return self._outputs[self._output_places[tensor_index]]
        raise TensorError(f"tensor {tensor_index} is neither an input nor an output: {self._choices()}")

    def _choices(self) -> str:
        inputs, outputs = sorted(self._input_places), sorted(self._output_places)
        return f"inputs are {inputs}, outputs are {outputs}; a compiled graph keeps no other tensor"

    def _view(self, tensor_index: int) -> np.ndarray:
        import numpy as np

        if tensor_index in self._input_places:
            memory = self._session.input_memory(self._input_places[tensor_index])
        else:
            memory = self._session.output_memory(self._output_places[tensor_index])
        port = self._port(tensor_index)
        return np.frombuffer(memory, port.dtype).reshape(port.shape)

    def is_resize(self, tensor_index: int, shape: tuple[int, ...]) -> bool:
        """Whether giving this tensor this shape changes anything."""
        tensor_index = _index(tensor_index)
        return not self._is_port(tensor_index) or self._port(tensor_index).shape != shape

    def get_input_details(self) -> list[dict[str, Any]]:
        return [describe(port) for port in self._inputs]

    def get_output_details(self) -> list[dict[str, Any]]:
        return [describe(port) for port in self._outputs]

    def get_tensor_details(self, subgraph_index: int = 0) -> list[dict[str, Any]]:
        return self._litert().get_tensor_details(subgraph_index)  # type: ignore[no-any-return]

    def _get_tensor_details(self, tensor_index: int, subgraph_index: int) -> dict[str, Any]:
        if subgraph_index == 0 and self._is_port(tensor_index):
            return describe(self._port(tensor_index))
        return self._litert()._get_tensor_details(tensor_index, subgraph_index)  # type: ignore[no-any-return]

    def _get_ops_details(self) -> list[dict[str, Any]]:
        return self._litert()._get_ops_details()  # type: ignore[no-any-return]

    def num_subgraphs(self) -> int:
        return self._opened.program.num_subgraphs

    def reset_all_variables(self) -> None:
        """Nothing: a model with variables is not compiled."""

    def _get_full_signature_list(self) -> dict[str, Any]:
        return {
            each.key: {"inputs": dict(each.inputs), "outputs": dict(each.outputs)}
            for each in self._opened.program.signatures
        }

    def _litert(self) -> Any:
        """The same model in LiteRT, in the same state of allocation."""
        fallback = self._opened.fallback()
        if self._allocated:
            fallback.allocate()
        return fallback.interpreter


def _index(value: Any) -> int:
    """A whole number of any type; floats and texts are a TypeError, as in LiteRT."""
    import operator

    return operator.index(value)


def _check(array: np.ndarray, port: Port) -> None:
    """Raise what LiteRT raises for a value of the wrong type or shape."""
    import numpy as np

    expected = np.dtype(port.dtype)
    if array.dtype != expected:
        found = array.dtype.name.upper() if array.dtype.name != expected.name else array.dtype.str  # the byte order
        raise TensorError(
            f"Cannot set tensor: Got value of type {found} but expected type {port.dtype.upper()} "
            f"for input {port.index}, name: {port.name}"
        )
    if array.ndim != len(port.shape):
        raise TensorError(
            f"Cannot set tensor: Dimension mismatch. Got {array.ndim} but expected {len(port.shape)} "
            f"for input {port.index}, name: {port.name}"
        )
    for axis, (given, size) in enumerate(zip(array.shape, port.shape, strict=True)):
        if given != size:
            raise TensorError(
                f"Cannot set tensor: Dimension mismatch. Got {given} but expected {size} "
                f"for dimension {axis} of input {port.index}, name: {port.name}"
            )


def describe(port: Port) -> dict[str, Any]:
    """LiteRT's description of a tensor."""
    import numpy as np

    per_tensor = len(port.scales) == 1
    return {
        "name": port.name,
        "index": port.index,
        "shape": np.array(port.shape, np.int32),
        "shape_signature": np.array(port.shape_signature, np.int32),
        "dtype": np.dtype(port.dtype).type,
        "quantization": (float(port.scales[0]), int(port.zero_points[0])) if per_tensor else (0.0, 0),
        "quantization_parameters": {
            "scales": np.array(port.scales, np.float32),
            "zero_points": np.array(port.zero_points, np.int32),
            "quantized_dimension": port.axis,
            "block_size": 0,
        },
        "sparsity_parameters": {},
    }
