"""Captures of streams: the nodes of a graph to be, what each of them follows, and the orders in which they may run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

CAPTURE_GLOBAL, CAPTURE_THREAD_LOCAL, CAPTURE_RELAXED = range(3)
Work = Callable[[], None]
Touch = tuple[int, int, bool]
"""Start and end of a range of addresses, and whether it is written."""


@dataclass(eq=False)
class Node:
    """What a graph does in one step, and the nodes that it follows.

    Attributes:
        is_launch: whether it is a kernel, after which a dependent launch may begin early.
    """

    run: Work
    needs: tuple[Node, ...] = ()
    is_launch: bool = False


@dataclass
class Stream:
    """Work that nobody has waited for yet.

    Attributes:
        capture: the graph to be, while there is one.
        ends: the nodes of the graph to be that the next one of this stream follows.
    """

    pending: list[Work] = field(default_factory=list)
    capture: Capture | None = None
    ends: tuple[Node, ...] = ()

    def follow(self, capture: Capture, ends: tuple[Node, ...]) -> None:
        """Let the next node follow these too; the stream is part of the capture from now on."""
        self.capture = capture
        self.ends = tuple(dict.fromkeys((*self.ends, *ends)))
        if self not in capture.streams:
            capture.streams.append(self)

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


@dataclass
class Capture:
    """A graph to be: its nodes, its streams, who began it and how, and whether something broke it."""

    mode: int
    thread: int
    nodes: list[Node] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    is_broken: bool = False

    def forbids(self, mode: int, thread: int) -> bool:
        """Whether it keeps a thread of this mode from what is unsafe. Source: the driver's documentation of
        cuThreadExchangeStreamCaptureMode."""
        if mode == CAPTURE_RELAXED:
            return False
        if thread == self.thread:
            return self.mode != CAPTURE_RELAXED
        return mode == self.mode == CAPTURE_GLOBAL

    def add(self, stream: Stream, run: Work, *, is_launch: bool) -> None:
        """A node after what the stream has come to."""
        node = Node(run, stream.ends, is_launch)
        self.nodes.append(node)
        stream.ends = (node,)

    def is_joined(self) -> bool:
        """Whether what all streams did comes before the end of the first one."""
        before = set(self.streams[0].ends)
        for node in reversed(self.nodes):
            if node in before:
                before.update(node.needs)
        return all(node in before for stream in self.streams for node in stream.ends)

    def end(self) -> None:
        """No stream is captured any more."""
        for stream in self.streams:
            stream.capture, stream.ends = None, ()


class MissingEdgeError(Exception):
    """Two nodes of a graph touch the same memory, one of them writes, and neither follows the other."""


class Watch:
    """Notes what the nodes of one run of a graph touch, and refuses conflicts between those that may run together."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._before: dict[Node, set[Node]] = {}
        for node in nodes:  # a node comes after those that it follows
            self._before[node] = {*node.needs}.union(*(self._before[other] for other in node.needs))
        self._touched: dict[Node, list[Touch]] = {}

    def note(self, node: Node, touched: list[Touch]) -> None:
        """
        Raises:
            MissingEdgeError: the order of this node and an earlier one is left to chance, and makes a difference.
        """
        for other, earlier in self._touched.items():
            if other in self._before[node]:
                continue
            for start, end, writes in touched:
                for first, last, wrote in earlier:
                    if (writes or wrote) and start < last and first < end:
                        raise MissingEdgeError(f"two nodes touch {max(start, first):#x}, and neither follows the other")
        self._touched[node] = touched


def is_row(nodes: Sequence[Node]) -> bool:
    """Whether each node follows the one before it."""
    return all(node.needs == (before,) for before, node in pairwise(nodes))


def ordered(nodes: Sequence[Node], choose: Callable[[Sequence[Node]], Node]) -> Iterator[Node]:
    """The nodes of a graph, each after those that it follows; `choose` has one of those that may come next."""
    waiting, done = list(nodes), set[Node]()
    while waiting:
        ready = [node for node in waiting if done.issuperset(node.needs)]
        node = choose(ready)
        waiting.remove(node)
        done.add(node)
        yield node
