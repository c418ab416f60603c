"""Reduce: sums, means, products and extremes over any axes, always in the same order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar, NamedTuple

from jitdelegate.ir.combiners import COMBINERS
from jitdelegate.ir.forms import Reduce
from jitdelegate.ir.graph import Node
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cuda.code.axes import axis_kinds, offset_along
from jitdelegate.targets.cuda.code.device_code import Code, Value, reduce_tree
from jitdelegate.targets.cuda.code.division import divided, divisor, divisors
from jitdelegate.targets.cuda.code.element import OWN, Element, common_width, store
from jitdelegate.targets.cuda.code.epilogue import Epilogue, load_run
from jitdelegate.targets.cuda.code.index_map import dense_strides
from jitdelegate.targets.cuda.code.lanes import (
    WARP,
    Combine,
    combine_lanes,
    combine_of,
    combine_rows,
    identity_of,
    power_of_two,
)
from jitdelegate.targets.cuda.code.sizes import Divisor, Kind, Number
from jitdelegate.targets.cuda.code.template import Argument, Pointer, Template
from jitdelegate.targets.cuda.code.writer import Writer
from jitdelegate.targets.maths.cast import cast

THREADS = 256
CHAINS = 4
"""Partial results per element of a thread's vector: several loads are in flight, and shorter sums round less."""
ENOUGH_THREADS = 1024
"""Threads per multiprocessor that suffice to hide the latency of memory."""
LONG_SHARE, SHORT_SHARE = 64, 8
"""Vectors per thread: the number from which on a second launch pays, and the number per thread with two launches."""
WORD_BITS = 32
WIDEST = 8
"""Most elements of a vector; bools would allow more."""


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring axes merged into one: all reduced, or all kept. `stride` is in elements."""

    size: int
    stride: int
    is_reduced: bool


def runs_of(shape: Sequence[int], axes: Sequence[int]) -> list[Run]:
    """The axes of a row-major tensor, merged where possible, without those of size 1."""
    runs: list[Run] = []
    for axis, (size, stride) in enumerate(zip(shape, dense_strides(tuple(shape)), strict=True)):
        if size == 1:
            continue
        if runs and runs[-1].is_reduced == (axis in axes):
            runs[-1] = Run(runs[-1].size * size, stride, runs[-1].is_reduced)
        else:
            runs.append(Run(size, stride, axis in axes))
    return runs


def sides_of(runs: Sequence[Run], width: int) -> tuple[list[Run], list[Run]]:
    """The kept and the reduced runs, each at least one, with sizes counted in vectors of `width` elements."""
    *outer, last = runs
    runs = [*outer, Run(last.size // width, width, last.is_reduced)]
    kept, reduced = ([run for run in runs if run.is_reduced == which] or [Run(1, 0, which)] for which in (False, True))
    return kept, reduced


def arguments_along(runs: Sequence[Run]) -> tuple[list[int], list[int]]:
    """The launch arguments for `offset_along`: sizes as divisors, and strides."""
    return divisors([run.size for run in runs]), [run.stride for run in runs]


def combined_type(dtype: str) -> str:
    """The type in which values of type `dtype` are combined; bools are combined as 0 and 1."""
    return "int32" if dtype == "bool" or ELEMENT_TYPES[dtype].bits < WORD_BITS else dtype


Axes = Sequence[Sequence[Value]]
"""The sizes of axes as divisors, and their strides."""


class ReduceSizes(NamedTuple):
    """Sizes of a launch, counted in vectors where `ReduceTemplate` uses vectors.

    Attributes:
        inputs: inputs per output.
        share: inputs per part.
        channels: channels of a pixel of the output, for the epilogue.
    """

    outputs: Number
    inputs: Number
    share: Number
    channels: Divisor


@dataclass(frozen=True, eq=False)
class ReduceTemplate(Template):
    """`lanes` threads compute each output; each thread combines every lanes-th input.

    Grid row k combines part k of the inputs into part k of the outputs.

    Attributes:
        kind: a key of COMBINERS; a mean divides by an argument.
        kept, reduced: number of kept and of reduced axes, each at least one.
        along: whether the innermost axis is reduced. If so, neighbouring threads and vectors read along this axis;
            otherwise they compute neighbouring outputs.
        width: elements of a vector.
    """

    family: ClassVar[str] = "reduce"
    threads: ClassVar[int] = THREADS
    kind: str
    source: Element
    target: Element
    kept: int
    reduced: int
    along: bool
    width: int
    lanes: int
    epilogue: Epilogue

    @property
    def dtype(self) -> str:
        """The type in which values are combined."""
        return combined_type(self.epilogue.dtype)

    @property
    def combine(self) -> Combine:
        return combine_of(self.kind, self.dtype)

    @property
    def columns(self) -> int:
        """Number of outputs, or of vectors of outputs, per block."""
        return THREADS // self.lanes

    @property
    def outputs(self) -> int:
        """Number of outputs per thread."""
        return 1 if self.along else self.width

    @property
    def parameters(self) -> tuple[Kind, ...]:
        axes = axis_kinds(self.kept), axis_kinds(self.reduced)
        return "pointer", "pointer", self.epilogue.parameters, "float32", ReduceSizes, *axes

    def write(
        self,
        code: Code,
        out: Value,
        data: Value,
        extra: Sequence[Value],
        count: Value,
        sizes: ReduceSizes,
        kept: Axes,
        reduced: Axes,
    ) -> None:
        """Args:
        count: the number of elements, for a mean.
        """
        values = self._combine_inputs(code, data, sizes, kept, reduced)
        combine = self.combine
        if self.along:
            values = [combine_lanes(code, values[0], self.lanes, combine, "warps")]
        else:
            lane, column = self._place(code)
            values = combine_rows(code, values, lane, column, self.lanes, self.columns, combine)
        self._write_outputs(code, out, extra, count, sizes, values)

    def _place(self, code: Code) -> tuple[Value, Value]:
        """The thread's lane, and its column in the block."""
        thread = code.special("tid.x")
        if self.along:
            return thread & (self.lanes - 1), thread // self.lanes
        return thread // self.columns, thread & (self.columns - 1)

    def _output(self, code: Code) -> Value:
        """The number of the output, or vector of outputs, that the thread computes."""
        return code.special("ctaid.x") * self.columns + self._place(code)[1]

    def _combine_inputs(self, code: Code, data: Value, sizes: ReduceSizes, kept: Axes, reduced: Axes) -> list[Value]:
        """One value per output: the thread's own share of the inputs, combined."""
        (lane, _), output = self._place(code), self._output(code)
        base = offset_along(code, output, *kept)
        first = code.special("ctaid.y") * sizes.share
        last = code.select(output < sizes.outputs, code.minimum(first + sizes.share, sizes.inputs), 0)

        def load(index: Value) -> list[Value]:
            loaded = load_run(code, self.source, data, base + offset_along(code, index, *reduced), self.width)
            return [cast(code, value, self.source.dtype, self.dtype) for value in loaded]

        combined = self._chains(code, load, first + lane, last)
        combine = self.combine
        return [reduce_tree(combined, lambda a, b: combine(code, a, b))] if self.along else combined

    def _chains(self, code: Code, load: Callable[[Value], list[Value]], first: Value, last: Value) -> list[Value]:
        """The vectors `first`, `first + lanes`, ... below `last`, combined element by element."""
        combine, nothing = self.combine, identity_of(code, self.kind, self.dtype)
        start = [first, *[nothing] * (CHAINS * self.width)]
        with code.carried(last - (CHAINS - 1) * self.lanes, start, first, CHAINS * self.lanes) as (index, now, then):
            loaded = [value for chain in range(CHAINS) for value in load(index + chain * self.lanes)]
            then[0] = index + CHAINS * self.lanes
            then[1:] = [combine(code, a, b) for a, b in zip(now[1:], loaded, strict=True)]
        rest, *chains = then
        joined = [reduce_tree(chains[k :: self.width], lambda a, b: combine(code, a, b)) for k in range(self.width)]
        with code.carried(last, joined, rest, self.lanes) as (index, now, then):
            then[:] = [combine(code, a, b) for a, b in zip(now, load(index), strict=True)]
        return then

    def _write_outputs(
        self, code: Code, out: Value, extra: Sequence[Value], count: Value, sizes: ReduceSizes, values: Sequence[Value]
    ) -> None:
        (lane, _), output = self._place(code), self._output(code)
        with code.when(lane.equals(0) & (output < sizes.outputs)):
            index = (code.special("ctaid.y") * sizes.outputs + output) * self.outputs
            pixel, channel = divided(code, index, sizes.channels)
            results = [value / count for value in values] if COMBINERS[self.kind].mean_of else values
            results = [cast(code, value, self.dtype, self.epilogue.dtype) for value in results]
            results = self.epilogue.apply(code, results, pixel, channel, extra)
            store(code, self.target, results, out, index)


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one launch: it combines the reduced runs of `data`.

    Attributes:
        kind: a key of COMBINERS.
        count: the number of elements, for a mean.
        channels: channels of a pixel of the output.
        epilogue, extra: the epilogue and its operands.
    """

    kind: str
    runs: Sequence[Run]
    source: Element
    data: Pointer
    target: Element
    count: int
    channels: int
    epilogue: Epilogue
    extra: tuple[Argument, ...]

    @property
    def along(self) -> bool:
        return self.runs[-1].is_reduced

    @property
    def width(self) -> int:
        """Elements of a vector; with epilogue operands, the outputs of a vector are channels of one pixel."""
        if self.along:
            return common_width([self.runs[-1].size], min(self.source.widest, WIDEST))
        widest = min(self.source.widest, self.target.widest, WIDEST)
        return common_width([self.runs[-1].size, *([self.channels] if self.extra else [])], widest)

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of vectors, or of single elements, along the kept and along the reduced axes."""
        kept, reduced = sides_of(self.runs, self.width)
        return prod(run.size for run in kept), prod(run.size for run in reduced)


