"""A plan: the tasks of a graph in order, and where each tensor lies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from jitdelegate.ir.graph import Graph, Node
from jitdelegate.ir.layout import Layout
from jitdelegate.targets.cpu.code.kernel import Memory
from jitdelegate.targets.planning.parts import Parts
from jitdelegate.targets.planning.steps import Task

FUSE_BYTES = 1024 * 1024
"""A result larger than this leaves the second-level cache before the next layer reads it."""


@dataclass(frozen=True)
class Copy:
    """A copy of tensor `source` to `target`.

    Attributes:
        shape: of both sides; the tensor of a dense side may have another shape with the same elements.
    """

    source: int
    target: int
    shape: tuple[int, ...]
    origin: tuple[int, ...] = ()
    nodes: tuple[Node, ...] = ()

    def reads(self) -> Iterator[int]:
        yield self.source

    def writes(self) -> int:
        return self.target


@dataclass
class Plan:
    """Tasks in order; `memories` says where each tensor lies.

    Numbers below ABSENT stand for buffers that are no tensors of the graph: the caller's and intermediate copies.

    Attributes:
        layouts: of all tensors; those of parts have the distances of the whole once `parts` are known.
    """

    graph: Graph
    layouts: dict[int, Layout]
    parts: Parts = field(default_factory=Parts)
    tasks: list[Task | Copy] = field(default_factory=list)
    memories: dict[int, Memory] = field(default_factory=dict)
    arena_bytes: int = 0

    def is_large(self, index: int) -> bool:
        """Whether a result would not be in the second-level cache any more when it is read."""
        return self.layouts[index].size >= FUSE_BYTES


def plan_text(planned: Plan) -> str:
    """One line per task: what it computes, and where its tensors lie."""
    lines = [f"arena {planned.arena_bytes} bytes"]
    for step, task in enumerate(planned.tasks):
        names = [node.op for node in task.nodes] or ["copy"]
        reads = ", ".join(_memory_text(planned, index) for index in task.reads())
        lines.append(f"{step}: {_memory_text(planned, task.writes())} = {' + '.join(names)}({reads})")
    return "\n".join(lines) + "\n"


def _memory_text(planned: Plan, index: int) -> str:
    if index not in planned.memories:
        return f"%{index} constant"
    memory = planned.memories[index]
    layout = memory.layout
    kind = "blocked" if layout.blocked else "row-major"
    halo = f" halo {layout.halo}" if any(layout.halo) else ""
    name = f"%{index}" if index >= 0 else "buffer"
    start = f" from {memory.start}" if index in planned.parts.of else ""
    return f"{name} {memory.space}+{memory.offset}{start} {list(layout.shape)} {kind}{halo}"
