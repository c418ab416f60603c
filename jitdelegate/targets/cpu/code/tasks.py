"""A plan: the tasks of a graph in order, and where each tensor lies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from jitdelegate.ir.graph import ABSENT, Node
from jitdelegate.targets.cpu.code.kernel import Memory


@dataclass(frozen=True)
class Task:
    """One step: a node (with the nodes `before` it that are fused), or a copy of tensor `source` to `target`.

    A copy uses `shape` for both sides; the tensor of a dense side may have another shape with the same elements.
    """

    node: Node | None = None
    before: tuple[Node, ...] = ()
    source: int = ABSENT
    target: int = ABSENT
    shape: tuple[int, ...] = ()
    origin: tuple[int, ...] = ()

    @property
    def nodes(self) -> list[Node]:
        """The task's nodes in order; none for a copy."""
        return [*self.before, *([self.node] if self.node is not None else [])]

    def reads(self) -> Iterator[int]:
        """Tensors that the task reads, with constants, but without the results that stay in scratch memory."""
        if self.node is None:
            yield self.source
        inside = {node.outputs[0] for node in self.before}
        for node in self.nodes:
            yield from (i for i in node.inputs if i != ABSENT and i not in inside)

    def writes(self) -> int:
        return self.target if self.node is None else self.node.outputs[0]


@dataclass
class Plan:
    """Tasks in order; `memories` says where each tensor lies.

    Numbers below ABSENT stand for buffers that are no tensors of the graph: the caller's and intermediate copies.

    Attributes:
        wholes: tensor -> the tensor that it is a part of.
        copied: result of a Concat or slice -> the numbers of the operands that it copies, where these are not all.
    """

    tasks: list[Task] = field(default_factory=list)
    memories: dict[int, Memory] = field(default_factory=dict)
    arena_bytes: int = 0
    wholes: dict[int, int] = field(default_factory=dict)
    copied: dict[int, Sequence[int]] = field(default_factory=dict)


def plan_text(planned: Plan) -> str:
    """One line per task: what it computes, and where its tensors lie."""
    lines = [f"arena {planned.arena_bytes} bytes"]
    for step, task in enumerate(planned.tasks):
        names = [node.op for node in task.nodes] or ["copy"]
        reads = ", ".join(_place_text(planned, index) for index in task.reads())
        lines.append(f"{step}: {_place_text(planned, task.writes())} = {' + '.join(names)}({reads})")
    return "\n".join(lines) + "\n"


def _place_text(planned: Plan, index: int) -> str:
    if index not in planned.memories:
        return f"%{index} constant"
    memory = planned.memories[index]
    layout = memory.layout
    kind = "blocked" if layout.blocked else "row-major"
    halo = f" halo {layout.halo}" if any(layout.halo) else ""
    name = f"%{index}" if index >= 0 else "buffer"
    start = f" from {memory.start}" if index in planned.wholes else ""
    return f"{name} {memory.space}+{memory.offset}{start} {list(layout.shape)} {kind}{halo}"