def write_reduce(writer: Writer, node: Node, form: Reduce) -> None:
    """Writes the launches of a Reduce node: one, or two where there are few outputs with very many inputs each."""
    output = node.outputs[0]
    source, shape = node.inputs[0], writer.shape(node.inputs[0])
    is_float = writer.element(source).dtype == "float32"
    assert is_float or not COMBINERS[form.kind].mean_of, "integers have no mean"
    epilogue, extra = writer.epilogue(node)
    work = Work(
        kind=form.kind,
        runs=runs_of(shape, form.axes) or [Run(1, 1, False)],
        source=writer.element(source),
        data=writer.pointer(source),
        target=writer.element(output),
        count=prod(shape[axis] for axis in form.axes),
        channels=(writer.shape(output) or (1,))[-1],
        epilogue=epilogue,
        extra=extra,
    )
    _write_work(writer, work, writer.pointer(output))


def _write_work(writer: Writer, work: Work, out: Pointer) -> None:
    """Writes the launches that combine all inputs; where one launch would leave most of the GPU idle, a first launch
    combines parts of them."""
    lanes = _lanes(writer, work)
    parts = _parts(writer, work, lanes)
    if parts == 1:
        _launch(writer, work, lanes, 1, out)
        return
    kind, stored = COMBINERS[work.kind].mean_of or work.kind, OWN[combined_type(work.epilogue.dtype)]
    first = replace(work, kind=kind, target=stored, epilogue=Epilogue(dtype=stored.dtype), extra=())
    outputs = prod(run.size for run in work.runs if not run.is_reduced)
    between = writer.temporary(parts * outputs * stored.nbytes)
    _launch(writer, first, lanes, parts, between)
    runs = [Run(parts, outputs, True), Run(outputs, 1, False)]
    second = replace(work, runs=runs if outputs > 1 else [Run(parts, 1, True)], source=stored, data=between)
    _launch(writer, second, _lanes(writer, second), 1, out)


