"""Panels: the weights of a Contract as its tiles read them, stored as narrow as their values allow.

A panel is up to four vectors of output channels: [bias][scales of each block of K][K][vectors * lanes]. Of int4, two
neighbouring steps of K share a byte; steps that are no part of a quad are stored as int8.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from jitdelegate.ir.dequantize import requantized
from jitdelegate.ir.graph import ABSENT, Graph, Node
from jitdelegate.ir.types import ELEMENT_TYPES
from jitdelegate.targets.cpu.indirect_gemm import QUAD
from jitdelegate.targets.cpu.kernel import Generator, split
from jitdelegate.targets.cpu.machine import Machine
from jitdelegate.targets.cpu.vector_ir import FLOAT, FLOAT_BYTES, INDEX, POINTER, Function, Value, vector
from jitdelegate.targets.implicit_gemm import filters_of

LEAST_NARROW = 4096
"""Fewest weights that are worth a look for a narrower type."""
SAMPLE = 4096
"""Weights that are tried before all are: few floats are float16 by chance."""


@dataclass(frozen=True, eq=False)
class ContractFilters:
    """Weights and bias of a Contract.

    Attributes:
        stored: [O, kh, kw, I] of float32, float16 or int8; the weights are its products with `scales`.
        dtype: the type of `stored` in panels, which may be "int4".
        scales: f32[O, blocks] for integers, each for an equal part of a filter's weights; else None.
        bias: f32[O] or None.
    """

    stored: np.ndarray
    dtype: str = "float32"
    scales: np.ndarray | None = None
    bias: np.ndarray | None = None

    @property
    def blocks(self) -> int:
        """Scales per output channel."""
        return 0 if self.scales is None else self.scales.shape[1]

    @property
    def is_wide(self) -> bool:
        """Whether they are stored as tiles multiply them."""
        return self.dtype == "float32"

    def part(self, rows: slice) -> ContractFilters:
        """The filters of some output channels."""
        scales, bias = (None if each is None else each[rows] for each in (self.scales, self.bias))
        return replace(self, stored=self.stored[rows], scales=scales, bias=bias)


def narrow_filters(machine: Machine, graph: Graph, node: Node) -> ContractFilters:
    """The filters of a Contract node, in the narrowest type that holds the very same numbers."""
    source, bias = graph.tensors[node.inputs[1]], None
    if node.inputs[2] != ABSENT:
        bias = graph.tensors[node.inputs[2]].data
    assert source.data is not None
    weights = filters_of(source.data)
    wide = ContractFilters(weights, bias=bias)
    if weights.size < LEAST_NARROW:
        return wide
    found = requantized(weights, source.grid) if source.grid else None
    if found is not None and (found[1].shape[1] == 1 or _is_blockable(weights, found[1])):
        numbers, scales = found
        is_small = numbers.min() >= -8 and numbers.max() <= 7
        return ContractFilters(numbers, "int4" if is_small else "int8", scales, bias)
    if machine.has_half and _is_half(weights.reshape(-1)[:SAMPLE]) and _is_half(weights):
        return ContractFilters(weights.astype(np.float16), "float16", bias=bias)
    return wide


def _is_blockable(weights: np.ndarray, scales: np.ndarray) -> bool:
    """Whether the tile can walk along blocks: rows of a matrix, cut into whole quads."""
    outputs, height, width, depth = weights.shape
    return bool(height == width == 1 and depth % (scales.size // outputs * QUAD) == 0)


def _is_half(weights: np.ndarray) -> bool:
    """Whether every element is a float16."""
    with np.errstate(over="ignore"):
        return bool(np.array_equal(weights.astype(np.float16), weights))


@dataclass(frozen=True)
class PanelFormat:
    """How a panel stores weights.

    Attributes:
        dtype: the type of the weights.
        quads, singles: quads of steps of K, and the steps after them.
        blocks: scales per channel; 0 for floats.
    """

    dtype: str
    quads: int
    singles: int
    blocks: int = 0

    @property
    def depth(self) -> int:
        """Steps of K."""
        return QUAD * self.quads + self.singles

    def header(self, channels: int) -> int:
        """Bytes before the weights."""
        return (1 + self.blocks) * channels * FLOAT_BYTES

    def size(self, channels: int, align: int) -> int:
        """Bytes of a panel."""
        weights = channels * (self.quads * line_bytes(self.dtype, QUAD) + self.singles * line_bytes(self.dtype, 1))
        return -(-(self.header(channels) + weights) // align) * align


def line_bytes(dtype: str, steps: int) -> int:
    """Bytes of the weights of one channel in `steps` steps of K, which are a quad or one."""
    return steps // 2 if dtype == "int4" and steps == QUAD else steps * ELEMENT_TYPES[dtype].nbytes


def panel_widths(generator: Generator, outputs: int) -> list[tuple[int, int]]:
    """Nearly equal panels of `outputs` channels: [(vectors, number of panels)]."""
    return split(-(-outputs // generator.lanes), len(generator.machine.tiles))


def pack(
    generator: Generator, matrix: ContractFilters, form: PanelFormat, order: np.ndarray
) -> tuple[int, list[tuple[int, int]]]:
    """ContractFilters [O, K], with K in this `order`, packed as panels: (their offset in the weights, their widths)."""
    weights, bias, scales = matrix.stored, matrix.bias, matrix.scales
    lanes = generator.lanes
    widths = panel_widths(generator, len(weights))
    in_order = np.array_equal(order, np.arange(form.depth))

    def panels() -> Iterator[np.ndarray]:
        first = 0
        for width in (vectors * lanes for vectors, count in widths for _ in range(count)):
            rows = slice(first, first + width)
            panel = np.zeros(form.size(width, generator.vector_bytes), np.uint8)
            head = panel[: form.header(width)].view(np.float32).reshape(1 + form.blocks, width)
            if bias is not None:
                head[0, : len(bias[rows])] = bias[rows]
            if scales is not None:
                head[1:, : len(scales[rows])] = scales[rows].T
            lines = weights[rows].T if in_order else weights[rows].T[order]
            _write_lines(panel[form.header(width) :], lines, form, width)
            first += width
            yield panel

    sources = [weights, order, *(each for each in (bias, scales) if each is not None)]
    return generator.weights.pack(("panels", form, *widths), sources, panels), widths


def _write_lines(target: np.ndarray, lines: np.ndarray, form: PanelFormat, width: int) -> None:
    """The steps of K, one line each, padded to `width` channels."""
    channels = lines.shape[1]
    if form.dtype != "int4":
        lined = target[: len(lines) * width * lines.itemsize].view(lines.dtype).reshape(len(lines), width)
        lined[:, :channels] = lines
        return
    half = form.quads * QUAD // 2
    pairs = lines[: 2 * half].reshape(half, 2, channels).view(np.uint8)
    target[: half * width].reshape(half, width)[:, :channels] = pairs[:, 0] & 15 | pairs[:, 1] << 4
    rest = target[half * width : (half + form.singles) * width].view(np.int8)
    rest.reshape(form.singles, width)[:, :channels] = lines[2 * half :]


def read_lines(
    f: Function, dtype: str, at: Value, vectors: int, lanes: int, steps: int, channels: Value | int = 0
) -> Iterator[list[Value]]:
    """Weights of neighbouring vectors of a panel as floats: a list for each of `steps` steps of K.

    Args:
        channels: those of the panel, where they are more than the vectors have.
    """
    width = channels or vectors * lanes
    if dtype == "int4" and steps == QUAD:
        for pair in range(steps // 2):
            both = [_load_bytes(f, at + (width * pair) + v * lanes, lanes) for v in range(vectors)]
            yield [f.convert("sitofp", f.ashr(each << 28, 28), FLOAT) for each in both]
            yield [f.convert("sitofp", f.ashr(each, 4), FLOAT) for each in both]
        return
    nbytes = 1 if dtype == "int4" else ELEMENT_TYPES[dtype].nbytes
    for k in range(steps):
        line = at + width * (k * nbytes)
        yield [_read_weights(f, dtype, line + v * (lanes * nbytes), lanes) for v in range(vectors)]


def _read_weights(f: Function, dtype: str, at: Value, lanes: int) -> Value:
    if dtype == "float32":
        return f.load(vector(lanes), at, 64 if lanes > 1 else FLOAT_BYTES)
    if dtype == "float16":
        return f.convert("fpext", f.load(vector(lanes, "half"), at, 2), FLOAT)
    return f.convert("sitofp", _load_bytes(f, at, lanes), FLOAT)


def _load_bytes(f: Function, at: Value, lanes: int) -> Value:
    """Signed bytes as 32-bit integers."""
    return f.convert("sext", f.load(vector(lanes, "i8"), at, 1), "i32")


def unpack_function(generator: Generator, form: PanelFormat, vectors: int) -> str:
    """The name of `void unpack(panel, target, blocks, quads of a block, singles)`, which writes the panel with float32
    weights: [bias][K][vectors * lanes]. There are no singles where there are several blocks."""
    key = form.dtype, vectors, form.quads > 0, form.singles > 0, min(form.blocks, 2)
    return generator.once("unpack", key, lambda name: _Unpacking(generator, form, vectors, name).write())


class _Unpacking:
    """An unpack function that is being written."""

    def __init__(self, generator: Generator, form: PanelFormat, vectors: int, name: str) -> None:
        parameters = [("panel", POINTER), ("to", POINTER), ("blocks", INDEX), ("quads", INDEX), ("singles", INDEX)]
        self.f = generator.module.function(name, parameters)
        self.form, self.vectors, self.lanes = form, vectors, generator.lanes
        self.vector_bytes = generator.vector_bytes
        self.line = vectors * generator.vector_bytes

    def write(self) -> None:
        f, form = self.f, self.form
        panel, to, blocks, quads, singles = f.parameters
        self._store(to, self._floats(panel))
        at, to = panel + (blocks + 1) * self.line, to + self.line

        def block(i: Value, at: Value, to: Value) -> list[Value]:
            scales = self._floats(panel + (i + 1) * self.line) if form.blocks else []
            if form.quads:
                at, to = self._lines(quads, QUAD, scales, at, to)
            return list(self._lines(singles, 1, scales, at, to)) if form.singles else [at, to]

        f.loop(blocks if form.blocks > 1 else 1, block, at, to)
        f.finish()

    def _lines(self, count: Value, steps: int, scales: list[Value], at: Value, to: Value) -> tuple[Value, Value]:
        """Converts `count` groups of `steps` lines; returns what follows them on both sides."""

        def group(_: Value, at: Value, to: Value) -> list[Value]:
            for k, line in enumerate(read_lines(self.f, self.form.dtype, at, self.vectors, self.lanes, steps)):
                values = [each * scale for each, scale in zip(line, scales, strict=True)] if scales else line
                self._store(to + k * self.line, values)
            return [at + line_bytes(self.form.dtype, steps) * self.vectors * self.lanes, to + steps * self.line]

        after, behind = self.f.loop(count, group, at, to)
        return after, behind

    def _floats(self, at: Value) -> list[Value]:
        return [self.f.load(vector(self.lanes), at + v * self.vector_bytes, 64) for v in range(self.vectors)]

    def _store(self, to: Value, values: list[Value]) -> None:
        for v, value in enumerate(values):
            self.f.store(value, to + v * self.vector_bytes, 64)
