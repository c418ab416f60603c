"""Buffers of a plan: which tensors share a buffer, how long each buffer is alive, and its offset in the arena, where
buffers that are alive at the same time do not overlap."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from jitdelegate.errors import TooLongError
from jitdelegate.ir.forms import View
from jitdelegate.ir.graph import Graph

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


@dataclass(frozen=True, slots=True)
class Life:
    """A buffer: bytes, and the first and last step that touch it."""

    size: int
    first: int
    last: int


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


def plan_memory(lives: Mapping[int, Life], align: int = 64) -> tuple[int, dict[int, int]]:
    """(arena size, offset of each buffer), in bytes; all are multiples of `align`.

    The largest buffer is first, each in the lowest gap that is free for its whole life: the greedy-by-size algorithm of
    Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference" (2020), section 5.
    """
    offsets = dict.fromkeys(lives, 0)
    done: list[int] = []
    for index in sorted(lives, key=lambda index: (-lives[index].size, lives[index].first)):
        life = lives[index]
        others = (other for other in done if lives[other].first <= life.last and life.first <= lives[other].last)
        taken = sorted((offsets[other], offsets[other] + lives[other].size) for other in others)
        offsets[index] = _lowest_gap(life.size, taken, align)
        done.append(index)
    size = max((offsets[index] + life.size for index, life in lives.items()), default=0)
    return -(-size // align) * align, offsets


def _lowest_gap(size: int, taken: list[tuple[int, int]], align: int) -> int:
    at = 0
    for start, end in taken:
        if at + size <= start:
            break
        at = max(at, -(-end // align) * align)
    return at
