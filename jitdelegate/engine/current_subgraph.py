"""A subgraph of a model with the input shapes of the moment, as LiteRT's CompiledModel keeps them."""

from __future__ import annotations

import _thread

from jitdelegate.errors import CompiledModelError
from jitdelegate.runtime.buffers import LARGEST_SIZE, fits
from jitdelegate.runtime.element_types import count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from jitdelegate.engine.executable import Executable
    from jitdelegate.engine.specializations import Specializations
    from jitdelegate.program.program import Port

    Shape = tuple[int, ...]


class CurrentSubgraph:
    """A subgraph, the current shapes of its inputs, and the program for them. Safe for concurrent calls.

    Attributes:
        base: the program for the file's shapes.
        shapes: the current shapes of the inputs.
        ran: the program of the last run.
    """

    def __init__(self, specializations: Specializations, base: Executable) -> None:
        self._specializations = specializations
        self._lock = _thread.allocate_lock()
        self.base = self.ran = base
        self.shapes = base.shapes

    @property
    def executable(self) -> Executable:
        """The program for the current shapes; raises the errors of `Specializations.resized`."""
        return self._specializations.resized(self.base, self.shapes)

    def resize(self, position: int, shape: Shape, *, strict: bool) -> None:
        """Set another shape for an input.

        Args:
            strict: refuse to change a size that the model fixes.
        Raises:
            CompiledModelError: a size is not positive, or `strict` forbids the shape.
        """
        port = self.base.program.inputs[position]
        if not all(0 < size <= LARGEST_SIZE for size in shape):
            raise CompiledModelError(
                f"tensor {port.title!r} cannot have the shape {list(shape)}: Dimensions must be positive."
            )
        if strict and not fits(shape, port.shape_signature):
            raise CompiledModelError(
                f"New shape is not compatible with current shape: tensor {port.title!r} is resized to {list(shape)},"
                f" expected {list(port.shape_signature)}, where -1 is any size"
            )
        with self._lock:
            self.shapes = (*self.shapes[:position], shape, *self.shapes[position + 1 :])

    def fit(self, inputs: Sequence[Any]) -> tuple[Executable, bool]:
        """The program for these inputs, and whether another one ran before, or none.

        Variables are reset where another one ran before, as in LiteRT.

        Args:
            inputs: arrays, or what has `dtype` and `shape`.
        Raises:
            CompiledModelError: an input has another type, or a shape that the model does not allow. Also the errors of
                `Specializations.resized`.
        """
        with self._lock:
            self.shapes = self._fitted(inputs)
            if self.base.program.shape_inputs and not self.base.subgraph:
                executable = self._specializations.for_values(self.base, inputs)
            else:
                executable = self.executable
            is_other, self.ran = executable is not self.ran, executable
            if is_other and executable.session is not None:
                executable.session.reset_states(resources=False)
        return executable, is_other

    def _fitted(self, inputs: Sequence[Any]) -> tuple[Shape, ...]:
        """The shapes of the inputs for these values."""
        ports = self.base.program.inputs
        return tuple(_fitted(value, port, now) for value, port, now in zip(inputs, ports, self.shapes, strict=True))

    def output_shapes(self) -> tuple[Shape, ...]:
        """Shapes of the outputs for the current shapes of the inputs; LiteRT may tell them only by a run on zeros."""
        executable = self.executable
        if executable.session is not None or self.shapes == self.base.shapes:
            return tuple(port.shape for port in executable.program.outputs)
        import numpy  # not before: a compiled subgraph never needs it

        ports = self.base.program.inputs
        zeros = [numpy.zeros(shape, port.dtype) for port, shape in zip(ports, self.shapes, strict=True)]
        return tuple(tuple(result.shape) for result in self.run_on_litert(zeros))

    def run_on_litert(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """One inference on LiteRT's kernels: copies of the outputs; raises the errors of `Fallback.run`.

        Args:
            inputs: arrays with as many elements as the current shapes have.
        """
        shapes = self._fitted(inputs)  # not those of now: another thread may have set them
        inputs = [value.reshape(shape) for value, shape in zip(inputs, shapes, strict=True)]
        fallback, program = self.base.source.fallback(), self.base.program
        if self.base.subgraph == 0:
            return fallback.run(inputs, shapes)
        signature = next(candidate for candidate in program.signatures if candidate.graph == self.base.subgraph)
        positions = {port.index: position for position, port in enumerate(program.inputs)}
        by_name = fallback.run_signature(
            signature.key,
            {name: inputs[positions[index]] for name, index in signature.inputs},
            {name: shapes[positions[index]] for name, index in signature.inputs},
        )
        results = {index: by_name[name] for name, index in signature.outputs}
        return tuple(results[port.index] for port in program.outputs)


def _fitted(value: Any, port: Port, now: Shape) -> Shape:
    """The shape of an input for this value; `now` is the current one."""
    if value.dtype != port.dtype:
        raise CompiledModelError(f"tensor {port.title!r} is given as {value.dtype}, expected {port.dtype}")
    if value.shape != now:
        if fits(value.shape, port.shape_signature):
            return value.shape  # type: ignore[no-any-return]
        if count(value.shape) != count(now):
            raise CompiledModelError(
                f"tensor {port.title!r} is given with the shape {list(value.shape)}, expected {list(now)};"
                f" its sizes in the model are {list(port.shape_signature)}"
            )
    return now
