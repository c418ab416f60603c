"""Which launches may run at the same time: dependencies by memory, the streams of branches, and what that takes.

A launch that everything before it leads to, and that everything after it follows, is a joint. Between two joints lies a
region; most have no launch or one. Whether the branches of a region run side by side is decided for each region by the
cost model, since edges of forks and joins are full ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from jitdelegate.program.check import MOST_STREAMS
from jitdelegate.targets.cuda.code.gpu import Costs, Gpu
from jitdelegate.targets.cuda.code.template import Launch
from jitdelegate.targets.planning.buffer_plan import Life
from jitdelegate.targets.planning.parts import Part

WORTH = 0.95
"""A region has branches if they take at most this share of the time of a row."""
MOST_LAUNCHES = 2000
"""With more launches, all run in a row: looking for branches takes quadratic time."""
Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Order:
    """What a launch follows, as `program.Launch` says it."""

    stream: int = 0
    waits: tuple[int, ...] = ()
    is_dependent: bool = False

    def edge(self, costs: Costs) -> float:
        """Nanoseconds between the launch and the one before it in its stream."""
        return costs.dependent_edge if self.is_dependent else costs.full_edge


@dataclass(frozen=True, slots=True)
class Touch:
    """Memory that a launch reads or writes: a buffer, or a part of one."""

    buffer: int
    part: Part | None
    writes: bool

    def conflicts(self, other: Touch) -> bool:
        """Whether two launches that touch the same buffer this way have to keep their order."""
        if not (self.writes or other.writes):
            return False
        return self.part is None or other.part is None or not _disjoint(self.part, other.part)


def _disjoint(a: Part, b: Part) -> bool:
    """Whether two parts of a tensor are known to share no element: dense ones, or columns of rows."""
    if a.is_dense and b.is_dense:
        return a.first + a.length <= b.first or b.first + b.length <= a.first
    if a.pitch != b.pitch:
        return False
    first, second = (part.first % part.pitch for part in (a, b))
    is_in_row = first + a.length <= a.pitch and second + b.length <= b.pitch
    return is_in_row and (first + a.length <= second or second + b.length <= first)


class Branches:
    """Regions of launches, and the order in which they run.

    Attributes:
        regions: (first, end) of the regions of two and more launches.
    """

    def __init__(self, launches: Sequence[Launch], touches: Sequence[Sequence[Touch]], gpu: Gpu) -> None:
        """
        Args:
            touches: by launch.
        """
        self._launches, self._touches, self._gpu = launches, touches, gpu
        self._needs = _needs(touches) if len(launches) <= MOST_LAUNCHES else []
        self.regions = _regions(_ancestors(self._needs))

    def side_by_side(self) -> list[Range]:
        """The regions that gain by branches, if nothing else keeps launches in order."""
        return [region for region, orders in self._chosen(self._needs).items() if any(one.stream for one in orders)]

    def orders(self, ranges: Mapping[int, Range]) -> tuple[Order, ...]:
        """The order of all launches.

        Args:
            ranges: by buffer, its memory.
        """
        needs, touches = [set(one) for one in self._needs], self._touches
        for first, end in self.regions:
            for later in range(first, end):
                needs[later].update(
                    one for one in range(first, later) if _share_memory(touches[one], touches[later], ranges)
                )
        orders = in_a_row(len(self._launches), self._gpu)
        for (first, _), chosen in self._chosen(needs).items():
            orders[first : first + len(chosen)] = chosen
        return tuple(orders)

    def _chosen(self, needs: Sequence[set[int]]) -> dict[Range, list[Order]]:
        """The orders of each region's launches and of the joint after it."""
        ancestors, chosen = _ancestors(needs), {}
        for first, end in self.regions:
            last = min(end + 1, len(self._launches))
            row = in_a_row(last, self._gpu)[first:]
            branches = _assigned(self._launches, needs, ancestors, (first, last), joins=end < last, gpu=self._gpu)
            times = [nanoseconds(self._launches[first:last], orders, self._gpu, first) for orders in (row, branches)]
            chosen[first, end] = branches if times[1] <= WORTH * times[0] else row
        return chosen


def extended(lives: Mapping[int, Life], regions: Iterable[Range]) -> dict[int, Life]:
    """Lives as they are where launches of a region run at the same time: what is alive in it is alive all through."""
    longer = dict(lives)
    for first, end in regions:
        for index, life in longer.items():
            if life.first < end and life.last >= first:
                longer[index] = replace(life, first=min(life.first, first), last=max(life.last, end - 1))
    return longer


def nanoseconds(launches: Sequence[Launch], orders: Sequence[Order], gpu: Gpu, start: int = 0) -> float:
    """Predicted time from the end of what comes before launches to the end of the last one.

    Launches of several streams share the multiprocessors, as far as their blocks leave some.

    Args:
        start: the first launch's number.
    """
    costs, full = gpu.costs, gpu.costs.full_edge
    ends: list[float] = []
    lasts: dict[int, int] = {}
    running: list[tuple[float, float, float]] = []
    for number, (launch, order) in enumerate(zip(launches, orders, strict=True)):
        ready = [ends[other - start] + full if other >= start else full for other in order.waits]
        if order.stream in lasts:
            ready.append(ends[lasts[order.stream]] + order.edge(costs))
        elif not ready and (start or number):
            ready.append(order.edge(costs))
        length, share = launch.cycles / costs.clock, min(1.0, prod(launch.grid) / gpu.multiprocessors)
        begin = _free(max(ready, default=0.0), length, share, running)
        running.append((begin, begin + length, share))
        ends.append(begin + length)
        lasts[order.stream] = number
    return max(ends, default=0.0)


