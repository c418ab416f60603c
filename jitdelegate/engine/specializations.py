"""Specializations: the further programs of a model, for other subgraphs and other shapes of the inputs."""

from __future__ import annotations

import _thread

from jitdelegate.cache.key import variant_parts
from jitdelegate.engine.load_path import specialize
from jitdelegate.runtime.buffers import accepted_shape, integers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from jitdelegate.cache.key import Shapes, Values
    from jitdelegate.engine.executable import Executable

MOST_VALUES = 8
"""So many values of inputs that decide shapes are compiled for; with the next ones the model runs on LiteRT, since
inputs that are never the same again would compile without end."""

MOST_FAILURES = 3
"""So many other shapes are tried in a row where nothing can be compiled for those that the file says."""

MOST_SHAPES = 8
"""As many programs for other shapes than the file's stay ready to run, each with memory of its own. Those that were
used last do; the others are found in the cache when they are asked for again."""


class Specializations:
    """The programs of one model, opened when they are asked for. Several threads may ask at once.

    Attributes:
        main: the program of the first subgraph for the shapes that the file says.
    """

    def __init__(self, main: Executable) -> None:
        self.main = main
        self._subgraphs = {0: main}
        self._resized: dict[tuple[int, Shapes], Executable] = {}
        self._failures: dict[int, int] = {}
        self._decided: dict[tuple[Shapes, Values], Executable] = {}
        self._lock = _thread.allocate_lock()

    def subgraph(self, index: int) -> Executable:
        """The program of a subgraph for the shapes that the file says; raises what `specialize` raises."""
        found = self._subgraphs.get(index)
        if found is None:
            found = specialize(self.main, variant_parts(index))
        return self._subgraphs.setdefault(index, found)

    def resized(self, base: Executable, shapes: Shapes) -> Executable:
        """The program of the same subgraph as `base` for inputs of these shapes; raises what `specialize` raises.

        One that falls out of the kept ones goes on for whoever still holds it. `base` itself may be on LiteRT only for
        its shapes, such as the 1 that stands for an unknown size.
        """
        if shapes == base.shapes:
            return base
        key = base.subgraph, shapes
        found = self._used_last(key)
        if found is None:
            if not self._may_compile(base):
                return base
            found = specialize(base, variant_parts(*key))
            self._count_failure(found)
        with self._lock:
            found = self._resized.setdefault(key, found)  # another thread may have been faster
            while len(self._resized) > MOST_SHAPES:
                del self._resized[next(iter(self._resized))]
        return found

    def _may_compile(self, base: Executable) -> bool:
        """Whether other shapes are worth a try: what stands in the way of a `base` on LiteRT may be its own shapes.
        Where it is not, LiteRT's interpreter finds the programs of the partitions in it for other shapes itself."""
        if base.source.options.target == "litert":
            return False
        if base.program.loader == "delegate" and base.program.delegated < len(base.program.operators):
            return False
        return base.session is not None or self._failures.get(base.subgraph, 0) < MOST_FAILURES

    def _count_failure(self, opened: Executable) -> None:
        """Keeps how often in a row a subgraph could not be compiled."""
        with self._lock:
            failures = self._failures.get(opened.subgraph, 0)
            self._failures[opened.subgraph] = 0 if opened.session is not None else failures + 1

    def decided(self, base: Executable, inputs: Sequence[Any]) -> Executable:
        """The program of the first subgraph for the values of the inputs that decide shapes; `base`, which is on
        LiteRT, after MOST_VALUES of them.

        Raises:
            TensorError: an input is of another type, shape or length.
        """
        ports = base.program.inputs
        shapes = tuple(accepted_shape(value, port) for value, port in zip(inputs, ports, strict=True))
        values = tuple((k, integers(inputs[k], ports[k], shapes[k])) for k in base.program.shape_inputs)
        resized = () if shapes == base.shapes else shapes
        with self._lock:
            found = self._decided.get((resized, values))
            if found is not None or len(self._decided) >= MOST_VALUES:
                return found or base
        found = specialize(base, variant_parts(0, resized, values))
        with self._lock:
            return self._decided.setdefault((resized, values), found)

    def _used_last(self, key: tuple[int, Shapes]) -> Executable | None:
        """The kept program, which now is the last to go."""
        with self._lock:
            found = self._resized.pop(key, None)
            if found is not None:
                self._resized[key] = found
        return found

    def reset(self) -> None:
        """Let the next run of each program find its variables, resource variables too, as its first one did."""
        for opened in self._kept():
            if opened.session is not None:
                opened.session.reset_states(resources=True)

    @property
    def open_subgraphs(self) -> dict[int, Executable]:
        """By number, the programs of subgraphs for the shapes that the file says, as far as they are open."""
        with self._lock:
            return dict(self._subgraphs)

    @property
    def further(self) -> list[Executable]:
        """The kept programs for other shapes or values than the file's."""
        return [executable for executable in self._kept() if executable.resized or executable.values]

    def _kept(self) -> list[Executable]:
        with self._lock:
            return [*self._subgraphs.values(), *self._resized.values(), *self._decided.values()]

    def close(self) -> None:
        """End all worker threads and free the memory."""
        kept = self._kept()
        with self._lock:
            self._resized, self._decided = {}, {}
        for opened in kept:
            opened.close()
        self.main.source.close()


def named(shapes: Shapes) -> str:
    """The shapes of inputs in a sentence."""
    return f"inputs of {' and '.join(str(list(shape)) for shape in shapes)}"
