"""Gather: slices at places that are known at run time, one vector of outputs per thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from jitdelegate.ir.graph import Node
from jitdelegate.ir.index_forms import Gather
from jitdelegate.targets.cuda.device_code import I32, Code, Value
from jitdelegate.targets.cuda.division import coordinates, divisors
from jitdelegate.targets.cuda.element import Element, common_width, load, resized, store
from jitdelegate.targets.cuda.template import Definition, Template
from jitdelegate.targets.cuda.writer import Writer

THREADS = 256
AXES = 4
"""Of an output: what goes together, what passes by, places, and the inside of slices."""


@dataclass(frozen=True, eq=False)
class LookUpTemplate(Template):
    """out[b, o, i, n] = data[b, o, places[b, i, 0], ..., n], 0 where a place lies outside.

    Attributes:
        depth: axes that are looked up.
        width: neighbouring outputs of a thread.
        source, places, target: how the operands and the output are stored.
    """

    family: ClassVar[str] = "gather"
    depth: int
    width: int
    source: Element
    places: Element
    target: Element

    @property
    def threads(self) -> int:
        return THREADS

    def define(self) -> Definition:
        from jitdelegate.targets.cuda.front_end import macro

        @macro()
        def look_up(code: Code, out: Value, data: Value, places: Value, numbers: Sequence[Value]) -> None:
            thread = code.special("ctaid.x") * THREADS + code.special("tid.x")
            with code.when(thread < numbers[0]):
                self._write(code, out, (data, places), numbers[1:], thread)

        def kernel(out, data, places, numbers):  # type: ignore[no-untyped-def]
            look_up(out, data, places, numbers)

        count = 1 + len(divisors([1] * AXES)) + 4 + self.depth
        return Definition(kernel, ("pointer", "pointer", "pointer", ("int32", count)))

    def _write(
        self, code: Code, out: Value, operands: tuple[Value, Value], numbers: Sequence[Value], thread: Value
    ) -> None:
        split = len(divisors([1] * AXES))
        together, passing, place, inner = coordinates(code, thread, numbers[:split])
        row, slices, count, slice_size, *sizes = numbers[split:]
        first = (together * count + place) * self.depth
        number, is_inside = slice_at(code, self.places, operands[1], first, sizes)
        index = (together * row + passing * slices + number) * slice_size + inner * self.width
        zero = code.constant(self.source.dtype, 0)
        loaded = load(code, self.source, operands[0], index, self.width)
        store(code, self.target, [code.select(is_inside, value, zero) for value in loaded], out, thread * self.width)


def slice_at(code: Code, element: Element, places: Value, first: Value, sizes: Sequence[Value]) -> tuple[Value, Value]:
    """(number of the slice that the indices from `first` on name, whether all lie inside `sizes`); 0 where not."""
    number, is_inside = code.integer(0), code.boolean(True)
    for axis, size in enumerate(sizes):
        place = load(code, element, places, first + axis)[0]
        is_inside = is_inside & code.within(place, resized(code, size, place.value.type))
        number = number * size + resized(code, place, I32)
    return code.select(is_inside, number, 0), is_inside


def write_gather(writer: Writer, node: Node) -> None:
    """Launch of a Gather node."""
    form, (source, index), target = node.form, node.inputs, node.outputs[0]
    assert isinstance(form, Gather)
    data, places = writer.shape(source), writer.shape(index)
    batch, axis, depth = form.batch, form.axis, places[-1]
    inside = prod(data[axis + depth :])
    elements = writer.element(source), writer.element(target)
    width = common_width([inside], min(element.widest for element in elements))
    sizes = (prod(data[:batch]), prod(data[batch:axis]), prod(places[batch:-1]), inside // width)
    slices = prod(data[axis : axis + depth])
    template = LookUpTemplate(depth, width, elements[0], writer.element(index), elements[1])
    lengths = (sizes[1] * slices, slices, sizes[2], inside)
    numbers = [prod(sizes), *divisors(sizes), *lengths, *data[axis : axis + depth]]
    blocks = -(-prod(sizes) // THREADS)
    writer.launch(template, (blocks, 1, 1), [*map(writer.pointer, (target, source, index)), *numbers])