def _free(ready: float, length: float, share: float, running: Sequence[tuple[float, float, float]]) -> float:
    """The first time from `ready` on at which the multiprocessors have room for so long."""
    for begin in sorted({ready, *(end for _, end, _ in running if end > ready)}):
        beside = sum(own for first, end, own in running if first < begin + length and begin < end)
        if beside + share <= 1.0:
            return begin
    return ready


def in_a_row(count: int, gpu: Gpu) -> list[Order]:
    """Launches one after another, which begin early if the GPU can do that."""
    return [Order(is_dependent=number > 0 and gpu.has_dependent_launch) for number in range(count)]


def _needs(touches: Sequence[Sequence[Touch]]) -> list[set[int]]:
    """For each launch, the earlier ones that it has to follow, but for those that these follow by a whole buffer."""
    history: dict[int, list[tuple[int, Touch]]] = {}
    needs: list[set[int]] = []
    for number, own in enumerate(touches):
        needed = {
            earlier for touch in own for earlier, other in history.get(touch.buffer, ()) if touch.conflicts(other)
        }
        for touch in own:
            if touch.writes and touch.part is None:
                history[touch.buffer] = []
        for touch in own:
            history.setdefault(touch.buffer, []).append((number, touch))
        needs.append(needed)
    return needs


def _ancestors(needs: Sequence[Iterable[int]]) -> list[int]:
    """For each launch, all that come before it, one bit each."""
    ancestors: list[int] = []
    for needed in needs:
        before = 0
        for other in needed:
            before |= ancestors[other] | 1 << other
        ancestors.append(before)
    return ancestors


def _regions(ancestors: Sequence[int]) -> list[Range]:
    """The runs of two and more launches between joints."""
    count, later = len(ancestors), -1
    joints = [count]
    for number in reversed(range(count)):
        if later >> number & 1 and ancestors[number] == (1 << number) - 1:
            joints.append(number)
        later &= ancestors[number]
    joints.append(-1)
    pairs = zip(joints[1:], joints, strict=False)
    return sorted((before + 1, joint) for before, joint in pairs if joint - before > 2)


def _share_memory(a: Sequence[Touch], b: Sequence[Touch], ranges: Mapping[int, Range]) -> bool:
    """Whether one of two launches writes where another buffer of the other one lies."""
    return any(
        (one.writes or other.writes)
        and one.buffer != other.buffer
        and _overlap(ranges[one.buffer], ranges[other.buffer])
        for one in a
        for other in b
    )


def _overlap(a: Range, b: Range) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def _assigned(
    launches: Sequence[Launch],
    needs: Sequence[set[int]],
    ancestors: Sequence[int],
    region: Range,
    *,
    joins: bool,
    gpu: Gpu,
) -> list[Order]:
    """Orders of a region's launches in streams: a launch follows in its stream what it needs, if it can.

    Args:
        region: with the joint after it if it `joins`, which is in stream 0, as the joint before it.
    """
    first, last = region
    lasts = {0: first - 1} if first else {}
    streams = {first - 1: 0}
    ends: dict[int, float] = {first - 1: 0.0}
    orders: list[Order] = []
    for number in range(first, last):
        needed = {one for one in needs[number] if one >= first - 1}  # at least the joint before the region
        covered = 0
        for one in needed:
            covered |= ancestors[one]
        needed = {one for one in needed if not covered >> one & 1}
        stream = _stream(lasts, needed, ends)
        if joins and number == last - 1:
            stream = 0
        awaited: dict[int, int] = {}
        for one in needed:
            if streams[one] != stream:
                awaited[streams[one]] = max(one, awaited.get(streams[one], -1))
        waits = tuple(sorted(awaited.values()))
        order = Order(stream, waits, not waits and stream in lasts and gpu.has_dependent_launch)
        before = [*needed, *([lasts[stream]] if stream in lasts else [])]
        length = order.edge(gpu.costs) + launches[number].cycles / gpu.costs.clock
        ends[number] = max((ends[one] for one in before), default=0.0) + length
        lasts[stream], streams[number] = number, stream
        orders.append(order)
    return orders


def _stream(lasts: Mapping[int, int], needed: Iterable[int], ends: Mapping[int, float]) -> int:
    """The stream for a launch: one that ends with what it needs, the latest; else a new one; else the earliest."""
    following = [stream for stream, number in lasts.items() if number in needed]
    if following:
        return max(following, key=lambda stream: ends[lasts[stream]])
    unused = [stream for stream in range(MOST_STREAMS) if stream not in lasts]
    return unused[0] if unused else min(lasts, key=lambda stream: ends[lasts[stream]])
