"""Scan: cumulative sums; one thread computes each, from the first element to the last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jitdelegate.ir.graph import Node
from jitdelegate.ir.index_forms import Scan
from jitdelegate.targets.cuda.code.axes import Rows
from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.code.element import Element, load, store
from jitdelegate.targets.cuda.code.sizes import Kind
from jitdelegate.targets.cuda.code.template import Template
from jitdelegate.targets.cuda.code.writer import Writer


@dataclass(frozen=True, eq=False)
class ScanTemplate(Template):
    """Thread t computes the sums of column t; neighbouring threads compute neighbouring columns."""

    family: ClassVar[str] = "scan"
    threads: ClassVar[int] = 128
    parameters: ClassVar[tuple[Kind, ...]] = ("pointer", "pointer", Rows)
    exclusive: bool
    reverse: bool
    source: Element
    target: Element

    def write(self, code: Code, out: Value, data: Value, rows: Rows) -> None:
        column = self.thread(code)
        with code.when(column < rows.number):
            first = rows.first(code, column)
            with code.carried(rows.length, [code.constant(self.source.dtype, 0)]) as (i, (total,), following):
                index = first + (rows.length - 1 - i if self.reverse else i) * rows.pitch.size
                following[0] = total + load(code, self.source, data, index)[0]
                store(code, self.target, [total if self.exclusive else following[0]], out, index)


def write_scan(writer: Writer, node: Node, form: Scan) -> None:
    """Writes the launch of a Scan node."""
    source, target = node.inputs[0], node.outputs[0]
    template = ScanTemplate(form.exclusive, form.reverse, writer.element(source), writer.element(target))
    rows = Rows.of(writer.shape(source), form.axis)
    writer.launch(template, template.grid(rows.number), [writer.pointer(target), writer.pointer(source), rows])
