"""Normalize, and Softmax as one: a row stays in the registers of a few threads, a warp or a block; a longer one is read
several times.

Threads lie along the row where its last axis is reduced. Elsewhere neighbouring threads have neighbouring rows, such
as the channels of an image. Where there are few rows, each with very many elements, every statistic is a launch of its
own, in which many blocks share a row. A sum in order is added up by a warp, all of whose lanes add the same elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, ClassVar, NamedTuple

from jitdelegate.ir.combiners import COMBINERS
from jitdelegate.ir.expr import Arg, Const, Expr, result_type, unary
from jitdelegate.ir.forms import Normalize, Softmax, Statistic
from jitdelegate.ir.graph import Node
from jitdelegate.targets.cuda.code.axes import axis_kinds, offset_along
from jitdelegate.targets.cuda.code.cost import moving_cycles
from jitdelegate.targets.cuda.code.device_code import Code, Value, reduce_tree
from jitdelegate.targets.cuda.code.division import divided, divisor
from jitdelegate.targets.cuda.code.element import Element, common_width, store
from jitdelegate.targets.cuda.code.epilogue import load_run, read_operand
from jitdelegate.targets.cuda.code.expression import emit
from jitdelegate.targets.cuda.code.lanes import WARP, combine_lanes, combine_of, combine_rows, identity_of, power_of_two
from jitdelegate.targets.cuda.code.sizes import Divisor, Kind, Number
from jitdelegate.targets.cuda.code.template import Argument, Pointer, Template
from jitdelegate.targets.cuda.code.writer import Writer
from jitdelegate.targets.cuda.forms.reduce import (
    CHAINS,
    ENOUGH_THREADS,
    SHORT_SHARE,
    Run,
    arguments_along,
    runs_of,
    sides_of,
)
from jitdelegate.targets.maths.row_parts import per_row
from jitdelegate.targets.planning.epilogue import Reach

THREADS = 256
MOST_KEPT = 32
"""Most elements of a row that a thread keeps in registers."""
MOST_PER_LANE = 4
"""Most vectors per thread where a warp computes a row, unless there is a row for every multiprocessor."""
WIDEST = 8
"""Most elements of a vector."""
FLOAT, FLOAT_BYTES = "float32", 4
WHOLE = -1
"""The stage of a launch that computes all statistics itself."""


class NormalizeSizes(NamedTuple):
    """Sizes of a launch, counted in vectors where the template uses vectors.

    Attributes:
        rows: rows, or vectors of neighbouring rows.
        inputs: per row.
        share: inputs per part.
        parts: parts of a row, each with a grid row of its own.
        channels: elements of a pixel, for the extra operands.
    """

    rows: Number
    inputs: Number
    share: Number
    parts: Number
    channels: Divisor


@dataclass(frozen=True, eq=False)
class NormalizeTemplate(Template):
    """out = whole(element, statistics of its row, operands); `lanes` threads share a row, or a part of it.

    Attributes:
        statistics, whole: as in the form; `whole` is its result with the epilogue.
        operands: for each extra operand, how it is read and stored.
        kept, reduced: number of kept and of reduced axes, each at least one.
        along: whether vectors lie along the row; else they are neighbouring rows.
        width: elements of a vector.
        vectors: vectors that a thread keeps in registers; 0 where it reads them again for every statistic.
        stage: the number of the statistic whose parts the launch computes, from the parts of those before; the number
            of statistics to compute the results from the parts of all of them; or WHOLE.
    """

    family: ClassVar[str] = "normalize"
    threads: ClassVar[int] = THREADS
    statistics: tuple[Statistic, ...]
    whole: Expr
    operands: tuple[tuple[Reach, Element], ...]
    source: Element
    target: Element
    kept: int
    reduced: int
    along: bool
    width: int
    lanes: int
    vectors: int
    stage: int = WHOLE

    @property
    def columns(self) -> int:
        """Number of rows, or of vectors of rows, per block."""
        return THREADS // self.lanes

    @property
    def parameters(self) -> tuple[Kind, ...]:
        extra, known = ("pointer",) * len(self.operands), ("pointer",) * max(0, self.stage)
        return "pointer", "pointer", extra, known, FLOAT, NormalizeSizes, *map(axis_kinds, (self.kept, self.reduced))

    def write(self, code: Code, *arguments: Any) -> None:
        Share(self, code, *arguments).write()


@dataclass
class Share:
    """A thread's share of a row, or of a vector of neighbouring rows: every lanes-th vector.

    What belongs to rows is a list of values: one, or one per element of a vector of neighbouring rows.

    Attributes:
        known: the parts of statistics that other launches computed.
        count: elements of a row.
        kept, reduced: the sizes of the axes as divisors, and their strides.
    """

    template: NormalizeTemplate
    code: Code
    out: Value
    data: Value
    extra: Sequence[Value]
    known: Sequence[Value]
    count: Value
    sizes: NormalizeSizes
    kept: Sequence[Sequence[Value]]
    reduced: Sequence[Sequence[Value]]

    def __post_init__(self) -> None:
        template, code, sizes = self.template, self.code, self.sizes
        thread, lanes, columns = code.special("tid.x"), template.lanes, template.columns
        self.lane = thread & (lanes - 1) if template.along else thread // columns
        self.column = thread // lanes if template.along else thread & (columns - 1)
        self.row = code.special("ctaid.x") * columns + self.column
        self.base = offset_along(code, self.row, *self.kept)
        first, last = code.integer(0), sizes.inputs
        if template.stage != WHOLE:
            first = code.special("ctaid.y") * sizes.share
            last = code.minimum(first + sizes.share, last)
        self.first, self.last = first + self.lane, code.select(self.row < sizes.rows, last, 0)

    def write(self) -> None:
        """Computes the statistics, or combines those that are known, then the results or the parts of the next
        statistic."""
        template, statistics = self.template, self.template.statistics
        totals: list[list[Value]] = []
        for number, statistic in enumerate(statistics[: template.stage if template.stage != WHOLE else None]):
            total = self._joined(statistic.kind, self.known[number]) if self.known else self._total(statistic, totals)
            totals.append([value / self.count for value in total] if COMBINERS[statistic.kind].mean_of else total)
        if WHOLE < template.stage < len(statistics):
            self._store_part(self._total(statistics[template.stage], totals))
        else:
            self._store_results(totals)

    # elements

    @cached_property
    def _in_registers(self) -> list[tuple[Value, Value, list[Value]]]:
        """(offset, whether it is inside, elements) of every vector that stays in registers."""
        indices = [self.first + k * self.template.lanes for k in range(self.template.vectors)]
        inside = [index < self.last for index in indices]
        offsets = [
            self.code.select(is_in, self._offset(index), 0) for index, is_in in zip(indices, inside, strict=True)
        ]
        return [(offset, is_in, self._load(offset)) for offset, is_in in zip(offsets, inside, strict=True)]

    def _offset(self, index: Value) -> Value:
        return self.base + offset_along(self.code, index, *self.reduced)

    def _load(self, offset: Value) -> list[Value]:
        return load_run(self.code, self.template.source, self.data, offset, self.template.width)

    # statistics

    def _total(self, statistic: Statistic, totals: Sequence[Sequence[Value]]) -> list[Value]:
        """The statistic of the whole row or part, before it is divided by the number of elements."""
        template, code, combine = self.template, self.code, combine_of(statistic.kind, statistic.dtype)
        value = self._function(statistic.value, totals, [], statistic.dtype)
        nothing = identity_of(code, statistic.kind, statistic.dtype)
        if statistic.in_order:
            return [self._in_order(value, nothing)]
        if template.vectors:
            vectors = [[code.select(is_in, one, nothing) for one in value(x, [])] for _, is_in, x in self._in_registers]
        else:
            vectors = self._chains(lambda vector: value(vector, []), combine, nothing)
        own = [reduce_tree(column, lambda a, b: combine(code, a, b)) for column in zip(*vectors, strict=True)]
        name = f"statistic{len(totals)}"
        if not template.along:
            lanes, columns = template.lanes, template.columns
            return combine_rows(code, own, self.lane, self.column, lanes, columns, combine, name, everywhere=True)
        return [combine_lanes(code, reduce_tree(own, lambda a, b: combine(code, a, b)), template.lanes, combine, name)]

    def _in_order(
        self, value: Callable[[Sequence[Value], Sequence[Sequence[Value]]], list[Value]], nothing: Value
    ) -> Value:
        """The sum of the values of a row, one by one, in every lane of its warp. Elements past the end count as 0."""
        code = self.code
        end = code.select(self.row < self.sizes.rows, self.sizes.inputs, 0)
        with code.carried(end, [nothing], 0, WARP) as (index, (total,), then):
            inside = index + self.lane < end
            vector = self._load(code.select(inside, self._offset(index + self.lane), 0))
            own = [code.select(inside, one, 0) for one in value(vector, [])]
            for lane in range(WARP):
                for one in own:
                    total = total + code.shuffle(one, lane)
            then[:] = [total]
        return then[0]

    def _chains(
        self, value: Callable[[list[Value]], list[Value]], combine: Callable[..., Value], nothing: Value
    ) -> list[list[Value]]:
        """CHAINS vectors of partial results: several loads are in flight, and shorter sums round less."""
        code, lanes, width = self.code, self.template.lanes, self.template.width
        start = [self.first, *[nothing] * (CHAINS * width)]
        with code.carried(self.last - (CHAINS - 1) * lanes, start, self.first, CHAINS * lanes) as (index, now, then):
            loaded = [self._load(self._offset(index + chain * lanes)) for chain in range(CHAINS)]
            values = [one for vector in loaded for one in value(vector)]
            then[0] = index + CHAINS * lanes
            then[1:] = [combine(code, a, b) for a, b in zip(now[1:], values, strict=True)]
        rest, *totals = then
        with code.carried(self.last, totals[:width], rest, lanes) as (index, now, then):
            values = value(self._load(self._offset(index)))
            then[:] = [combine(code, a, b) for a, b in zip(now, values, strict=True)]
        return [then, *(totals[k * width : (k + 1) * width] for k in range(1, CHAINS))]

    def _joined(self, kind: str, parts: Value) -> list[Value]:
        """The statistic that the parts of the row make up."""
        code, outputs, combine = self.code, self._outputs, combine_of(kind, FLOAT)
        start = [identity_of(code, kind, FLOAT)] * outputs
        place = code.select(self.row < self.sizes.rows, self.row, 0)
        with code.carried(self.sizes.parts, start) as (part, now, then):
            loaded = load_run(code, Element.FLOAT32, parts, (part * self.sizes.rows + place) * outputs, outputs)
            then[:] = [combine(code, a, b) for a, b in zip(now, loaded, strict=True)]
        return then

    @property
    def _outputs(self) -> int:
        """Rows of a thread."""
        return 1 if self.template.along else self.template.width

    def _store_part(self, total: Sequence[Value]) -> None:
        code, outputs = self.code, self._outputs
        with code.when(self.lane.equals(0) & (self.row < self.sizes.rows)):
            place = (code.special("ctaid.y") * self.sizes.rows + self.row) * outputs
            store(code, Element.FLOAT32, total, self.out, place)

    # results

    def _function(
        self, expr: Expr, totals: Sequence[Sequence[Value]], operands: Sequence[str], dtype: str
    ) -> Callable[[Sequence[Value], Sequence[Sequence[Value]]], list[Value]]:
        """The expression as a function of a vector and of the extra operands beside it, which have the types
        `operands`; what it computes of statistics alone is computed here, once."""
        code, count = self.code, len(totals)
        types = [self.template.source.dtype, *(each.dtype for each in self.template.statistics[:count]), *operands]
        expr, parts = per_row(expr, range(1, 1 + count), len(types))
        further = [result_type(part, types) or FLOAT for part in parts]
        rows = [
            [emit(code, part, [self.count, *row], types, each) for part, each in zip(parts, further, strict=True)]
            for row in (zip(*totals, strict=True) if totals else [()] * self._outputs)
        ]

        def apply(vector: Sequence[Value], operands: Sequence[Sequence[Value]]) -> list[Value]:
            results = []
            for place, element in enumerate(vector):
                row = 0 if self.template.along else place
                own = [statistic[row] for statistic in totals]
                values = [element, *own, *(operand[place] for operand in operands), *rows[row]]
                results.append(emit(code, expr, values, [*types, *further], dtype))
            return results

        return apply

    def _store_results(self, totals: Sequence[Sequence[Value]]) -> None:
        types = [element.dtype for _, element in self.template.operands]
        result = self._function(self.template.whole, totals, types, self.template.target.dtype)

        def write(offset: Value, vector: Sequence[Value]) -> None:
            store(self.code, self.template.target, result(vector, self._operands(offset)), self.out, offset)

        if self.template.vectors:
            for offset, inside, vector in self._in_registers:
                with self.code.when(inside):
                    write(offset, vector)
        else:
            with self.code.loop(self.last, self.first, self.template.lanes) as index:
                offset = self._offset(index)
                write(offset, self._load(offset))

    def _operands(self, offset: Value) -> list[list[Value]]:
        """The extra operands beside the vector at `offset`."""
        if not self.extra:
            return []
        code, width = self.code, self.template.width
        pixel, channel = divided(code, offset, self.sizes.channels)
        size = self.sizes.channels.size
        return [
            read_operand(code, reach, element, base, pixel, channel, size, width)
            for (reach, element), base in zip(self.template.operands, self.extra, strict=True)
        ]


def write_softmax(writer: Writer, node: Node, form: Softmax) -> None:
    """Writes the launches of a Softmax node: those of the Normalize that it stands for."""
    power = unary("exp", (Arg(0) - Arg(1)) * form.beta)
    statistics, axes = (Statistic("max", Arg(0)), Statistic("sum", power)), (len(writer.shape(node.inputs[0])) - 1,)
    result = power * (Const(1.0) / Arg(2))  # one division for a row
    write_normalize(writer, node, Normalize(form.epilogue, form.operands, axes, statistics, result))


def write_normalize(writer: Writer, node: Node, form: Normalize) -> None:
    """Writes the launches of a Normalize node: one, or one per statistic and one for the results."""
    source, output = node.inputs[0], node.outputs[0]
    shape, elements = writer.shape(source), (writer.element(source), writer.element(output))
    kinds, extra = writer.operands(node)
    runs = runs_of(shape, form.axes)
    if not any(run.is_reduced for run in runs):
        runs.append(Run(1, 1, is_reduced=True))
    last = runs[-1]
    widest = min(WIDEST, *(element.widest for element in elements))
    width = common_width([last.size, *([shape[-1]] if extra else [])], widest)
    kept, reduced = sides_of(runs, width)
    rows, inputs = (prod(run.size for run in side) for side in (kept, reduced))
    lanes = WARP if form.in_order else _lanes(writer, rows, inputs, width, along=last.is_reduced)
    per_lane = -(-inputs // lanes)
    template = NormalizeTemplate(
        form.statistics,
        form.whole,
        kinds,
        *elements,
        len(kept),
        len(reduced),
        last.is_reduced,
        width,
        lanes,
        per_lane if per_lane * width <= MOST_KEPT else 0,
    )
    count = float(prod(shape[axis] for axis in form.axes))
    channels = Divisor(*divisor(shape[-1]))

    def launch(template: NormalizeTemplate, parts: int, out: Pointer, known: Sequence[Argument]) -> None:
        sizes = NormalizeSizes(rows, inputs, -(-inputs // parts), parts, channels)
        arguments = [out, writer.pointer(source), extra, known, count, sizes, *map(arguments_along, (kept, reduced))]
        writer.launch(template, (-(-rows // template.columns), parts, 1), arguments)

    parts = _parts(writer, node, template, rows, inputs)
    known: list[Pointer] = []
    for stage in range(len(form.statistics) if parts > 1 else 0):
        known.append(writer.temporary(parts * rows * (1 if template.along else width) * FLOAT_BYTES))
        launch(replace(template, vectors=0, stage=stage), parts, known[-1], known[:-1])
    stage = len(form.statistics) if known else WHOLE
    launch(replace(template, vectors=0, stage=stage) if known else template, parts, writer.pointer(output), known)


def _lanes(writer: Writer, rows: int, inputs: int, width: int, *, along: bool) -> int:
    """Threads per row: so many that a row stays in registers, and that they fill the GPU."""
    if along:
        most = MOST_PER_LANE if rows < writer.gpu.multiprocessors else MOST_KEPT // width
        return min(WARP, power_of_two(inputs)) if inputs <= WARP * most else THREADS
    enough = writer.gpu.multiprocessors * ENOUGH_THREADS
    filling = 1 if rows >= enough else min(THREADS // min(WARP, power_of_two(rows)), power_of_two(-(-inputs // CHAINS)))
    fitting = power_of_two(-(-inputs * width // MOST_KEPT))
    return max(filling, fitting) if fitting <= THREADS // 2 else filling


def _parts(writer: Writer, node: Node, template: NormalizeTemplate, rows: int, inputs: int) -> int:
    """Blocks that share a row where that is faster than one launch with a block per row, which reads rows again for
    every statistic; else 1."""
    share, blocks = -(-inputs // template.lanes), -(-rows // template.columns)
    parts = min(2 * writer.gpu.multiprocessors // blocks, share // SHORT_SHARE)
    if template.vectors or parts < 2 or any(each.in_order or each.dtype != FLOAT for each in template.statistics):
        return 1
    count = len(template.statistics)
    read, written = (
        writer.element(index).nbytes * writer.graph.tensors[index].size for index in (node.inputs[0], node.outputs[0])
    )
    alone = moving_cycles(writer.gpu, blocks, (count + 1) * read + written)
    shared = count * (writer.gpu.costs.full_edge_cycles + moving_cycles(writer.gpu, blocks * parts, read))
    shared += moving_cycles(writer.gpu, blocks * parts, read + written)
    return parts if shared < alone else 1
