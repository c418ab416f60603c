"""Buffers of a plan: which tensors share a buffer, how long each buffer is alive, and its offset in the arena."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from jitdelegate.errors import TooLongError
from jitdelegate.ir.forms import View
from jitdelegate.ir.graph import Graph
from jitdelegate.targets.planning.plan_memory import Life, plan_memory

MOST_STEPS = 20_000
"""Most steps of a plan. Memory planning takes quadratic time, some ten seconds for this number."""


def check_steps(what: str, count: int) -> None:
    """Check the number of steps.

    Raises:
        TooLongError: there are more than MOST_STEPS.
    """
    if count > MOST_STEPS:
        raise TooLongError(f"The graph has {count} {what}, expected at most {MOST_STEPS}.")


class Buffers(dict[int, int]):
    """Tensor -> the tensor whose buffer it uses: itself, unless it is an alias of another."""

    def __missing__(self, index: int) -> int:
        return index

    def alias(self, target: int, source: int) -> None:
        """Make `target` an alias of `source`; if `source` is an alias too, that must be entered already."""
        self[target] = self[source]


def view_roots(graph: Graph) -> Buffers:
    """Tensor -> the tensor that a chain of Views shows; itself, if it is no View."""
    roots = Buffers()
    for node in graph.nodes:
        if isinstance(node.form, View):
            roots.alias(node.outputs[0], node.inputs[0])
    return roots


def lives_of(steps: Iterable[Iterable[int]], size: Callable[[int], int]) -> dict[int, Life]:
    """The life of each buffer, in the order of first use.

    Args:
        steps: for each step, the buffers that it reads or writes.
        size: bytes of a buffer.
    """
    ends: dict[int, tuple[int, int]] = {}
    for step, touched in enumerate(steps):
        for index in touched:
            ends[index] = ends.get(index, (step, step))[0], step
    return {index: Life(size(index), *end) for index, end in ends.items()}


def place(lives: Mapping[int, Life], align: int) -> tuple[int, dict[int, int]]:
    """(arena size, offset of each buffer), in bytes; offsets are multiples of `align`."""
    arena_bytes, offsets = plan_memory(list(lives.values()), align=align)
    return arena_bytes, dict(zip(lives, offsets, strict=True))
