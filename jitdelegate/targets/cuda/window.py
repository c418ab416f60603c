"""Windows whose size only a launch knows: the taps inside the image, walked by one thread or shared out to several."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from jitdelegate.ir.forms import Window
from jitdelegate.targets.cuda.axes import FourAxes
from jitdelegate.targets.cuda.device_code import F32, Code, Value
from jitdelegate.targets.cuda.division import divided, divisor
from jitdelegate.targets.cuda.gpu import Gpu
from jitdelegate.targets.cuda.image_parts import Part, part
from jitdelegate.targets.cuda.sizes import Divisor, Number
from jitdelegate.targets.cuda.template import Template

AT_ONCE = 4
"""Taps whose loads are under way together."""
SLICES = (8, 32, 128)
"""Among how many threads a large window may be shared out."""
FEWEST_TAPS = 4
"""Taps that are worth a thread."""
CROWD = 512
"""Threads for each multiprocessor, above which no window is shared out."""
LEAST_THREADS = 128
LEAST_LANES = 4
"""Neighbouring groups of channels of a block: fewer would use parts of memory sectors."""

Visit = Callable[[Value, Value, Value, Sequence[Value]], list[Value]]
"""(whether the tap exists, its row and column among those inside, the values so far) -> the values with this tap."""


@dataclass(frozen=True, slots=True)
class Span:
    """The taps of one axis that lie inside the image.

    Attributes:
        first: the number of the first one.
        count: how many there are.
        start: the row or column of the image under the first.
        step: rows or columns from one to the next.
    """

    first: Value
    count: Value
    start: Value
    step: Value


class WindowAxis(NamedTuple):
    """A window along the rows or the columns of an image of `size` rows or columns."""

    size: Number
    kernel: Number
    stride: Number
    padding: Number
    dilation: Divisor

    @staticmethod
    def of(form: Window, axis: int, size: int) -> WindowAxis:
        """Axis 0 for rows, 1 for columns."""
        dilation = Divisor(*divisor(form.dilation[axis]))
        return WindowAxis(size, form.kernel[axis], form.stride[axis], form.padding[2 * axis], dilation)

    def span(self, code: Code, place: Value) -> Span:
        """The taps of output row or column `place`."""
        position, dilation = place * self.stride - self.padding, self.dilation
        first = _steps(code, -position, dilation)
        end = code.minimum(self.kernel, _steps(code, self.size - position, dilation))
        return Span(first, not_negative(code, end - first), position + first * dilation.size, dilation.size)


def _steps(code: Code, distance: Value, dilation: Divisor) -> Value:
    """How many steps of the dilation it takes to cover the distance; none where it is negative."""
    return divided(code, not_negative(code, distance) + (dilation.size - 1), dilation)[0]


def not_negative(code: Code, number: Value) -> Value:
    """The int32, or 0 where it is below."""
    return code.select(number < 0, 0, number)


def walk(
    code: Code, rows: Span, columns: Span, share: tuple[Value | int, int], initial: Sequence[Value], visit: Visit
) -> list[Value]:
    """Visit the taps of a window, row by row.

    Args:
        share: (which, of how many): this thread visits every so manieth tap, from that one on.
        initial: the values before the first tap.
    Returns:
        The values after the last one.
    """
    slice_, slices = share
    wide = code.select(columns.count < 1, 1, columns.count)
    total = rows.count * columns.count
    number, stride = (code.like(value, total) for value in (slice_, slices))
    down = stride // wide
    across = stride - down * wide
    row = number // wide
    place = [row, number - row * wide]
    with code.carried(total, [*place, *initial], start=number, step=AT_ONCE * slices) as (tap, values, following):
        row, column, *results = values
        for ahead in range(AT_ONCE):
            results = visit(tap + ahead * slices < total, row, column, results)
            column = column + across
            beyond = column >= wide
            row = row + down + code.select(beyond, code.integer(1), 0)
            column = column - code.select(beyond, wide, 0)
        following[:] = [row, column, *results]
    return following[2:]


def slices_of(gpu: Gpu, outputs: int, taps: int) -> int:
    """Among how many threads to share out a window of so many taps, for so many results at a time."""
    fitting = [n for n in SLICES if taps >= FEWEST_TAPS * n and outputs * n <= CROWD * gpu.multiprocessors]
    return max(fitting, default=1)


def block_threads(slices: int) -> int:
    """Threads of a block whose windows are shared out."""
    return max(LEAST_THREADS, LEAST_LANES * slices)


def merged(code: Code, values: list[Value], slices: int, combine: Callable[[Value, Value], Value]) -> list[Value]:
    """The results of all threads of a window; right in the threads of slice 0.

    Thread t of the block is lane t % lanes of slice t // lanes; all threads of the block take part.
    """
    lanes = block_threads(slices) // slices
    thread = code.special("tid.x")
    shared = code.static_shared(block_threads(slices) * len(values) * 4, "slices")
    own = shared + thread * (len(values) * 4)
    half = slices // 2
    while half:
        _store(code, values, own)
        code.barrier()
        other = shared + code.minimum(thread + half * lanes, block_threads(slices) - 1) * (len(values) * 4)
        values = [combine(a, b) for a, b in zip(values, _load(code, other, len(values)), strict=True)]
        code.barrier()
        half //= 2
    return values


def _store(code: Code, values: Sequence[Value], address: Value) -> None:
    for at in range(0, len(values), 4):
        code.store(values[at : at + 4], address, at * 4)


def _load(code: Code, address: Value, count: int) -> list[Value]:
    step = min(count, 4)
    return [value for at in range(0, count, step) for value in code.load(address, at * 4, F32, step)]


class WindowKernel(ABC):
    """A kernel that computes pixels of an image from windows of another.

    Attributes:
        parts: of the output: images, tiles down, tiles across, groups of channels.
        axes: rows and columns of the window.
    """

    def __init__(self, code: Code, parts: FourAxes, axes: tuple[WindowAxis, WindowAxis]) -> None:
        self.code, self.parts, self.axes = code, parts, axes

    def part(self, index: Value) -> Part:
        """Part number `index` of the output."""
        return part(self.code, index, self.parts)

    def spans(self, me: Part) -> tuple[Span, Span]:
        """The rows and the columns under a part's window."""
        return self.axes[0].span(self.code, me.y), self.axes[1].span(self.code, me.x)

    def begin(self, me: Part) -> None:  # noqa: B027 - most kernels have nothing to find
        """Finds what all taps of a part need."""

    @abstractmethod
    def nothing(self) -> list[Value]:
        """The values of no taps."""

    @abstractmethod
    def add(
        self, me: Part, spans: tuple[Span, Span], exists: Value, row: Value, column: Value, values: Sequence[Value]
    ) -> list[Value]:
        """The values with one more tap, at a row and column of those inside the image, where part and tap exist."""

    @abstractmethod
    def combined(self, a: Value, b: Value) -> Value:
        """Two partial results as one."""

    @abstractmethod
    def finish(self, me: Part, spans: tuple[Span, Span], values: list[Value]) -> None:
        """Stores the result of a window."""


class WindowTile(Template):
    """A template whose threads compute a part of the output each."""

    threads: ClassVar[int] = LEAST_THREADS

    @property
    def parts(self) -> int:
        """Parts of a block."""
        return self.threads


class WindowWalk(Template):
    """A template whose windows have the size that comes with the launch, each shared by `slices` threads."""

    slices: int

    @property
    def threads(self) -> int:
        return block_threads(self.slices)

    @property
    def parts(self) -> int:
        """Parts of a block."""
        return self.threads // self.slices

    def write_walk(self, kernel: WindowKernel) -> None:
        """The whole kernel."""
        code, thread, lanes = kernel.code, kernel.code.special("tid.x"), self.parts
        me = kernel.part(code.special("ctaid.x") * lanes + thread % lanes)
        kernel.begin(me)
        spans = kernel.spans(me)

        def visit(exists: Value, row: Value, column: Value, values: Sequence[Value]) -> list[Value]:
            return kernel.add(me, spans, exists, row, column, values)

        values = walk(code, *spans, (thread // lanes, self.slices), kernel.nothing(), visit)
        if self.slices > 1:
            values = merged(code, values, self.slices, kernel.combined)
        with code.when(me.exists & (thread < lanes)):
            kernel.finish(me, spans, values)
