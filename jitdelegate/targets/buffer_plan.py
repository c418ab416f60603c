"""Buffers of a plan: which tensors share one, how long each is alive, and where each lies in the arena."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from jitdelegate.errors import CompileError
from jitdelegate.targets.plan_memory import Life, plan_memory

MOST_STEPS = 20_000
"""Planning memory takes time with their square, some ten seconds for this many."""


def check_steps(what: str, count: int) -> None:
    """Nothing, if memory can be planned for so many steps.

    Raises:
        CompileError: there are too many.
    """
    if count > MOST_STEPS:
        raise CompileError(f"The graph has {count} {what}, expected at most {MOST_STEPS}.")


class Buffers(dict[int, int]):
    """By tensor, the one whose buffer it has: itself, unless it was entered as an alias of another."""

    def __missing__(self, index: int) -> int:
        return index

    def alias(self, target: int, source: int) -> None:
        """`target` is another name of `source`, whose own aliases are all known."""
        self[target] = self[source]


def lives_of(steps: Iterable[Iterable[int]], size: Callable[[int], int]) -> dict[int, Life]:
    """How long each buffer is needed, in the order in which they are touched first.

    Args:
        steps: the buffers that each step touches.
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
