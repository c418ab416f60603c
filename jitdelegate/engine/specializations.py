"""Specializations: the further programs of a model, for other subgraphs and other shapes of the inputs."""

from __future__ import annotations

import _thread

from jitdelegate.engine.executable import MOST_SHAPES
from jitdelegate.engine.load_path import specialize
from jitdelegate.runtime.buffers import accepted_shape, integers
from jitdelegate.runtime.cache.key import variant_parts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from jitdelegate.engine.executable import Executable
    from jitdelegate.engine.named_shapes import NamedShapes
    from jitdelegate.runtime.cache.key import Shapes, Values

MOST_VALUES = 8
"""Most value sets of shape inputs to specialize for; later ones run on LiteRT. Bounds compile time when every call
brings new values."""

MOST_FAILURES = 3
"""Most failed attempts in a row to compile other shapes, where the file's shapes cannot be compiled."""


class Specializations:
    """The programs of one model, opened on request. Safe for concurrent calls.

    Attributes:
        main: the program of the first subgraph for the file's shapes.
    """

    def __init__(self, main: Executable) -> None:
        self.main = main
        self._subgraphs = {0: main}
        self._resized: dict[tuple[int, Shapes], Executable] = {}
        self._failures: dict[int, int] = {}
        self._by_values: dict[tuple[Shapes, Values], Executable] = {}
        self._lock = _thread.allocate_lock()

    def subgraph(self, index: int) -> Executable:
        """The program of a subgraph for the file's shapes; raises the errors of `specialize`."""
        executable = self._subgraphs.get(index)
        if executable is None:
            executable = specialize(self.main, variant_parts(index))
        return self._subgraphs.setdefault(index, executable)

    def resized(self, base: Executable, shapes: Shapes) -> Executable:
        """The program of the same subgraph as `base` for inputs of these shapes; raises the errors of `specialize`.

        A program that is no longer kept still works for its holders. `base` may be on LiteRT only because of its
        shapes, such as the 1 that stands for an unknown size.
        """
        if shapes == base.shapes:
            return base
        key = base.subgraph, shapes
        executable = self._used_last(key)
        if executable is None:
            if not self._may_compile(base):
                return base
            executable = specialize(base, variant_parts(*key))
            self._count_failure(executable)
        with self._lock:
            executable = self._resized.setdefault(key, executable)  # another thread may have been faster
            while len(self._resized) > MOST_SHAPES:
                del self._resized[next(iter(self._resized))]
        return executable

    def prepare(self, given: NamedShapes) -> list[Executable]:
        """The programs of all subgraphs that have inputs of these names, for these sizes.

        LiteRT's interpreter opens its partitions itself, when it gets inputs of these sizes.

        Raises:
            TensorError: as `named_shapes`. Also the errors of `specialize`.
        """
        from jitdelegate.engine.named_shapes import all_subgraphs, named_shapes  # not before: few callers give any

        bases = {number: self.subgraph(number) for number in all_subgraphs(self.main.program)}
        executables = []
        for number, shapes in named_shapes({at: executable.program for at, executable in bases.items()}, given).items():
            base = bases[number]
            if base.program.loader == "delegate" and shapes != base.shapes:
                executables.append(specialize(base, variant_parts(number, shapes, hosted=True)))
            else:
                executables.append(self.resized(base, shapes))
        return executables

    def _may_compile(self, base: Executable) -> bool:
        """Whether to try other shapes: a `base` on LiteRT may be there because of its shapes. A hosted `base` needs no
        program: LiteRT's interpreter asks for partitions of other shapes itself."""
        if base.is_left_to_litert:
            return False
        if base.program.loader == "delegate" and base.program.delegated < len(base.program.operators):
            return False
        return base.session is not None or self._failures.get(base.subgraph, 0) < MOST_FAILURES

    def _count_failure(self, executable: Executable) -> None:
        """Count the failures in a row to compile a subgraph."""
        with self._lock:
            failures = self._failures.get(executable.subgraph, 0)
            self._failures[executable.subgraph] = 0 if executable.session is not None else failures + 1

    def for_values(self, base: Executable, inputs: Sequence[Any]) -> Executable:
        """The program of the first subgraph for the values of its shape inputs; `base`, which runs on LiteRT, after
        MOST_VALUES of them.

        Raises:
            TensorError: an input has another type, shape or length.
        """
        ports = base.program.inputs
        shapes = tuple(accepted_shape(value, port) for value, port in zip(inputs, ports, strict=True))
        values = tuple((k, integers(inputs[k], ports[k], shapes[k])) for k in base.program.shape_inputs)
        resized = () if shapes == base.shapes else shapes
        with self._lock:
            executable = self._by_values.get((resized, values))
            if executable is not None or len(self._by_values) >= MOST_VALUES:
                return executable or base
        executable = specialize(base, variant_parts(0, resized, values))
        with self._lock:
            return self._by_values.setdefault((resized, values), executable)

    def _used_last(self, key: tuple[int, Shapes]) -> Executable | None:
        """The kept program, marked as the most recently used one."""
        with self._lock:
            executable = self._resized.pop(key, None)
            if executable is not None:
                self._resized[key] = executable
        return executable

    def reset(self) -> None:
        """Reset all variables of all programs, resource variables too."""
        for executable in self._kept():
            if executable.session is not None:
                executable.session.reset_states(resources=True)

    @property
    def open_subgraphs(self) -> dict[int, Executable]:
        """Subgraph number to its open program for the file's shapes."""
        with self._lock:
            return dict(self._subgraphs)

    @property
    def further(self) -> list[Executable]:
        """The kept programs for other shapes, and for values of shape inputs."""
        return [executable for executable in self._kept() if executable.resized or executable.values]

    def _kept(self) -> list[Executable]:
        with self._lock:
            return [*self._subgraphs.values(), *self._resized.values(), *self._by_values.values()]

    def close(self) -> None:
        """Stop all worker threads and free the memory."""
        kept = self._kept()
        with self._lock:
            self._resized, self._by_values = {}, {}
        for executable in kept:
            executable.close()
        self.main.source.close()
