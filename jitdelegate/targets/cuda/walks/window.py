"""Windows whose size is a launch argument: one thread, or several, loop over the taps that lie inside the image."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from jitdelegate.ir.forms import Window
from jitdelegate.targets.cuda.code.axes import FourAxes
from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.code.division import divided, divisor
from jitdelegate.targets.cuda.code.gpu import Gpu
from jitdelegate.targets.cuda.code.image_parts import Part, part
from jitdelegate.targets.cuda.code.lanes import combine_rows
from jitdelegate.targets.cuda.code.sizes import Divisor, Number
from jitdelegate.targets.cuda.code.template import Template

AT_ONCE = 4
"""Taps whose loads are in flight together."""
SLICES = (8, 32, 128)
"""Possible numbers of threads that share a large window."""
FEWEST_TAPS = 4
"""Fewest taps that are worth a thread."""
CROWD = 512
"""Threads per multiprocessor above which threads do not share windows."""
LEAST_THREADS = 128
LEAST_LANES = 4
"""Fewest neighbouring groups of channels per block: fewer would use only parts of memory sectors."""

Visit = Callable[[Value, Value, Value, Sequence[Value]], list[Value]]
"""(whether the tap exists, its row and column among those inside, the values so far) -> the values with this tap."""


@dataclass(frozen=True, slots=True)
class Span:
    """The taps of one axis that lie inside the image.

    Attributes:
        first: number of the first tap.
        count: number of taps.
        start: row or column of the image under the first tap.
        step: distance from one tap to the next, in rows or columns.
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
        """The window of a form along axis 0 (rows) or 1 (columns)."""
        dilation = Divisor(*divisor(form.dilation[axis]))
        return WindowAxis(size, form.kernel[axis], form.stride[axis], form.padding[2 * axis], dilation)

    def span(self, code: Code, output: Value) -> Span:
        """The taps for output row or column `output`."""
        position, dilation = output * self.stride - self.padding, self.dilation
        first = _steps(code, -position, dilation)
        end = code.minimum(self.kernel, _steps(code, self.size - position, dilation))
        return Span(first, not_negative(code, end - first), position + first * dilation.size, dilation.size)


def _steps(code: Code, distance: Value, dilation: Divisor) -> Value:
    """The number of steps of the dilation that cover the distance; 0 if the distance is negative."""
    return divided(code, not_negative(code, distance) + (dilation.size - 1), dilation)[0]


def not_negative(code: Code, number: Value) -> Value:
    """The int32, or 0 if it is negative."""
    return code.select(number < 0, 0, number)


def walk(
    code: Code, rows: Span, columns: Span, share: tuple[Value | int, int], initial: Sequence[Value], visit: Visit
) -> list[Value]:
    """Visits the taps of a window, row by row.

    Args:
        share: (number, count): this thread visits every count-th tap, from tap `number` on.
        initial: the values before the first tap.
    Returns:
        The values after the last tap.
    """
    slice_, slices = share
    wide = code.select(columns.count < 1, 1, columns.count)
    total = rows.count * columns.count
    number, stride = (code.like(value, total) for value in (slice_, slices))
    down = stride // wide
    across = stride - down * wide
    row = number // wide
    first = [row, number - row * wide]
    with code.carried(total, [*first, *initial], start=number, step=AT_ONCE * slices) as (tap, values, following):
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
    """Number of threads that share each window of `taps` taps, where `outputs` results are computed at a time."""
    fitting = [n for n in SLICES if taps >= FEWEST_TAPS * n and outputs * n <= CROWD * gpu.multiprocessors]
    return max(fitting, default=1)


def block_threads(slices: int) -> int:
    """Threads of a block, where `slices` threads share each window."""
    return max(LEAST_THREADS, LEAST_LANES * slices)


class WindowKernel(ABC):
    """A kernel that computes pixels of an image from windows of another.

    Attributes:
        parts: parts of the output: images, tiles down, tiles across, groups of channels.
        axes: the window along rows and along columns.
    """

    def __init__(self, code: Code, parts: FourAxes | None, axes: tuple[WindowAxis, WindowAxis]) -> None:
        self.code, self.parts, self.axes = code, parts, axes

    def part(self, index: Value) -> Part:
        """Part number `index` of the output."""
        assert self.parts is not None
        return part(self.code, index, self.parts)

    def spans(self, me: Part) -> tuple[Span, Span]:
        """The taps along rows and along columns of a part's window."""
        return self.axes[0].span(self.code, me.y), self.axes[1].span(self.code, me.x)

    def begin(self, me: Part) -> None:  # noqa: B027 - most kernels have nothing to find
        """Computes the values that all taps of a part need."""

    @abstractmethod
    def nothing(self) -> list[Value]:
        """The values before the first tap."""

    @abstractmethod
    def add(
        self, me: Part, spans: tuple[Span, Span], exists: Value, row: Value, column: Value, values: Sequence[Value]
    ) -> list[Value]:
        """The values after one more tap, if part and tap exist; row and column are counted among the taps inside the
        image."""

    @abstractmethod
    def combined(self, a: Value, b: Value) -> Value:
        """Two partial results combined."""

    @abstractmethod
    def finish(self, me: Part, spans: tuple[Span, Span], values: list[Value]) -> None:
        """Stores the result of a window."""


class WindowTile(Template):
    """A template whose threads each compute one part of the output."""

    threads: ClassVar[int] = LEAST_THREADS
    awaits_launches: ClassVar[bool] = True

    @property
    def parts(self) -> int:
        """Number of parts per block."""
        return self.threads


class WindowWalk(Template):
    """A template whose window size is a launch argument; `slices` threads share each window."""

    awaits_launches: ClassVar[bool] = True
    slices: int

    @property
    def threads(self) -> int:
        return block_threads(self.slices)

    @property
    def parts(self) -> int:
        """Number of parts per block."""
        return self.threads // self.slices

    def write_walk(self, kernel: WindowKernel) -> None:
        """Writes the whole kernel."""
        code, thread, lanes = kernel.code, kernel.code.special("tid.x"), self.parts
        me = kernel.part(code.special("ctaid.x") * lanes + thread % lanes)
        kernel.begin(me)
        spans = kernel.spans(me)
        code.await_launches()

        def visit(exists: Value, row: Value, column: Value, values: Sequence[Value]) -> list[Value]:
            return kernel.add(me, spans, exists, row, column, values)

        values = walk(code, *spans, (thread // lanes, self.slices), kernel.nothing(), visit)
        values = combine_rows(
            code, values, thread // lanes, thread % lanes, self.slices, lanes, lambda _, a, b: kernel.combined(a, b)
        )
        with code.when(me.exists & (thread < lanes)):
            kernel.finish(me, spans, values)
