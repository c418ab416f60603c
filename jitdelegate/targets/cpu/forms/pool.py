"""Pool. Windows are clipped to the image and need no halo."""

from __future__ import annotations

from functools import partial, reduce

from jitdelegate.ir.forms import Pool
from jitdelegate.ir.graph import Node
from jitdelegate.ir.layout import Layout
from jitdelegate.targets.cpu.code.epilogue import Epilogue
from jitdelegate.targets.cpu.code.fold import Fold
from jitdelegate.targets.cpu.code.kernel import Generator, Job, Kernel, Memory
from jitdelegate.targets.cpu.code.vector_ir import Function, Value
from jitdelegate.targets.cpu.code.writer import Writer
from jitdelegate.targets.cpu.forms.pixels import Line, Pixels, Sample, pixel_jobs
from jitdelegate.targets.maths.cast import cast

UNROLLED_TAPS = 16
"""Windows with more taps than this are computed in loops, even where they lie inside the image."""


def write_pool(writer: Writer, node: Node, form: Pool) -> list[Job]:
    """The jobs of a Pool node."""
    return pool_jobs(writer.generator, form, *writer.ends(node), writer.epilogue(node))


def pool_jobs(generator: Generator, form: Pool, a: Memory, c: Memory, epilogue: Epilogue) -> list[Job]:
    """Mean or maximum over the part of each window that lies inside the image."""
    fold = Fold(form.kind, a.layout.dtype, epilogue.source)
    rows, columns = (_inside(form, axis, a.layout, c.layout) for axis in (0, 1))

    def pixels(kernel: Kernel) -> Pixels:
        anywhere, inside = (partial(pixel, kernel.f, fold, form, a.layout) for pixel in (_pool_row, _whole_pool_row))
        is_unrolled = form.kernel[0] * form.kernel[1] <= UNROLLED_TAPS
        return Pixels(anywhere, inside, rows, columns) if is_unrolled else Pixels(anywhere, anywhere)

    return pixel_jobs(generator, "pool", a, c, epilogue, pixels)


def _inside(form: Pool, axis: int, a: Layout, c: Layout) -> tuple[int, int]:
    """The output rows or columns, as [start, stop), whose windows lie inside the image; 0 <= start <= stop."""
    stride, padding, kernel = form.stride[axis], form.padding[2 * axis], form.kernel[axis]
    start = min(-(-padding // stride), c.shape[1 + axis])
    stop = min((a.shape[1 + axis] - kernel + padding) // stride + 1, c.shape[1 + axis])
    return start, max(start, stop)


def _whole_pool_row(f: Function, fold: Fold, form: Pool, layout: Layout, y: Value) -> Line:
    """The pixels whose windows lie inside the image."""
    count = form.kernel[0] * form.kernel[1]
    sums = fold.sums(count)
    top = (y * form.stride[0] - form.padding[0]) * layout.row
    taps = [i * layout.row + j * layout.pixel for i in range(form.kernel[0]) for j in range(form.kernel[1])]

    def pixel(x: Value) -> Sample:
        start = top + (x * form.stride[1] - form.padding[2]) * layout.pixel

        def sample(image: Value, lanes: int, mask: Value | None) -> Value:
            loaded = (sums.load(f, image + start + tap, lanes, mask) for tap in taps)
            total = reduce(partial(sums.combine, f), loaded, sums.start(f, lanes))
            return fold.finished(f, cast(f, total, sums.result, fold.result), count, count)

        return sample

    return pixel


def _pool_row(f: Function, fold: Fold, form: Pool, layout: Layout, y: Value) -> Line:
    top, rows = _clip(f, y, form.stride[0], form.padding[0], form.kernel[0], layout.shape[1])
    most = form.kernel[0] * form.kernel[1]
    sums = fold.sums(most)

    def pixel(x: Value) -> Sample:
        left, columns = _clip(f, x, form.stride[1], form.padding[2], form.kernel[1], layout.shape[2])
        start = top * layout.row + left * layout.pixel

        def sample(image: Value, lanes: int, mask: Value | None) -> Value:
            first = image + start

            def row(i: Value, total: Value) -> list[Value]:
                line = first + i * layout.row

                def column(j: Value, total: Value) -> list[Value]:
                    return [sums.combine(f, total, sums.load(f, line + j * layout.pixel, lanes, mask))]

                return f.loop(columns, column, total)

            (total,) = f.loop(rows, row, sums.start(f, lanes))
            if not fold.combiner.mean_of:
                return total
            return fold.finished(f, cast(f, total, sums.result, fold.result), rows * columns, most)

        return sample

    return pixel


def _clip(f: Function, index: Value, stride: int, padding: int, kernel: int, size: int) -> tuple[Value, Value]:
    """(first source index of a window, number of its taps inside the image)."""
    first = index * stride - padding
    low = f.select(f.compare("slt", first, 0), f.index(0), first)
    end = first + kernel
    high = f.select(f.compare("slt", end, size), end, f.index(size))
    return low, high - low
