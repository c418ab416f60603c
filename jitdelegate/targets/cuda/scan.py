"""Scan: running sums, each by one thread from the first element to the last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from jitdelegate.ir.graph import Node
from jitdelegate.ir.index_forms import Scan
from jitdelegate.targets.cuda.device_code import Code, Value
from jitdelegate.targets.cuda.division import DIVISOR_SIZES, divided, divisor
from jitdelegate.targets.cuda.element import Element, load, store
from jitdelegate.targets.cuda.template import Definition, Template
from jitdelegate.targets.cuda.writer import Writer

THREADS = 128


@dataclass(frozen=True, eq=False)
class ScanTemplate(Template):
    """Thread t makes the sums of column t; neighbouring threads have neighbouring columns."""

    family: ClassVar[str] = "scan"
    exclusive: bool
    reverse: bool
    source: Element
    target: Element

    @property
    def threads(self) -> int:
        return THREADS

    def define(self) -> Definition:
        from jitdelegate.targets.cuda.front_end import macro

        @macro()
        def add_up(code: Code, out: Value, data: Value, numbers: Sequence[Value]) -> None:
            columns, size = numbers[:2]
            column = code.special("ctaid.x") * THREADS + code.special("tid.x")
            with code.when(column < columns):
                outer, inner = divided(code, column, numbers[2:])
                self._write(code, out, data, outer * size * numbers[2] + inner, size, numbers[2])

        def kernel(out, data, numbers):  # type: ignore[no-untyped-def]
            add_up(out, data, numbers)

        return Definition(kernel, ("pointer", "pointer", ("int32", 2 + DIVISOR_SIZES)))

    def _write(self, code: Code, out: Value, data: Value, first: Value, size: Value, stride: Value) -> None:
        with code.carried(size, [code.constant(self.source.dtype, 0)]) as (i, (total,), following):
            index = first + (size - 1 - i if self.reverse else i) * stride
            following[0] = total + load(code, self.source, data, index)[0]
            store(code, self.target, [total if self.exclusive else following[0]], out, index)


def write_scan(writer: Writer, node: Node) -> None:
    """Launch of a Scan node."""
    form, source, target = node.form, node.inputs[0], node.outputs[0]
    assert isinstance(form, Scan)
    shape = writer.shape(source)
    size, inner = shape[form.axis], prod(shape[form.axis + 1 :])
    columns = prod(shape) // size
    template = ScanTemplate(form.exclusive, form.reverse, writer.element(source), writer.element(target))
    numbers = (columns, size, *divisor(inner))
    writer.launch(template, (-(-columns // THREADS), 1, 1), [*map(writer.pointer, (target, source)), *numbers])