def _lanes(writer: Writer, work: Work) -> int:
    """Threads per output: enough to fill the GPU, with a few vectors per thread."""
    outputs, inputs = work.sizes
    enough = writer.gpu.multiprocessors * ENOUGH_THREADS
    if work.along:
        return THREADS if inputs > 4 * WARP and outputs * WARP < enough else min(WARP, power_of_two(inputs))
    if outputs >= enough:
        return 1
    narrowest = min(WARP, power_of_two(outputs))
    return min(THREADS // narrowest, power_of_two(-(-inputs // CHAINS)))


def _parts(writer: Writer, work: Work, lanes: int) -> int:
    """Blocks that share the inputs of an output."""
    outputs, inputs = work.sizes
    share, blocks = inputs // lanes, -(-outputs * lanes // THREADS)
    return 1 if share < LONG_SHARE else max(1, min(2 * writer.gpu.multiprocessors // blocks, share // SHORT_SHARE))


def _launch(writer: Writer, work: Work, lanes: int, parts: int, out: Pointer) -> None:
    kept, reduced = sides_of(work.runs, work.width)
    template = ReduceTemplate(
        work.kind, work.source, work.target, len(kept), len(reduced), work.along, work.width, lanes, work.epilogue
    )
    outputs, inputs = work.sizes
    sizes = ReduceSizes(outputs, inputs, -(-inputs // parts), Divisor(*divisor(work.channels)))
    arguments = [out, work.data, work.extra, float(work.count), sizes, *map(arguments_along, (kept, reduced))]
    writer.launch(template, (-(-outputs // template.columns), parts, 1), arguments)
