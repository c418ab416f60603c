"""Launches of one template that write parts of one tensor, such as samplings of several images to one size, in one
launch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

from jitdelegate.program.check import MOST_ARGUMENTS
from jitdelegate.targets.cuda.code.cost import moving_cycles
from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.code.sizes import Kind, count
from jitdelegate.targets.cuda.code.template import Launch, Template, TensorPointer
from jitdelegate.targets.cuda.code.writer import Writer
from jitdelegate.targets.planning.buffer_plan import Buffers

MOST = 8
"""Most launches in one; a kernel's code grows with their number."""


@dataclass(frozen=True, eq=False)
class SharedGrid(Template):
    """The blocks of grid row k are those of launch number k; some of them may be too many."""

    family: ClassVar[str] = "shared_grid"
    one: Template
    count: int

    @property
    def threads(self) -> int:
        return self.one.threads

    @property
    def min_blocks(self) -> int:
        return self.one.min_blocks

    @property
    def parameters(self) -> tuple[Kind, ...]:
        return "pointer", *(self.one.parameters,) * self.count

    @property
    def written(self) -> frozenset[int]:
        each = sum(map(count, self.one.parameters))
        return frozenset({0, *(1 + k * each + at for k in range(self.count) for at in self.one.written)})

    def write(self, code: Code, whole: Value, *launches: Any) -> None:
        """Args:
        whole: the tensor that all launches write parts of; only says what the kernel writes.
        launches: the arguments of each.
        """
        number = code.special("ctaid.y")
        for k, arguments in enumerate(launches):
            with code.when(number.equals(k)):
                self.one.write(code, *arguments)


def share_grids(writer: Writer, buffers: Buffers) -> list[Launch]:
    """The writer's launches; those that may share a grid do so, in the place of the last one."""
    launches = writer.launches
    groups: dict[tuple[int, Template], list[list[int]]] = {}
    for number, launch in enumerate(launches):
        output = launch.tensors()[0]
        if not launch.template.shares_grid or output not in writer.parts:
            continue
        most = min(MOST, (MOST_ARGUMENTS - 1) // len(launch.arguments))
        found = groups.setdefault((buffers[output], launch.template), [])
        if found and len(found[-1]) < most and all(_may_wait(writer, buffers, one, number) for one in found[-1]):
            found[-1].append(number)
        else:
            found.append([number])
    joined = {group[-1]: group for some in groups.values() for group in some if len(group) > 1}
    left_out = {number for group in joined.values() for number in group[:-1]}
    return [
        _joined(writer, [launches[one] for one in joined[number]]) if number in joined else launch
        for number, launch in enumerate(launches)
        if number not in left_out
    ]


def _may_wait(writer: Writer, buffers: Buffers, one: int, last: int) -> bool:
    """Whether launch number `one` may run where launch `last` does, which writes a part of the same tensor: until then,
    nobody reads that tensor, and nobody overwrites it, the same part of it, or what launch `one` reads."""
    part, *_ = tensors = writer.launches[one].tensors()
    kept = [buffers[index] for index in tensors]
    later = [access for launch in writer.launches[one + 1 : last + 1] for access in launch.accesses()]
    return not any(
        index == part or (index not in writer.parts and buffers[index] in kept) if writes else buffers[index] == kept[0]
        for index, writes in later
    )


def _joined(writer: Writer, launches: Sequence[Launch]) -> Launch:
    """One launch that does what these do."""
    output = writer.parts[launches[0].tensors()[0]].whole
    grid = max(launch.grid[0] for launch in launches), len(launches), 1
    arguments = TensorPointer(output), *(argument for launch in launches for argument in launch.arguments)
    moved = tuple(map(sum, zip(*(launch.moved for launch in launches), strict=True)))
    return replace(
        launches[0],
        template=SharedGrid(launches[0].template, len(launches)),
        grid=grid,
        arguments=arguments,
        origin=tuple(dict.fromkeys(_origins(launches))),
        cycles=moving_cycles(writer.gpu, *moved),
        moved=(prod(grid), *moved[1:]),
    )


def _origins(launches: Sequence[Launch]) -> Iterator[int]:
    for launch in launches:
        yield from launch.origin
