"""Implicit GEMM by a table: which elements of the data belong to output pixel m and step k of a contraction.

The data of pixel m is gathered chunk by chunk; a chunk is a few neighbouring channels of one tap. A table in constant
memory has two int32 per chunk: the offset of the chunk from the pixel's first tap, in elements, and the tap's distance
from the first tap in rows and columns (16 bits each). Elements outside the image read as zero. K is padded to whole
tiles with taps that are always outside. Convolutions, transposed convolutions and fully connected layers differ only
in their tables.

Of integers, the data's zero point is subtracted from the bias instead of from the data, times the sum of the weights;
that of the weights is subtracted from the sums, times the sum of the data. Sums wrap, so this is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from jitdelegate.errors import CompileError
from jitdelegate.ir.forms import Contract, Window
from jitdelegate.ir.graph import ABSENT, Node
from jitdelegate.ir.layout import image_shape
from jitdelegate.targets.cuda.code.choices import problem
from jitdelegate.targets.cuda.code.element import OWN, Element, common_width
from jitdelegate.targets.cuda.code.epilogue import Epilogue
from jitdelegate.targets.cuda.code.writer import Writer, check_memory
from jitdelegate.targets.cuda.sources.pixel_gather import SourceSizes, TargetPixels
from jitdelegate.targets.planning.implicit_gemm import GridPhase, filters_of, grid_phases

OUTSIDE = -(2**15)
"""Row and column of a tap that is outside every image: an image that reaches so far would have over 2**30 pixels."""


@dataclass(frozen=True, eq=False)
class Phase:
    """Output pixels that meet the same taps: rows first[0] + step[0] * t for t < size[0], and columns alike.

    Attributes:
        size: (rows, columns) of one image.
        first, step: (y, x) in the output.
        start, stride: the first tap of row t is data row start[0] + stride[0] * t.
        taps: int64[T, 2], the distance of each tap from the first one (y, x).
        weights: [O, T, I], as wide as they are stored.
        bias: [O], of the type of the sums; zeros where the node has no bias.
    """

    size: tuple[int, int]
    first: tuple[int, int]
    step: tuple[int, int]
    start: tuple[int, int]
    stride: tuple[int, int]
    taps: np.ndarray
    weights: np.ndarray
    bias: np.ndarray

    @property
    def steps(self) -> int:
        """Length of K: taps times channels of a group."""
        return int(self.weights.shape[1] * self.weights.shape[2])

    def matrices_shape(self, groups: int, tile_k: int, tile_n: int) -> tuple[int, int, int]:
        """Sizes of `matrices`."""
        return groups, whole(self.steps, tile_k), whole(self.weights.shape[0] // groups, tile_n)

    def matrices(self, groups: int, tile_k: int, tile_n: int) -> np.ndarray:
        """[groups, K, N]: the weights of each group, K and N padded with zeros to whole tiles (at least one).

        Raises:
            CompileError: there are too many weights.
        """
        outputs = self.weights.shape[0] // groups
        packed = blank(*self.matrices_shape(groups, tile_k, tile_n), dtype=self.weights.dtype)
        packed[:, : self.steps, :outputs] = self.weights.reshape(groups, outputs, self.steps).transpose(0, 2, 1)
        return packed


@dataclass(frozen=True, eq=False)
class ConvProblem:
    """A Contract node as products of gathered pixels and weights, one product per phase and group.

    Attributes:
        data, output: tensors.
        image, target: their shapes as images [N, H, W, C]; [N, 1, 1, H * W * C] where each output pixel reads the
            whole image.
        pitch, out_pitch: elements between neighbouring pixels of the data and of the output.
        grain: what the widths of accesses to the data have to divide, besides `depth`.
        halo: the stored value of pixels outside the image.
        filter_zero: the weights' zero point.
        phases: one; for a transposed convolution, one per position of output pixels relative to the data's pixels.
        are_packed: whether the weights are int4 that lie two to a byte in memory.
    """

    node: Node
    data: int
    output: int
    image: tuple[int, int, int, int]
    target: tuple[int, int, int, int]
    pitch: int
    out_pitch: int
    grain: tuple[int, ...]
    groups: int
    halo: int
    phases: tuple[Phase, ...]
    filter_zero: int = 0
    are_packed: bool = False

    @property
    def depth(self) -> int:
        """Data channels of a group."""
        return self.image[3] // self.groups

    @property
    def outputs(self) -> int:
        """Output channels of a group."""
        return self.target[3] // self.groups

    @cached_property
    def is_direct(self) -> bool:
        """Whether output pixel m reads data pixel m only: then there is no table and no border."""
        phase = self.phases[0]
        alone = len(self.phases) == 1 and phase.taps.tolist() == [[0, 0]]
        return alone and phase.start == (0, 0) and phase.stride == (1, 1) and self.image[:3] == self.target[:3]

    @cached_property
    def is_scattered(self) -> bool:
        """Whether pixel m of a phase is not pixel m of the output."""
        return self.phases[0].size != self.target[1:3]

    def pixels(self, phase: Phase) -> int:
        """Length of M: the phase's pixels in all images."""
        return self.image[0] * phase.size[0] * phase.size[1]

    @property
    def size(self) -> tuple[int, int, int, int]:
        """(pixels, outputs, steps of K, groups) of the largest phase, phases counted as groups."""
        pixels, steps = (max(map(of, self.phases)) for of in (self.pixels, lambda phase: phase.steps))
        return pixels, self.outputs, steps, self.groups * len(self.phases)

    @property
    def filter_zeros(self) -> tuple[int, ...]:
        """Four times the weights' zero point, as bytes of a word; nothing without one."""
        four = np.full(4, self.filter_zero, np.int8)
        return (int(four.view(np.int32)[0]),) if self.filter_zero else ()

    def width(self, most: int) -> int:
        """Elements of a chunk: the widest power of two up to `most` that divides the channels of a group and suits the
        rows of the data."""
        return common_width((self.depth, *self.grain), most)

    @property
    def sums(self) -> Element:
        """The type of the sums."""
        return OWN[str(self.phases[0].bias.dtype)]

    @property
    def weights(self) -> Element:
        """The type of the weights; those of floats may be integers or float16."""
        return Element.INT4 if self.are_packed else Element(str(self.phases[0].weights.dtype))

    def text(
        self, phase: Phase, elements: Sequence[Element], family: str, width: int, epilogue: Epilogue, way: str = ""
    ) -> str:
        """The problem of a phase as `Writer.choose` takes it.

        Args:
            elements: types of data, weights and output.
            family: of the kernels that compute it.
            width: elements of a chunk.
            way: how they multiply, where a family has several.
        """
        return problem(
            f"{family} {way}".rstrip(),
            elements,
            M=self.pixels(phase),
            N=self.outputs,
            K=phase.steps,
            G=self.groups,
            T=len(phase.taps),
            P=len(self.phases),
            S=phase.stride[1],
            W=width,
            D=self.is_direct,
            Z=self.filter_zero != 0,
            E=len(epilogue.operands),
        )

    def counting(self, steps: int) -> ConvProblem:
        """The problem for sums that have pixels outside the image where K is padded to whole tiles of `steps`."""
        outside = self.halo * self.filter_zero
        phases = (
            replace(one, bias=one.bias + one.bias.dtype.type((whole(one.steps, steps) - one.steps) * outside))
            for one in self.phases
        )
        return replace(self, phases=tuple(phases)) if outside else self

    def biases(self, phase: Phase, tile_n: int) -> np.ndarray:
        """[groups, N]: the bias of each group, padded with zeros to whole tiles."""
        padded = np.zeros((self.groups, whole(self.outputs, tile_n)), phase.bias.dtype)
        padded[:, : self.outputs] = phase.bias.reshape(self.groups, self.outputs)
        return padded

    def table(self, phase: Phase, width: int, tile_k: int) -> np.ndarray:
        """int32[K / width, 2]: the entries of each chunk, K padded to whole tiles (at least one)."""
        taps, columns = phase.taps, self.image[2]
        offsets = ((taps[:, 0] * columns + taps[:, 1]) * self.pitch)[:, None] + np.arange(0, self.depth, width)
        packed = _packed(taps)[:, None].repeat(self.depth // width, axis=1)
        table = np.empty((whole(phase.steps, tile_k) // width, 2), np.int32)
        table[:] = 0, _packed(np.array([[OUTSIDE, OUTSIDE]]))[0]
        table[: phase.steps // width] = np.stack([offsets.ravel(), packed.ravel()], axis=1)
        return table

    def source(self, phase: Phase) -> SourceSizes:
        """Launch arguments for `PixelGather`."""
        return SourceSizes(
            self.pixels(phase), phase.steps, *self.image[1:3], self.pitch, *phase.size, *phase.stride, *phase.start
        )

    def target_pixels(self, phase: Phase) -> TargetPixels:
        """Where a phase's pixels lie in the output."""
        return TargetPixels(*phase.size, *self.target[1:3], *phase.step, *phase.first)


def whole(size: int, tile: int) -> int:
    """`size` rounded up to whole tiles, at least one."""
    return max(-(-size // tile), 1) * tile


def blank(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """An array of zeros.

    Raises:
        CompileError: the array has more elements than kernels can count; nothing was allocated.
    """
    check_memory(f"A constant of {list(shape)}", np.dtype(dtype).itemsize * prod(shape))
    return np.zeros(shape, dtype)


def _packed(taps: np.ndarray) -> np.ndarray:
    """Taps as int32: rows in the low 16 bits, columns in the high ones."""
    return (((taps[:, 0] & 0xFFFF) | (taps[:, 1] & 0xFFFF) << 16) & 0xFFFFFFFF).astype(np.uint32).view(np.int32)


def problem_of(writer: Writer, node: Node) -> ConvProblem:
    """The node's contraction.

    Raises:
        CompileError: the weights or the bias are not constant, those of integers are no int8, a filter or the zeros
            around the image span more than 32767 rows or columns, or floats have a zero point or other pixels than
            zeros around the image.
    """
    form = node.form
    assert isinstance(form, Contract)
    check_floats(form)
    data, weights_index, bias_index = node.inputs[:3]
    output = node.outputs[0]
    image, target = image_shape(writer.shape(data)), image_shape(writer.shape(output))
    is_integer = form.accumulator != "float32"
    weights = filters_of(writer.array(weights_index, writer.element(weights_index).dtype))
    bias = np.zeros(target[3], form.accumulator)
    if bias_index != ABSENT:
        bias = writer.array(bias_index, form.accumulator)
    halo = form.input_zero if form.transposed or form.halo_value is None else int(form.halo_value)
    phases = [_listed(phase, bias) for phase in grid_phases(form, target, weights)]
    reached = [_within(phase, image) for phase in phases]
    if is_integer and weights.dtype != np.int8:
        raise CompileError(f"{node.op} has weights of {weights.dtype}, expected int8 for sums of integers")
    if is_integer:
        pairs = zip(reached, phases, strict=True)
        reached = [_without_zero(phase, every.weights, form, halo) for phase, every in pairs]
    pitches = writer.pitch(data), writer.pitch(output)
    grain, zero = writer.grain(data), form.filter_zero
    problem = ConvProblem(node, data, output, image, target, *pitches, grain, form.groups, halo, tuple(reached), zero)
    return _as_rows(problem) if writer.part(data).is_dense else problem


def check_floats(form: Window) -> None:
    """Check that sums of floats have no zero point, and zeros around the image.

    Raises:
        CompileError: they have others.
    """
    if form.accumulator == "float32" and (form.input_zero or form.halo_value):
        raise CompileError(f"the zero point is {form.input_zero}, the halo {form.halo_value}, expected 0 for floats")


def _without_zero(phase: Phase, every: np.ndarray, form: Contract, halo: int) -> Phase:
    """The phase with a bias for data whose zero point is not subtracted; `every` has the weights of all taps, also of
    those that are always outside the image."""
    total, left = (
        weights.sum(axis=(1, 2), dtype=np.int64) - form.filter_zero * prod(weights.shape[1:])
        for weights in (every, phase.weights)
    )
    bias = phase.bias - form.input_zero * total + halo * (total - left)
    return replace(phase, bias=bias.astype(phase.bias.dtype))


def _as_rows(problem: ConvProblem) -> ConvProblem:
    """The problem with each image as one row of numbers where an output pixel reads the whole image."""
    (images, height, width, channels), phase = problem.image, problem.phases[0]
    positions = phase.taps + np.array(phase.start)
    everything = _grid(np.arange(height), np.arange(width))
    if problem.groups > 1 or problem.target[1:3] != (1, 1) or not np.array_equal(positions, everything):
        return problem
    flat = phase.weights.reshape(len(phase.weights), 1, -1)
    only = replace(phase, start=(0, 0), stride=(1, 1), taps=np.zeros((1, 2), np.int64), weights=flat)
    size = height * width * channels
    return replace(problem, image=(images, 1, 1, size), pitch=size, phases=(only,))


def _listed(phase: GridPhase, bias: np.ndarray) -> Phase:
    """The phase with an explicit list of its taps."""
    axes, (outputs, height, width, depth) = (phase.rows, phase.columns), phase.weights.shape
    size, first, step, start, stride = zip(
        *((axis.size, axis.first, axis.step, axis.start, axis.stride) for axis in axes), strict=True
    )
    taps = _grid(*(axis.spacing * np.arange(count) for axis, count in zip(axes, (height, width), strict=True)))
    return Phase(size, first, step, start, stride, taps, phase.weights.reshape(outputs, height * width, depth), bias)


def _grid(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """int64[rows * columns, 2]: every pair of a row and a column; the column varies fastest."""
    return np.stack(np.meshgrid(rows, columns, indexing="ij"), axis=-1).reshape(-1, 2).astype(np.int64)


def _within(phase: Phase, image: tuple[int, ...]) -> Phase:
    """The phase without the taps that are outside the image for every pixel; pixels begin at a single tap if one is
    left."""
    if _meets(phase, image, np.array([[OUTSIDE, OUTSIDE]])).any():
        raise CompileError(f"there are zeros {-OUTSIDE} rows and columns around the image, expected fewer")
    seen = _meets(phase, image, phase.taps)
    taps = phase.taps[seen]
    if taps.size and np.abs(taps).max() > -OUTSIDE - 1:
        raise CompileError(
            f"a kernel reaches over {np.abs(taps).max()} rows or columns, expected at most {-OUTSIDE - 1}"
        )
    weights = np.ascontiguousarray(phase.weights[:, seen])
    if len(taps) != 1:
        return replace(phase, taps=taps, weights=weights)
    start = phase.start[0] + int(taps[0, 0]), phase.start[1] + int(taps[0, 1])
    return replace(phase, start=start, taps=np.zeros_like(taps), weights=weights)


def _meets(phase: Phase, image: tuple[int, ...], taps: np.ndarray) -> np.ndarray:
    """bool[T]: whether each of the taps, int64[T, 2], lies inside the image for some pixel of the phase."""
    first = taps + phase.start
    turn = np.maximum(0, -(first // phase.stride))  # the first pixel for which a tap is not before the image
    return np.asarray(((turn < phase.size) & (first + turn * phase.stride < image[1:3])).all(axis=1))
