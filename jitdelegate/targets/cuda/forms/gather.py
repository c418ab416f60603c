"""Gather: slices at indices known only at run time, one vector of outputs per thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar, NamedTuple

from jitdelegate.ir.graph import Node
from jitdelegate.ir.index_forms import Gather
from jitdelegate.targets.cuda.code.axes import FourAxes
from jitdelegate.targets.cuda.code.device_code import I32, Code, Value
from jitdelegate.targets.cuda.code.element import Element, common_width, load, resized, store
from jitdelegate.targets.cuda.code.refusal import KINDS, first_outside, refusal_arguments, refuse
from jitdelegate.targets.cuda.code.sizes import Kind, Number
from jitdelegate.targets.cuda.code.template import Template
from jitdelegate.targets.cuda.code.writer import Writer


class GatherSizes(NamedTuple):
    """Sizes of a launch.

    Attributes:
        outputs: axes of the output in vectors: batches, axes before the indexed ones, places, a slice's elements.
        batch: slices per batch.
        slices: slices that a place can select.
        places: places per batch.
        inside: elements of a slice.
    """

    outputs: FourAxes
    batch: Number
    slices: Number
    places: Number
    inside: Number


@dataclass(frozen=True, eq=False)
class LookUpTemplate(Template):
    """out[b, o, i, n] = data[b, o, places[b, i, 0], ..., n], or 0 where a place is out of range.

    Attributes:
        depth: indices per place.
        width: neighbouring outputs of a thread.
        source, places, target: element types of the operands and the output.
        refuses: whether a place out of range refuses the run.
    """

    family: ClassVar[str] = "gather"
    threads: ClassVar[int] = 256
    depth: int
    width: int
    source: Element
    places: Element
    target: Element
    refuses: bool

    @property
    def parameters(self) -> tuple[Kind, ...]:
        own = "pointer", "pointer", "pointer", GatherSizes, ("int32",) * self.depth
        return (*own, *KINDS) if self.refuses else own

    def write(
        self,
        code: Code,
        out: Value,
        data: Value,
        places: Value,
        sizes: GatherSizes,
        limits: Sequence[Value],
        *refusal: Value,
    ) -> None:
        thread = self.thread(code)
        with code.when(thread < sizes.outputs.number):
            batch, outer, place, inner = sizes.outputs.coordinates(code, thread)
            first = (batch * sizes.places + place) * self.depth
            number, is_inside = slice_at(code, self.places, places, first, limits)
            if self.refuses:
                with code.when(~is_inside):
                    refuse(code, refusal, first_outside(code, self.places, places, first, limits))
            index = (batch * sizes.batch + outer * sizes.slices + number) * sizes.inside + inner * self.width
            zero = code.constant(self.source.dtype, 0)
            loaded = load(code, self.source, data, index, self.width)
            results = [code.select(is_inside, value, zero) for value in loaded]
            store(code, self.target, results, out, thread * self.width)


def slice_at(code: Code, element: Element, places: Value, first: Value, limits: Sequence[Value]) -> tuple[Value, Value]:
    """(number of the slice that the indices from `first` on select, whether all are within `limits`); 0 if not."""
    number, is_inside = code.integer(0), code.boolean(True)
    for axis, size in enumerate(limits):
        place = load(code, element, places, first + axis)[0]
        is_inside = is_inside & code.within(place, resized(code, size, place.value.type))
        number = number * size + resized(code, place, I32)
    return code.select(is_inside, number, 0), is_inside


def write_gather(writer: Writer, node: Node, form: Gather) -> None:
    """Writes the launch of a Gather node."""
    (source, index), target = node.inputs, node.outputs[0]
    data, places = writer.shape(source), writer.shape(index)
    batch, axis, depth = form.batch, form.axis, places[-1]
    limits, inside = data[axis : axis + depth], prod(data[axis + depth :])
    elements = writer.element(source), writer.element(target)
    width = common_width([inside], min(element.widest for element in elements))
    outer, per_batch = prod(data[batch:axis]), prod(places[batch:-1])
    sizes = GatherSizes(
        outputs=FourAxes.of((prod(data[:batch]), outer, per_batch, inside // width)),
        batch=outer * prod(limits),
        slices=prod(limits),
        places=per_batch,
        inside=inside,
    )
    template = LookUpTemplate(depth, width, elements[0], writer.element(index), elements[1], bool(form.refusal))
    pointers = [writer.pointer(one) for one in (target, source, index)]
    refusal = refusal_arguments(writer, node, form)
    writer.launch(template, template.grid(sizes.outputs.number), [*pointers, sizes, limits, *refusal])
