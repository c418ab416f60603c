"""A compiled subgraph behind the methods of LiteRT's interpreter, with LiteRT's indices and arrays."""

from __future__ import annotations

from jitdelegate.engine.load_path import REPLACEABLE, recompile
from jitdelegate.errors import DeviceError, TensorError
from jitdelegate.program.program import NO_TENSOR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import numpy as np

    from jitdelegate.engine.executable import Executable
    from jitdelegate.engine.specializations import Specializations
    from jitdelegate.program.program import Port, State

    Shape = tuple[int, ...]

NOT_READY = "Invoke called on model that is not ready."
UNALLOCATED = "Cannot set tensor: Tensor is unallocated. Try calling allocate_tensors() first"
NO_DATA = "Tensor data is null. Run allocate_tensors() first"
UNCOUNTABLE = 1 << 60
"""Number of elements from which on LiteRT cannot count the bytes."""


class CompiledInterpreter:
    """LiteRT's methods on a compiled subgraph. Questions about other tensors of the file go to LiteRT.

    Attributes:
        executable: the program for the input shapes at the last `allocate_tensors`. While it runs on LiteRT, only
            `resize` and `allocate_tensors` are useful.
        allocated: whether `executable` is compiled and ready to run.
        kept: views of inputs and outputs that were set or asked for, by index, as (view, its class, element type,
            shape); empty while no tensors are allocated.
        views: weak references to the views that `tensor` gave, of which some may be gone.
    """

    def __init__(self, specializations: Specializations, base: Executable) -> None:
        """
        Args:
            base: the subgraph's program for the file's shapes.
        """
        self._specializations = specializations
        self._base = self.executable = base
        self._subgraph = base.subgraph
        self._inputs = base.program.inputs
        self._outputs = base.program.outputs
        self._shapes = [*base.shapes]
        self._input_positions = {port.index: position for position, port in enumerate(self._inputs)}
        self._output_positions = {port.index: position for position, port in enumerate(self._outputs)}
        self.kept: dict[int, tuple[np.ndarray, Any, Any, Shape]] = {}
        self.views: list[Any] = []
        self.allocated = False

    @property
    def compiled(self) -> bool:
        """False where LiteRT has to run the subgraph for the shapes of the last `allocate_tensors`."""
        return self.executable.session is not None

    @property
    def is_viewed(self) -> bool:
        """Whether somebody holds a view that `tensor` gave, or an array on the same memory made of one."""
        self.views = [view for view in self.views if view() is not None]
        return bool(self.views)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The current shapes of the inputs."""
        return tuple(self._shapes)

    def resize(self, tensor_index: int, shape: Shape, *, strict: bool = False) -> bool:
        """Set another shape for an input; `allocate_tensors` finds or compiles the program for it.

        Returns:
            False, with nothing changed, where LiteRT has to answer: the tensor is not an input, a size is negative,
            there are too many elements to count, or `strict` forbids to change a size that the model fixes.
        """
        from math import prod

        position = self._input_positions.get(_index(tensor_index))
        if position is None or min(shape, default=0) < 0 or prod(shape) >= UNCOUNTABLE:
            return False
        if strict and not self._may_become(position, shape):
            return False
        if shape != self._shapes[position]:
            self._shapes[position] = shape
            self.release()
        return True

    def _may_become(self, position: int, shape: Shape) -> bool:
        """Whether only sizes that the model leaves open change."""
        signature, now = self._inputs[position].shape_signature, self._shapes[position]
        return len(shape) == len(now) == len(signature) and all(
            size == -1 or new == old for size, new, old in zip(signature, shape, now, strict=True)
        )

    def allocate_tensors(self) -> None:
        """Prepare a run with the current input shapes. Variables are reset if the shapes changed.

        LiteRT has to take over where nothing is compiled for the shapes: see `compiled`.
        """
        if self.allocated:
            return
        executable = self.executable = self._specializations.resized(self._base, self.shapes)
        if executable.session is not None:
            executable.session.reset_states(resources=False)
            self._inputs = executable.program.inputs
            self._outputs = executable.program.outputs
            self.allocated = True

    def release(self) -> None:
        """Let the tensors not be allocated any more."""
        self.allocated = False
        self.kept.clear()

    def invoke(self) -> None:
        """
        Raises:
            DeviceError: `allocate_tensors` was not called. It is a RuntimeError, as in LiteRT.
        """
        if not self.allocated:
            raise DeviceError(NOT_READY)
        executable = self.executable
        if not executable.announced:
            executable.announce()
        try:
            executable.session.invoke()  # type: ignore[union-attr]
        except REPLACEABLE as error:
            self._recompile(error)
            self._session.invoke()

    @property
    def _session(self) -> Any:
        return self.executable.session

    def _recompile(self, error: Exception) -> None:
        """Replace a program after one of `REPLACEABLE`; inputs, outputs and variables keep their memory.

        Raises:
            DeviceError: it cannot be replaced. After `allocate_tensors`, LiteRT runs the model.
        """
        recompile(self.executable, self._session, error)
        if self._session is None:
            self.release()
            raise DeviceError(f"{error}; {self.executable.reason} {NOT_READY}")

    def put(self, tensor_index: int, value: Any) -> bool:
        """Copy an array into a tensor of `kept`, if it has the tensor's type and shape; whether it has."""
        kept = self.kept.get(tensor_index)
        if kept is None:
            return False
        view, array_class, dtype, shape = kept
        if type(value) is not array_class or value.dtype is not dtype or value.shape != shape:
            return False
        view[...] = value
        return True

    def set_tensor(self, tensor_index: int, value: Any) -> None:
        """Copy `value` into an input, an output or a variable.

        Raises:
            TensorError: it is none of them, or its type or shape differs from the value's. It is a ValueError, as in
                LiteRT.
            TypeError: the index is not an integer. All methods with an index raise it.
        """
        import numpy as np

        tensor_index = _index(tensor_index)
        if not self.allocated:
            raise TensorError(UNALLOCATED)
        array, position = np.asarray(value), self._state_position(tensor_index)
        if position is not None:
            _check(array, self.executable.program.states[position])
            self._verify()
            self._session.write_state(position, array.tobytes())
            return
        _check(array, self._port(tensor_index))
        self._kept_view(tensor_index)[...] = array

    def get_tensor(self, tensor_index: int, subgraph_index: int = 0) -> np.ndarray:
        """A copy of an input, output or variable. Constants come from LiteRT.

        Raises:
            ValueError: no such tensor, or an intermediate tensor, which has no value.
        """
        if type(tensor_index) is type(subgraph_index) is int and subgraph_index == self._subgraph:
            kept = self.kept.get(tensor_index)
            if kept is not None:
                return copied(kept[0])
        if not self.allocated:
            raise TensorError(NO_DATA)
        tensor_index, subgraph_index = _index(tensor_index), _index(subgraph_index)
        if subgraph_index == self._subgraph and (position := self._state_position(tensor_index)) is not None:
            return self._state(position)
        if subgraph_index == self._subgraph:
            if self._is_port(tensor_index):
                return copied(self._kept_view(tensor_index))
            source = self._base.source
            if tensor_index in source.runtime_tensors(subgraph_index):
                if (constant := source.unpacked(subgraph_index, tensor_index)) is None:
                    raise self._unkept(tensor_index)
                return constant
        return self._litert().get_tensor(tensor_index, subgraph_index)  # type: ignore[no-any-return]

    def _state_position(self, tensor_index: int) -> int | None:
        """Position of a variable tensor among the states; None for other tensors."""
        states = enumerate(self.executable.program.states)
        return next((position for position, state in states if state.index == tensor_index != NO_TENSOR), None)

    def _state(self, position: int) -> np.ndarray:
        """A copy of a variable."""
        import numpy as np

        self._verify()
        state = self.executable.program.states[position]
        return copied(np.frombuffer(self._session.read_state(position), state.dtype).reshape(state.shape))

    def tensor(self, tensor_index: int) -> Callable[[], np.ndarray]:
        """A function that returns a view of the tensor's memory."""

        def view() -> np.ndarray:
            if not self.allocated:
                raise TensorError(NO_DATA)
            index = _index(tensor_index)
            self._port(index)
            self._verify()
            return self._counted_view(index)

        return view

    def _counted_view(self, tensor_index: int) -> np.ndarray:
        """A view that `is_viewed` knows of: its base lives as long as it, and as every array that is made of it."""
        from _weakref import ref

        view = self._view(tensor_index)
        self.views = [*(known for known in self.views if known() is not None), ref(view.base)]
        return view

    def _verify(self) -> None:
        """Check the weights now: replacing the program later would separate a view from the memory in use."""
        try:
            self._session.verify()
        except REPLACEABLE as error:
            self._recompile(error)

    def _is_port(self, tensor_index: int) -> bool:
        return tensor_index in self._input_positions or tensor_index in self._output_positions

    def _port(self, tensor_index: int) -> Port:
        if tensor_index in self._input_positions:
            return self._inputs[self._input_positions[tensor_index]]
        if tensor_index in self._output_positions:
            return self._outputs[self._output_positions[tensor_index]]
        raise self._unkept(tensor_index)

    def _unkept(self, tensor_index: int) -> TensorError:
        inputs, outputs = sorted(self._input_positions), sorted(self._output_positions)
        problem = f"tensor {tensor_index} is neither an input nor an output: inputs are {inputs}, outputs are {outputs}"
        return TensorError(f"{problem}; a compiled graph keeps no other tensor without extra_outputs=[{tensor_index}]")

    def _kept_view(self, tensor_index: int) -> np.ndarray:
        """View of an input or output, made once: its memory stays in place while the tensors are allocated."""
        view = self._view(tensor_index)
        self.kept[tensor_index] = view, type(view), view.dtype, view.shape
        return view

    def _view(self, tensor_index: int) -> np.ndarray:
        import numpy as np

        if tensor_index in self._input_positions:
            memory = self._session.input_memory(self._input_positions[tensor_index])
        else:
            memory = self._session.output_memory(self._output_positions[tensor_index])
        port = self._port(tensor_index)
        return np.frombuffer(memory, port.dtype).reshape(port.shape)

    def get_input_details(self) -> list[dict[str, Any]]:
        return [self._describe(port.index) for port in self._inputs]

    def get_output_details(self) -> list[dict[str, Any]]:
        return [self._describe(port.index) for port in self._outputs]

    def _describe(self, tensor_index: int) -> dict[str, Any]:
        position = self._input_positions.get(tensor_index)
        return describe(self._port(tensor_index), None if position is None else self._shapes[position])

    def get_tensor_details(self, subgraph_index: int = 0) -> list[dict[str, Any]]:
        return self._litert().get_tensor_details(subgraph_index)  # type: ignore[no-any-return]

    def _get_tensor_details(self, tensor_index: int, subgraph_index: int) -> dict[str, Any]:
        if subgraph_index == self._subgraph and self._is_port(tensor_index):
            return self._describe(tensor_index)
        return self._litert()._get_tensor_details(tensor_index, subgraph_index)  # type: ignore[no-any-return]

    def _get_ops_details(self) -> list[dict[str, Any]]:
        return self._litert()._get_ops_details()  # type: ignore[no-any-return]

    def num_subgraphs(self) -> int:
        return self._base.program.num_subgraphs

    def reset_all_variables(self) -> None:
        """Reset variable tensors; resource variables keep their values, as in LiteRT."""
        self._session.reset_states(resources=False)

    def _get_full_signature_list(self) -> dict[str, Any]:
        return {
            signature.key: {"inputs": dict(sorted(signature.inputs)), "outputs": dict(sorted(signature.outputs))}
            for signature in self._base.program.signatures
        }

    def _litert(self) -> Any:
        """The same model in LiteRT, with the same shapes, allocated if this one is."""
        fallback = self._base.source.fallback()
        if self._subgraph == 0:
            fallback.fit(self.shapes)
        if self.allocated:
            fallback.allocate()
        return fallback.interpreter


def _index(value: Any) -> int:
    """An integer of any type; floats and strings raise TypeError, as in LiteRT."""
    import operator

    return operator.index(value)


def copied(view: np.ndarray) -> np.ndarray:
    """What `get_tensor` returns for a tensor's memory: a copy, of rank 0 a scalar of numpy's, as in LiteRT."""
    return view.copy() if view.ndim else view[()]


def _check(array: np.ndarray, port: Port | State) -> None:
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


def describe(port: Port, shape: Shape | None = None) -> dict[str, Any]:
    """LiteRT's description of a tensor, resized to `shape` if that is given."""
    import numpy as np

    shape = port.shape if shape is None else shape
    signature = port.shape_signature if -1 in port.shape_signature else shape
    per_tensor = len(port.scales) == 1
    return {
        "name": port.name,
        "index": port.index,
        "shape": np.array(shape, np.int32),
        "shape_signature": np.array(signature, np.int32),
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
