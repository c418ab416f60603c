"""Scatter: combines slices at indices known only at run time, without atomics and so always in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar, NamedTuple

from jitdelegate.ir.graph import Node
from jitdelegate.ir.index_forms import Scatter
from jitdelegate.targets.cuda.device_code import Code, Value
from jitdelegate.targets.cuda.division import divided, divisor
from jitdelegate.targets.cuda.element import Element, load, store
from jitdelegate.targets.cuda.gather import slice_at
from jitdelegate.targets.cuda.lanes import COMBINE
from jitdelegate.targets.cuda.sizes import Divisor, Kind, Number
from jitdelegate.targets.cuda.template import Template
from jitdelegate.targets.cuda.writer import Writer


class ScatterSizes(NamedTuple):
    """Number of output elements, of updates, and of elements in a slice."""

    outputs: Number
    updates: Number
    inside: Divisor


@dataclass(frozen=True, eq=False)
class ScatterTemplate(Template):
    """Thread t computes output t: it reads all places and combines the updates that belong to output t.

    Attributes:
        depth: indices per place.
    """

    family: ClassVar[str] = "scatter"
    threads: ClassVar[int] = 256
    kind: str
    initial: float
    depth: int
    source: Element
    places: Element
    target: Element

    @property
    def parameters(self) -> tuple[Kind, ...]:
        return "pointer", "pointer", "pointer", ScatterSizes, ("int32",) * self.depth

    def write(
        self, code: Code, out: Value, data: Value, places: Value, sizes: ScatterSizes, limits: Sequence[Value]
    ) -> None:
        thread = self.thread(code)
        with code.when(thread < sizes.outputs):
            own, inner = divided(code, thread, sizes.inside)
            start = [code.constant(self.source.dtype, self.initial)]
            with code.carried(sizes.updates, start) as (update, (total,), following):
                number, is_inside = slice_at(code, self.places, places, update * self.depth, limits)
                is_own = is_inside & number.equals(own)
                index = code.select(is_own, update, 0) * sizes.inside.size + inner
                added = COMBINE[self.kind](code, total, load(code, self.source, data, index)[0])
                following[0] = code.select(is_own, added, total)
            store(code, self.target, following, out, thread)


def write_scatter(writer: Writer, node: Node) -> None:
    """Writes the launch of a Scatter node."""
    form, (source, index), target = node.form, node.inputs, node.outputs[0]
    assert isinstance(form, Scatter)
    places, shape = writer.shape(index), writer.shape(target)
    depth = places[-1]
    template = ScatterTemplate(
        form.kind, form.initial, depth, writer.element(source), writer.element(index), writer.element(target)
    )
    sizes = ScatterSizes(prod(shape), prod(places[:-1]), Divisor(*divisor(prod(shape[depth:]))))
    pointers = [writer.pointer(one) for one in (target, source, index)]
    writer.launch(template, template.grid(sizes.outputs), [*pointers, sizes, shape[:depth]])
