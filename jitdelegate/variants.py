"""Variants: the further programs of a model, for other subgraphs and other shapes of the inputs."""

from __future__ import annotations

import _thread

from jitdelegate.cache.key import variant_parts
from jitdelegate.opened import Opened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.cache.key import Shapes

MOST_SHAPES = 8
"""As many programs for other shapes than the file's stay ready to run, each with memory of its own. Those that were
used last do; the others are found in the cache when they are asked for again."""


class Variants:
    """The programs of one model, opened when they are asked for. Several threads may ask at once.

    Attributes:
        main: the program of the first subgraph for the shapes that the file says.
    """

    def __init__(self, main: Opened) -> None:
        self.main = main
        self._subgraphs = {0: main}
        self._resized: dict[tuple[int, Shapes], Opened] = {}
        self._lock = _thread.allocate_lock()

    def subgraph(self, index: int) -> Opened:
        """The program of a subgraph for the shapes that the file says; raises what `Opened` raises."""
        found = self._subgraphs.get(index)
        if found is None:
            found = Opened(self.main.source, main=self.main, variant=variant_parts(index))
        return self._subgraphs.setdefault(index, found)

    def resized(self, base: Opened, shapes: Shapes) -> Opened:
        """The program of the same subgraph as `base` for inputs of these shapes; raises what `Opened` raises.

        One that falls out of the kept ones goes on for whoever still holds it.
        """
        if shapes == base.shapes:
            return base
        key = base.subgraph, shapes
        found = self._used_last(key)
        if found is None:
            found = Opened(base.source, main=base, variant=variant_parts(*key))
        with self._lock:
            found = self._resized.setdefault(key, found)  # another thread may have been faster
            while len(self._resized) > MOST_SHAPES:
                del self._resized[next(iter(self._resized))]
        return found

    def _used_last(self, key: tuple[int, Shapes]) -> Opened | None:
        """The kept program, which now is the last to go."""
        with self._lock:
            found = self._resized.pop(key, None)
            if found is not None:
                self._resized[key] = found
        return found

    def reset(self) -> None:
        """Let the next run of each program find its variables, resource variables too, as its first one did."""
        with self._lock:
            kept = [*self._subgraphs.values(), *self._resized.values()]
        for opened in kept:
            if opened.session is not None:
                opened.session.reset_states(resources=True)

    @property
    def notes(self) -> list[str]:
        """One sentence per kept program, for the report."""
        with self._lock:
            kept = [*self._subgraphs.values(), *self._resized.values()]
        return [_note(opened) for opened in kept if opened is not self.main]

    def close(self) -> None:
        """End all worker threads and free the memory."""
        with self._lock:
            kept, self._resized = [*self._resized.values()], {}
        for opened in (*kept, *self._subgraphs.values()):
            opened.close()
        self.main.source.close()


def named(shapes: Shapes) -> str:
    """The shapes of inputs in a sentence."""
    return f"inputs of {' and '.join(str(list(shape)) for shape in shapes)}"


def _note(opened: Opened) -> str:
    parts = [f"subgraph {opened.subgraph}"] if opened.subgraph else []
    parts += [named(opened.resized)] if opened.resized else []
    place = f"LiteRT, {opened.reason}" if opened.session is None else f"{opened.target}, cache {opened.outcome}."
    return f"{', '.join(parts)}: {place}"
