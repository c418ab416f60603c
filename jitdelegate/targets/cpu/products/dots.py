"""Contracts of few output channels, whose vectors are channels of the data: the output channels would fill few lanes.

A chunk is some rows of the output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from jitdelegate.base.targets import BFLOAT16
from jitdelegate.ir.forms import Contract
from jitdelegate.ir.layout import Layout
from jitdelegate.targets.cpu.code.epilogue import Epilogue, stream_pointers
from jitdelegate.targets.cpu.code.kernel import Generator, Job, Kernel, Memory
from jitdelegate.targets.cpu.code.vector_ir import POINTER, Value
from jitdelegate.targets.cpu.multiply.products import Products
from jitdelegate.targets.cpu.products.chunks import Chunks, chunks_wanted, worth
from jitdelegate.targets.cpu.sources.filters import ContractFilters
from jitdelegate.targets.cpu.sources.indirect_gemm import Sweep, sweeps
from jitdelegate.targets.cpu.walks.dot_row import DotShape, dot_row_function

FOLDING, STORING = 3, 6
"""Multiply-adds that take as long as adding up the lanes of a sum; and as storing a pixel's results in other ways.
Measured on a Zen 4 core."""
GAIN = 1.2
"""How many times as fast as others it has to be."""
MOST_OUTPUTS = 4
"""Output channels beyond which it never is."""


def dot_sweeps(
    form: Contract, products: Products, filters: ContractFilters, a: Layout, c: Layout, epilogue: Epilogue
) -> list[list[Sweep]]:
    """The sweeps of a Contract of at most MOST_OUTPUTS, those whose results are in the same rows together; none unless
    it is computed so: where that is faster, and the results of a row are neighbours."""
    outputs, is_float = len(filters.stored), type(products.unpacked) is Products and filters.narrow != BFLOAT16
    if form.groups > 1 or not is_float or products.scales > 1:
        return []
    streams = [(s.pixel, s.memory.layout.element) for s in epilogue.streams if not s.splat or s.pixel]
    is_dense = all(pixel == outputs * element for pixel, element in [(c.pixel, c.element), *streams])
    found = sorted(sweeps(form, a, c, filters.stored), key=lambda sweep: (sweep.y, sweep.x))
    taps, depth = [sweep.taps[0] * sweep.taps[1] for sweep in found], found[0].depth
    own = outputs * sum(count * -(-depth // products.lanes) + FOLDING for count in taps)
    direct = sum(count * depth * (0.5 if products.half_type else 1) + STORING for count in taps)
    rows = [list(row) for _, row in groupby(found, key=lambda sweep: sweep.y)]
    is_even = min(taps) > 0 and all(len({sweep.columns for sweep in row}) == 1 for row in rows)
    is_fit = is_dense and is_even and len(rows[0]) * outputs <= products.lanes
    return rows if is_fit and GAIN * own < direct else []


def write_dots(
    generator: Generator,
    phases: Sequence[Sweep],
    ends: tuple[Memory, Memory],
    filters: ContractFilters,
    epilogue: Epilogue,
) -> Job:
    """The job of sweeps whose results are in the same rows: first one of each, and so on."""
    (a, c), lanes, (sweep, *_) = ends, generator.lanes, phases
    outputs, images = len(sweep.weights), c.layout.shape[0]
    steps = [_steps(phase, lanes, filters.scales) for phase in phases]
    bias = np.zeros(outputs, np.float32) if filters.bias is None else filters.bias
    packed = generator.weights.add(np.concatenate([np.resize(bias, lanes), *(each.ravel() for _, each in steps)]))
    starts = [at + (phase.a_start - sweep.a_start) for phase, (at, _) in zip(phases, steps, strict=True)]
    places = np.concatenate(starts).tolist()
    wholes = [phase.taps[0] * phase.taps[1] * (phase.depth // lanes) for phase in phases]
    sizes = tuple((whole, len(at) - whole) for whole, (at, _) in zip(wholes, steps, strict=True))
    streams = tuple(s.stepped(sweep.y * s.row, sweep.step_y, len(phases)) for s in epilogue.streams)
    own = replace(epilogue, streams=streams)
    shape = DotShape(outputs, sizes, sweep.depth % lanes, sweep.a_pixel, sweep.columns, own)
    work = 2 * sum(phase.pixels * phase.weights.size for phase in phases)
    chunks = Chunks.of(images, 0, sweep.rows, max(1, sweep.rows // chunks_wanted(work, images)))

    def body(kernel: Kernel) -> None:
        f, (image, _, part) = kernel.f, chunks.numbers(kernel)
        first = part * chunks.rows
        pointers = [kernel.pointer(a) + (image * a.layout.image + sweep.a_start)]
        pointers += [kernel.pointer(c) + (image * c.layout.image + sweep.c_start)]
        pointers += stream_pointers(kernel, streams, image)
        moves = [sweep.a_row, sweep.c_row, *(stream.row for stream in streams)]
        at = [p + first * move for p, move in zip(pointers, moves, strict=True)]
        weights, offsets = kernel.constants(packed), Value(f, POINTER, generator.integers("offsets", places))

        def row(_: Value, a: Value, c: Value, *streams: Value) -> list[Value]:
            f.call(dot_row_function(generator, shape), a, weights, c, offsets, *streams)
            return [p + move for p, move in zip((a, c, *streams), moves, strict=True)]

        def run(rows: int) -> None:
            f.loop(rows, row, *at)

        chunks.run(kernel, part, run)

    return generator.job("dots", chunks.count, body, worth=worth(images * work), parts=chunks.parts)


def _steps(sweep: Sweep, lanes: int, scales: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """The offset of each step's data from those of a pixel, and f32[steps, O, lanes]. The steps that end taps whose
    channels do not fill vectors come last."""
    taps_y, taps_x, tap_y, tap_x = sweep.taps
    starts = np.arange(0, sweep.depth, lanes)
    within = starts // lanes * sweep.a_block + starts % lanes * sweep.a_element
    taps = np.arange(taps_y)[:, None] * tap_y + np.arange(taps_x) * tap_x
    offsets = taps.reshape(-1, 1) + within
    weights = sweep.weights.astype(np.float32) * (1 if scales is None else scales)
    weights = weights.reshape(len(weights), taps.size, sweep.depth)
    padded = np.pad(weights, ((0, 0), (0, 0), (0, -sweep.depth % lanes)))
    steps = padded.reshape(len(weights), offsets.size, lanes).swapaxes(0, 1)
    order = np.argsort(np.tile(starts + lanes > sweep.depth, taps.size), kind="stable")
    return offsets.ravel()[order], steps[order]
