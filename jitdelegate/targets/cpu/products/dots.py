"""Contracts of few output channels, whose vectors are channels of the data: the output channels would fill few lanes.

A chunk is some rows of the output.
"""

from __future__ import annotations

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

FOLDING = 3
"""Multiply-adds that take as long as adding up the lanes of a sum."""
GAIN = 1.3
"""How many times as fast as others it has to be."""
MOST_OUTPUTS = 4
"""Output channels beyond which it never is."""


def takes_dots(
    form: Contract, products: Products, filters: ContractFilters, a: Layout, c: Layout, epilogue: Epilogue
) -> bool:
    """Whether a Contract of at most MOST_OUTPUTS is computed so: where that is faster, and the results of a row are
    neighbours."""
    outputs, is_float = len(filters.stored), type(products.unpacked) is Products and filters.narrow != BFLOAT16
    if form.groups > 1 or form.transposed or not is_float:
        return False
    streams = [(s.pixel, s.memory.layout.element) for s in epilogue.streams if not s.splat or s.pixel]
    is_dense = all(pixel == outputs * element for pixel, element in [(c.pixel, c.element), *streams])
    (sweep,) = sweeps(form, a, c, filters.stored)
    taps = sweep.taps[0] * sweep.taps[1]
    own = outputs * (taps * -(-sweep.depth // products.lanes) + FOLDING)
    return is_dense and GAIN * own < taps * sweep.depth * (0.5 if products.half_type else 1)


def write_dots(
    generator: Generator, sweep: Sweep, ends: tuple[Memory, Memory], filters: ContractFilters, epilogue: Epilogue
) -> Job:
    """The job of a sweep."""
    (a, c), outputs = ends, len(sweep.weights)
    offsets, weights = _steps(sweep, generator.lanes, filters.scales)
    bias = np.zeros(outputs, np.float32) if filters.bias is None else filters.bias
    packed = generator.weights.add(np.concatenate([np.resize(bias, generator.lanes), weights.ravel()]))
    whole = sweep.taps[0] * sweep.taps[1] * (sweep.depth // generator.lanes)
    steps = whole, len(offsets) - whole, sweep.depth % generator.lanes
    shape = DotShape(outputs, *steps, sweep.a_pixel, sweep.columns, epilogue)
    images, work = c.layout.shape[0], 2 * sweep.pixels * sweep.weights.size
    chunks = Chunks.of(images, 0, sweep.rows, max(1, sweep.rows // chunks_wanted(work, images)))

    def body(kernel: Kernel) -> None:
        f, streams = kernel.f, epilogue.streams
        image, _, part = chunks.numbers(kernel)
        first = part * chunks.rows
        pointers = [kernel.pointer(a) + (image * a.layout.image + sweep.a_start)]
        pointers += [kernel.pointer(c) + (image * c.layout.image + sweep.c_start)]
        pointers += stream_pointers(kernel, streams, image)
        moves = [sweep.a_row, sweep.c_row, *(stream.row for stream in streams)]
        at = [p + first * move for p, move in zip(pointers, moves, strict=True)]
        constants = kernel.constants(packed), Value(f, POINTER, generator.integers("offsets", offsets.tolist()))

        def row(_: Value, a: Value, c: Value, *streams: Value) -> list[Value]:
            f.call(dot_row_function(generator, shape), a, constants[0], c, constants[1], *streams)
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
