"""Concat: every input to its place, one vector of elements per thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import ClassVar

from jitdelegate.ir.forms import Concat
from jitdelegate.ir.graph import Node
from jitdelegate.targets.cuda.device_code import Code, Value
from jitdelegate.targets.cuda.division import DIVISOR_SIZES, divided, divisor
from jitdelegate.targets.cuda.element import Element, common_width, store
from jitdelegate.targets.cuda.epilogue import load_run
from jitdelegate.targets.cuda.template import Definition, Template
from jitdelegate.targets.cuda.writer import Writer

THREADS = 256
MOST_INPUTS = 8
"""Of one launch; the code of a kernel grows with them."""
INPUT_SIZES = 2 + DIVISOR_SIZES
"""Arguments per input: its vectors, its first place in a row of the output, the size of its rows in vectors."""


@dataclass(frozen=True, eq=False)
class ConcatTemplate(Template):
    """Rows of every input, one after another as rows of the output.

    Blocks of grid row k copy input k: thread t its vector t of `width` elements.
    """

    family: ClassVar[str] = "concat"
    width: int
    target: Element
    sources: tuple[Element, ...]

    @property
    def threads(self) -> int:
        return THREADS

    def define(self) -> Definition:
        from jitdelegate.targets.cuda.front_end import macro

        @macro()
        def copy_rows(code: Code, out: Value, inputs: Sequence[Value], sizes: Sequence[Value]) -> None:
            part = code.special("ctaid.y")
            for k, (source, base) in enumerate(zip(self.sources, inputs, strict=True)):
                own = sizes[1 + k * INPUT_SIZES : 1 + (k + 1) * INPUT_SIZES]
                with code.when(part.equals(k)):
                    self._copy(code, out, source, base, sizes[0], own)

        def kernel(out, inputs, sizes):  # type: ignore[no-untyped-def]
            copy_rows(out, inputs, sizes)

        count = len(self.sources)
        return Definition(kernel, ("pointer", ("pointer", count), ("int32", 1 + count * INPUT_SIZES)))

    def _copy(self, code: Code, out: Value, source: Element, base: Value, pitch: Value, sizes: Sequence[Value]) -> None:
        """Rows of the output are `pitch` elements apart."""
        vectors, first, *row_size = sizes
        thread = code.special("ctaid.x") * THREADS + code.special("tid.x")
        with code.when(thread < vectors):
            row, column = divided(code, thread, row_size)
            values = load_run(code, source, base, thread * self.width, self.width)
            store(code, self.target, values, out, row * pitch + first + column * self.width)


@dataclass(frozen=True, slots=True)
class _Part:
    """An input: `length` elements of every row of the output, from `first` on."""

    index: int
    first: int
    length: int


def write_concat(writer: Writer, node: Node) -> None:
    """Launches that write up to MOST_INPUTS inputs each."""
    assert isinstance(node.form, Concat)
    output, axis = node.outputs[0], node.form.axis
    shape = writer.shape(output)
    lengths = [prod(writer.shape(index)[axis:]) for index in node.inputs]
    firsts = accumulate(lengths[:-1], initial=0)
    parts = [_Part(*part) for part in zip(node.inputs, firsts, lengths, strict=True)]
    width = common_width(lengths, writer.element(output).widest)
    for start in range(0, len(parts), MOST_INPUTS):
        _write_parts(writer, parts[start : start + MOST_INPUTS], output, prod(shape[:axis]), width)


def _write_parts(writer: Writer, parts: Sequence[_Part], output: int, rows: int, width: int) -> None:
    pointers = [writer.pointer(index) for index in (output, *(part.index for part in parts))]
    template = ConcatTemplate(width, writer.element(output), tuple(writer.element(part.index) for part in parts))
    pitch = writer.graph.tensors[output].size // rows
    own = [(rows * part.length // width, part.first, *divisor(part.length // width)) for part in parts]
    blocks = -(-max(vectors for vectors, *_ in own) // THREADS)
    sizes = [pitch, *(number for numbers in own for number in numbers)]
    writer.launch(template, (blocks, len(parts), 1), [*pointers, *sizes])
