"""Scatter: slices combined at places that are known at run time, without atomics and so always in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from jitdelegate.ir.graph import Node
from jitdelegate.ir.index_forms import Scatter
from jitdelegate.targets.cuda.device_code import Code, Value
from jitdelegate.targets.cuda.division import DIVISOR_SIZES, divided, divisor
from jitdelegate.targets.cuda.element import Element, load, store
from jitdelegate.targets.cuda.gather import slice_at
from jitdelegate.targets.cuda.lanes import COMBINE
from jitdelegate.targets.cuda.template import Definition, Template
from jitdelegate.targets.cuda.writer import Writer

THREADS = 256


@dataclass(frozen=True, eq=False)
class ScatterTemplate(Template):
    """Thread t makes output t: it looks at all places and combines the updates that are its own.

    Attributes:
        depth: indices of a place.
    """

    family: ClassVar[str] = "scatter"
    kind: str
    initial: float
    depth: int
    source: Element
    places: Element
    target: Element

    @property
    def threads(self) -> int:
        return THREADS

    def define(self) -> Definition:
        from jitdelegate.targets.cuda.front_end import macro

        @macro()
        def combine(code: Code, out: Value, data: Value, places: Value, numbers: Sequence[Value]) -> None:
            thread = code.special("ctaid.x") * THREADS + code.special("tid.x")
            with code.when(thread < numbers[0]):
                own, inner = divided(code, thread, numbers[2 : 2 + DIVISOR_SIZES])
                store(code, self.target, [self._value(code, (data, places), numbers, own, inner)], out, thread)

        def kernel(out, data, places, numbers):  # type: ignore[no-untyped-def]
            combine(out, data, places, numbers)

        return Definition(kernel, (*["pointer"] * 3, ("int32", 2 + DIVISOR_SIZES + self.depth)))

    def _value(
        self, code: Code, operands: tuple[Value, Value], numbers: Sequence[Value], own: Value, inner: Value
    ) -> Value:
        """What is at place `own`, element `inner` of the slice."""
        count, slice_size, sizes = numbers[1], numbers[2], numbers[2 + DIVISOR_SIZES :]
        start = [code.constant(self.source.dtype, self.initial)]
        with code.carried(count, start) as (update, (total,), following):
            number, is_inside = slice_at(code, self.places, operands[1], update * self.depth, sizes)
            is_own = is_inside & number.equals(own)
            index = code.select(is_own, update, 0) * slice_size + inner
            added = COMBINE[self.kind](code, total, load(code, self.source, operands[0], index)[0])
            following[0] = code.select(is_own, added, total)
        return following[0]


def write_scatter(writer: Writer, node: Node) -> None:
    """Launch of a Scatter node."""
    form, (source, index), target = node.form, node.inputs, node.outputs[0]
    assert isinstance(form, Scatter)
    places, shape = writer.shape(index), writer.shape(target)
    depth = places[-1]
    template = ScatterTemplate(
        form.kind, form.initial, depth, writer.element(source), writer.element(index), writer.element(target)
    )
    numbers = (prod(shape), prod(places[:-1]), *divisor(prod(shape[depth:])), *shape[:depth])
    blocks = -(-prod(shape) // THREADS)
    writer.launch(template, (blocks, 1, 1), [*map(writer.pointer, (target, source, index)), *numbers])
