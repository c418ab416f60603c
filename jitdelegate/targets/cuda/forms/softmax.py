"""Softmax over rows: several rows per warp, one warp or one block per row, or one block that reads a long row three
times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from jitdelegate.ir.forms import Softmax
from jitdelegate.ir.graph import Node
from jitdelegate.targets.cuda.code.device_code import Code, Value, reduce_tree
from jitdelegate.targets.cuda.code.element import Element, common_width, store
from jitdelegate.targets.cuda.code.epilogue import Epilogue, load_run
from jitdelegate.targets.cuda.code.lanes import WARP, combine_lanes, combine_of, identity_of, power_of_two
from jitdelegate.targets.cuda.code.sizes import Kind
from jitdelegate.targets.cuda.code.template import Template
from jitdelegate.targets.cuda.code.writer import Writer

THREADS = 256
MOST_KEPT = 32
"""Most elements of a row that a thread keeps in registers."""
MOST_PER_LANE = 4
"""Most vectors per thread where a warp computes a row."""


@dataclass(frozen=True, eq=False)
class SoftmaxTemplate(Template):
    """out[r, c] = exp(beta * (x[r, c] - max of row r)) / sum of these exponentials over row r.

    Attributes:
        width: elements of a vector.
        lanes: threads per row.
        vectors: vectors that a thread keeps in registers; 0 for rows of any length, which are read three times.
    """

    family: ClassVar[str] = "softmax"
    threads: ClassVar[int] = THREADS
    source: Element
    target: Element
    width: int
    lanes: int
    vectors: int
    epilogue: Epilogue

    @property
    def parameters(self) -> tuple[Kind, ...]:
        return "pointer", "pointer", self.epilogue.parameters, "float32", "int32", "int32"

    def write(self, code: Code, *arguments: Any) -> None:
        row = SoftmaxRow(self, code, *arguments)
        row.write_kept() if self.vectors else row.write_long()


@dataclass
class SoftmaxRow:
    """A thread's row, and the thread's share of this row: every lanes-th vector."""

    template: SoftmaxTemplate
    code: Code
    out: Value
    data: Value
    extra: Sequence[Value]
    beta: Value
    rows: Value
    length: Value

    def __post_init__(self) -> None:
        code, lanes, width = self.code, self.template.lanes, self.template.width
        thread = code.special("tid.x")
        self.row = code.special("ctaid.x") * (THREADS // lanes) + thread // lanes
        self.first = (thread & (lanes - 1)) * width
        self.end = code.select(self.row < self.rows, self.length, 0)
        self.step = lanes * width

    def write_kept(self) -> None:
        """Reads every element once. Elements past the end count as -inf in the maximum and as 0 in the sum."""
        code = self.code
        columns = [self.first + k * self.step for k in range(self.template.vectors)]
        inside = [column < self.end for column in columns]
        vectors = [
            [code.select(is_in, value, float("-inf")) for value in self._load(column, is_in)]
            for column, is_in in zip(columns, inside, strict=True)
        ]
        top = self._combined("max", [value for vector in vectors for value in vector])
        powers = [
            [code.select(is_in, self._power(value, top), 0.0) for value in vector]
            for vector, is_in in zip(vectors, inside, strict=True)
        ]
        total = self._combined("sum", [value for vector in powers for value in vector])
        share = 1.0 / total
        for column, is_in, vector in zip(columns, inside, powers, strict=True):
            with code.when(is_in):
                self._store(column, vector, share)

    def write_long(self) -> None:
        """Reads the row three times: for its maximum, for the sum and for the result."""
        top = self._combined("max", self._chains("max", lambda value: value))
        total = self._combined("sum", self._chains("sum", lambda value: self._power(value, top)))
        share = 1.0 / total
        with self.code.loop(self.end, self.first, self.step) as column:
            self._store(column, [self._power(value, top) for value in self._load(column)], share)

    def _chains(self, kind: str, function: Callable[[Value], Value]) -> list[Value]:
        """`function` of the thread's elements, combined separately for each element of a vector."""
        combine = combine_of(kind, "float32")
        start = [identity_of(self.code, kind, "float32")] * self.template.width
        with self.code.carried(self.end, start, self.first, self.step) as (column, now, then):
            loaded = self._load(column)
            then[:] = [combine(self.code, a, function(b)) for a, b in zip(now, loaded, strict=True)]
        return then

    def _combined(self, kind: str, values: Sequence[Value]) -> Value:
        """The values of all threads of the row combined."""
        combine = combine_of(kind, "float32")
        own = reduce_tree(values, lambda a, b: combine(self.code, a, b))
        return combine_lanes(self.code, own, self.template.lanes, combine, kind)

    def _power(self, value: Value, top: Value) -> Value:
        return self.code.call("__nv_expf", [(value - top) * self.beta])

    def _load(self, column: Value, inside: Value | None = None) -> list[Value]:
        """The vector at `column`; the first elements of the tensor if it is not inside the row."""
        index = self.row * self.length + column
        index = index if inside is None else self.code.select(inside, index, 0)
        return load_run(self.code, self.template.source, self.data, index, self.template.width)

    def _store(self, column: Value, powers: Sequence[Value], share: Value) -> None:
        """Stores the vector at `column`; `share` is 1 over the sum of the row."""
        results = [power * share for power in powers]
        results = self.template.epilogue.apply(self.code, results, self.row, column, self.extra)
        store(self.code, self.template.target, results, self.out, self.row * self.length + column)


def write_softmax(writer: Writer, node: Node, form: Softmax) -> None:
    """Writes the launch of a Softmax node."""
    source, output = node.inputs[0], node.outputs[0]
    *outer, length = writer.shape(source) or (1,)
    elements = writer.element(source), writer.element(output)
    width = common_width([length], min(element.widest for element in elements))
    lanes, vectors = _shares(length // width, width)
    epilogue, extra = writer.epilogue(node)
    template = SoftmaxTemplate(*elements, width, lanes, vectors, epilogue)
    arguments = [writer.pointer(output), writer.pointer(source), *extra, float(form.beta), prod(outer), length]
    writer.launch(template, template.grid(prod(outer) * lanes), arguments)


def _shares(vectors: int, width: int) -> tuple[int, int]:
    """(threads per row of this many vectors, vectors per thread); 0 vectors where they do not fit in registers."""
    lanes = min(WARP, power_of_two(vectors)) if vectors <= WARP * MOST_PER_LANE else THREADS
    per_thread = power_of_two(-(-vectors // lanes))
    return lanes, per_thread if per_thread * width <= MOST_KEPT else 0
