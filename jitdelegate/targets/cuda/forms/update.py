"""Update: a window written over a tensor, one vector of the window per thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from jitdelegate.ir.graph import Node
from jitdelegate.ir.index_forms import Update
from jitdelegate.targets.cuda.code.cost import moving_cycles
from jitdelegate.targets.cuda.code.device_code import I32, Code, Value
from jitdelegate.targets.cuda.code.division import coordinates, divisor_kinds, divisors
from jitdelegate.targets.cuda.code.element import Element, common_width, load, resized, store
from jitdelegate.targets.cuda.code.sizes import Kind
from jitdelegate.targets.cuda.code.template import Template
from jitdelegate.targets.cuda.code.writer import Writer


@dataclass(frozen=True, eq=False)
class UpdateTemplate(Template):
    """out[s + i] = update[i] for every i in the window; s is the start, moved so that the window lies within `out`.

    Attributes:
        depth: axes along which the window has a place; the elements along all others are neighbours.
        width: neighbouring elements of a thread.
        source, start, target: element types of the operands and the output.
    """

    family: ClassVar[str] = "update"
    threads: ClassVar[int] = 256
    depth: int
    width: int
    source: Element
    start: Element
    target: Element

    @property
    def parameters(self) -> tuple[Kind, ...]:
        axes = ("int32",) * self.depth
        return "pointer", "pointer", "pointer", "int32", divisor_kinds(self.depth + 1), axes, axes

    def write(
        self,
        code: Code,
        out: Value,
        update: Value,
        start: Value,
        vectors: Value,
        sizes: Sequence[Value],
        rooms: Sequence[Value],
        pitches: Sequence[Value],
    ) -> None:
        """Args:
        vectors: number of vectors of the window.
        sizes: sizes of the window in vectors, as divisors.
        rooms: by axis, the largest place of the window.
        pitches: by axis, elements of the output between neighbours.
        """
        thread = self.thread(code)
        with code.when(thread < vectors):
            *place, inner = coordinates(code, thread, sizes)
            index = inner * self.width
            for axis, (own, room, pitch) in enumerate(zip(place, rooms, pitches, strict=True)):
                first = load(code, self.start, start, code.integer(axis))[0]
                inside = code.minimum(code.maximum(first, 0), resized(code, room, first.value.type))
                index = index + (own + resized(code, inside, I32)) * pitch
            store(code, self.target, load(code, self.source, update, thread * self.width, self.width), out, index)


@dataclass(frozen=True, eq=False)
class WindowsTemplate(UpdateTemplate):
    """Window w of `count`, for all w in order: out[s[w] + i] = update[w, i] for every i in it, where it lies in `out`.

    A thread writes the same elements of all windows: of windows in one position, the last one stays.

    Attributes:
        rank: indices per start.
    """

    family: ClassVar[str] = "windows"
    rank: int

    @property
    def parameters(self) -> tuple[Kind, ...]:
        return *super().parameters, "int32"

    def write(
        self,
        code: Code,
        out: Value,
        update: Value,
        start: Value,
        vectors: Value,
        sizes: Sequence[Value],
        rooms: Sequence[Value],
        pitches: Sequence[Value],
        *count: Value,
    ) -> None:
        """As in an UpdateTemplate, then the number of windows."""
        thread = self.thread(code)
        with code.when(thread < vectors):
            *place, inner = coordinates(code, thread, sizes)
            with code.loop(count[0]) as number:
                index, is_inside = inner * self.width, code.boolean(True)
                for axis, (own, room, pitch) in enumerate(zip(place, rooms, pitches, strict=True)):
                    first = load(code, self.start, start, number * self.rank + axis)[0]
                    is_inside = is_inside & code.within(first, resized(code, room + 1, first.value.type))
                    index = index + (own + resized(code, first, I32)) * pitch
                with code.when(is_inside):
                    own_part = (number * vectors + thread) * self.width
                    store(code, self.target, load(code, self.source, update, own_part, self.width), out, index)


def write_update(writer: Writer, node: Node, form: Update) -> None:
    """Writes the launch of an Update node; the output holds the data already."""
    (data, update, start), target = node.inputs, node.outputs[0]
    several = writer.shape(start)[:-1]
    whole, window = writer.shape(data), writer.shape(update)[len(several) :]
    has_place = [size != part or (size == 1 and not form.clamps) for size, part in zip(whole, window, strict=True)]
    depth = max((axis + 1 for axis, has in enumerate(has_place) if has), default=1)
    inner = prod(whole[depth:])
    elements = writer.element(update), writer.element(target)
    width = common_width([inner], min(element.widest for element in elements))
    sizes = *window[:depth], inner // width
    fields = depth, width, elements[0], writer.element(start), elements[1]
    template = UpdateTemplate(*fields) if form.clamps else WindowsTemplate(*fields, len(whole))
    grid = template.grid(prod(sizes))
    count = prod(several)
    moved = count * prod(window) * sum(element.nbytes for element in elements)
    writer.launch(
        template,
        grid,
        [
            *(writer.pointer(index) for index in (target, update, start)),
            prod(sizes),
            divisors(sizes),
            [size - part for size, part in zip(whole[:depth], window, strict=False)],
            [prod(whole[axis + 1 :]) for axis in range(depth)],
            *([] if form.clamps else [count]),
        ],
        cycles=moving_cycles(writer.gpu, prod(grid), moved),
    )
