"""Concat: copies the inputs that are not yet there into the output, one vector of elements per thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import ClassVar, NamedTuple

from jitdelegate.ir.forms import Concat
from jitdelegate.ir.graph import Node
from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.code.division import divided, divisor
from jitdelegate.targets.cuda.code.element import Element, common_width, store
from jitdelegate.targets.cuda.code.epilogue import load_run
from jitdelegate.targets.cuda.code.sizes import Divisor, Kind, Number
from jitdelegate.targets.cuda.code.template import Template
from jitdelegate.targets.cuda.code.writer import Writer

THREADS = 256
MOST_INPUTS = 8
"""Largest number of inputs of one launch; a kernel's code grows with it."""


class InputSizes(NamedTuple):
    """Vectors of an input, where it begins in a row of the output, the length of its rows in vectors, and the distance
    between them in elements."""

    vectors: Number
    first: Number
    row: Divisor
    pitch: Number


@dataclass(frozen=True, eq=False)
class ConcatTemplate(Template):
    """Writes the rows of all inputs one after another into the rows of the output.

    Blocks of grid row k copy input k: thread t copies vector t of `width` elements.
    """

    family: ClassVar[str] = "concat"
    threads: ClassVar[int] = THREADS
    width: int
    target: Element
    sources: tuple[Element, ...]

    @property
    def parameters(self) -> tuple[Kind, ...]:
        count = len(self.sources)
        return "pointer", ("pointer",) * count, "int32", (InputSizes,) * count

    def write(self, code: Code, out: Value, inputs: Sequence[Value], pitch: Value, sizes: Sequence[InputSizes]) -> None:
        """Rows of the output are `pitch` elements apart."""
        number = code.special("ctaid.y")
        for k, (source, base, own) in enumerate(zip(self.sources, inputs, sizes, strict=True)):
            with code.when(number.equals(k)):
                self._copy(code, out, source, base, pitch, own)

    def _copy(self, code: Code, out: Value, source: Element, base: Value, pitch: Value, sizes: InputSizes) -> None:
        thread = self.thread(code)
        with code.when(thread < sizes.vectors):
            row, column = divided(code, thread, sizes.row)
            column = column * self.width
            values = load_run(code, source, base, row * sizes.pitch + column, self.width)
            store(code, self.target, values, out, row * pitch + sizes.first + column)


@dataclass(frozen=True, slots=True)
class _Part:
    """An input's elements in every row of the output: `length` elements from `first` on. Its own rows are `pitch`
    elements apart."""

    index: int
    first: int
    length: int
    pitch: int


def write_concat(writer: Writer, node: Node, form: Concat) -> None:
    """Writes the launches of a Concat node, which copy up to MOST_INPUTS inputs each."""
    output, axis = node.outputs[0], form.axis
    shape = writer.shape(output)
    lengths = [prod(writer.shape(index)[axis:]) for index in node.inputs]
    firsts = accumulate(lengths[:-1], initial=0)
    pitches = [writer.pitch(index, axis) for index in node.inputs]
    parts = [_Part(*part) for part in zip(node.inputs, firsts, lengths, pitches, strict=True)]
    parts = [parts[number] for number in writer.copied.get(output, range(len(parts)))]
    pitch, grain = writer.pitch(output, axis), writer.grain(output, *(part.index for part in parts))
    sizes = [number for part in parts for number in (part.first, part.length)]
    width = common_width([*sizes, pitch, *grain], writer.element(output).widest)
    for start in range(0, len(parts), MOST_INPUTS):
        _write_parts(writer, parts[start : start + MOST_INPUTS], output, prod(shape[:axis]), pitch, width)


def _write_parts(writer: Writer, parts: Sequence[_Part], output: int, rows: int, pitch: int, width: int) -> None:
    pointers = [writer.pointer(index) for index in (output, *(part.index for part in parts))]
    template = ConcatTemplate(width, writer.element(output), tuple(writer.element(part.index) for part in parts))
    lengths = [part.length // width for part in parts]
    sizes = [
        InputSizes(rows * length, part.first, Divisor(*divisor(length)), part.pitch)
        for part, length in zip(parts, lengths, strict=True)
    ]
    blocks, _, _ = template.grid(rows * max(lengths))
    writer.launch(template, (blocks, len(parts), 1), [*pointers, pitch, sizes])
