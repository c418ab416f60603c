"""Scatter: combines slices at indices known only at run time, without atomics and so always in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar, NamedTuple

from jitdelegate.ir.graph import Node
from jitdelegate.ir.index_forms import Scatter
from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.code.division import divided, divisor
from jitdelegate.targets.cuda.code.element import Element, load, store
from jitdelegate.targets.cuda.code.lanes import combine_of
from jitdelegate.targets.cuda.code.refusal import KINDS, first_outside, refusal_arguments, refuse
from jitdelegate.targets.cuda.code.sizes import Divisor, Kind, Number
from jitdelegate.targets.cuda.code.template import Template
from jitdelegate.targets.cuda.code.writer import Writer
from jitdelegate.targets.cuda.forms.gather import slice_at


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
        refuses: whether a place outside refuses the run; with `skips_negative`, a negative one does not.
    """

    family: ClassVar[str] = "scatter"
    threads: ClassVar[int] = 256
    kind: str
    initial: float
    depth: int
    source: Element
    places: Element
    target: Element
    refuses: bool
    skips_negative: bool

    @property
    def parameters(self) -> tuple[Kind, ...]:
        own = "pointer", "pointer", "pointer", ScatterSizes, ("int32",) * self.depth
        return (*own, *KINDS) if self.refuses else own

    def write(
        self,
        code: Code,
        out: Value,
        data: Value,
        places: Value,
        sizes: ScatterSizes,
        limits: Sequence[Value],
        *refusal: Value,
    ) -> None:
        thread = self.thread(code)
        with code.when(thread < sizes.outputs):
            own, inner = divided(code, thread, sizes.inside)
            start, combine = [code.constant(self.source.dtype, self.initial)], combine_of(self.kind, self.source.dtype)
            with code.carried(sizes.updates, start) as (update, (total,), following):
                first = update * self.depth
                number, is_inside = slice_at(code, self.places, places, first, limits)
                if self.refuses:
                    is_outside = ~is_inside
                    if self.skips_negative:
                        is_outside = is_outside & (load(code, self.places, places, first)[0] >= 0)
                    with code.when(is_outside):
                        refuse(code, refusal, first_outside(code, self.places, places, first, limits))
                is_own = is_inside & number.equals(own)
                index = code.select(is_own, update, 0) * sizes.inside.size + inner
                added = combine(code, total, load(code, self.source, data, index)[0])
                following[0] = code.select(is_own, added, total)
            store(code, self.target, following, out, thread)


def write_scatter(writer: Writer, node: Node, form: Scatter) -> None:
    """Writes the launch of a Scatter node."""
    (source, index), target = node.inputs, node.outputs[0]
    places, shape = writer.shape(index), writer.shape(target)
    depth = places[-1]
    elements = writer.element(source), writer.element(index), writer.element(target)
    template = ScatterTemplate(form.kind, form.initial, depth, *elements, bool(form.refusal), form.skips_negative)
    sizes = ScatterSizes(prod(shape), prod(places[:-1]), Divisor(*divisor(prod(shape[depth:]))))
    pointers = [writer.pointer(one) for one in (target, source, index)]
    refusal = refusal_arguments(writer, node, form)
    writer.launch(template, template.grid(sizes.outputs), [*pointers, sizes, shape[:depth], *refusal])
