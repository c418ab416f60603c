"""Weights as they lie in memory, as wide as they were in the file: floats, bytes, or two int4 in each byte. Beside
floats they become floats on the way to shared memory or to registers.

In rows for GEMV, eight neighbouring int4 are a word. A mask makes four of them bytes, times 16, for sums of integers.
Where parts of a row have scales of their own, a lane multiplies by the scale what it added up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from jitdelegate.ir.dequantize import is_half, on_grid
from jitdelegate.targets.cuda.code.device_code import Value
from jitdelegate.targets.cuda.code.element import OWN, Element
from jitdelegate.targets.cuda.code.narrow_integers import are_int4, pairs_of_int4
from jitdelegate.targets.cuda.code.writer import STORED, Writer
from jitdelegate.targets.cuda.multiply.tensor_core import Operand
from jitdelegate.targets.cuda.sources.conv_problem import ConvProblem

EACH, HIGH_HALVES = 8, 0xF0F0F0F0 - (1 << 32)
SCALES = {Element.FLOAT16: np.float16, Element.FLOAT32: np.float32}


@dataclass(frozen=True)
class Rows:
    """A problem's weights.

    Attributes:
        numbers: [output channels, K], float32 or integers; int8 if `is_packed`.
        element: how numbers are stored; of `is_packed`, two are in a byte.
        scales: f32[output channels, parts]; None where a row has no scale, or an epilogue multiplies by it.
    """

    numbers: np.ndarray
    element: Element
    is_packed: bool = False
    scales: np.ndarray | None = None

    def stored(self, numbers: np.ndarray) -> np.ndarray:
        """Some rows, padded to multiples of eight, in the form that lanes read."""
        if self.element.is_narrow_float:
            return Operand(self.element.value).rounded(numbers)
        return pairs_of_int4(numbers, EACH) if self.is_packed else numbers

    @property
    def scale(self) -> Element | None:
        """How scales are stored."""
        return None if self.scales is None else Element.FLOAT16 if is_half(self.scales) else Element.FLOAT32

    @property
    def part_bits(self) -> int:
        """Binary logarithm of the length of a part."""
        return 0 if self.scales is None else (self.numbers.shape[1] // self.scales.shape[1]).bit_length() - 1


def rows_of(writer: Writer, problem: ConvProblem) -> Rows:
    """The weights of a problem of one phase."""
    (phase,) = problem.phases
    numbers = phase.weights.reshape(problem.outputs, phase.steps)
    if numbers.dtype != np.float32:
        is_packed = are_int4(numbers) and (problem.sums is Element.FLOAT32 or _fit_sixteenfold(numbers))
        return Rows(numbers, OWN[str(numbers.dtype)], is_packed)
    parted = _parts(writer, problem, numbers)
    if parted is not None:
        return parted
    element = STORED[writer.precision]
    return Rows(numbers, Element.FLOAT16 if element is Element.FLOAT32 and is_half(numbers) else element)


def _parts(writer: Writer, problem: ConvProblem, numbers: np.ndarray) -> Rows | None:
    """Weights whose rows consist of parts with scales of their own; None for others, or for parts of odd lengths."""
    grid = writer.graph.tensors[problem.node.inputs[1]].grid
    pair = None if grid is None else on_grid(numbers, grid)
    if pair is None or pair[1].shape[1] == 1:
        return None
    whole, scales = pair
    length = whole.shape[1] // scales.shape[1]
    is_packed = are_int4(whole)
    return Rows(whole, Element.INT8, is_packed, scales) if length & (length - 1) == 0 and length >= 16 else None


def _fit_sixteenfold(numbers: np.ndarray) -> bool:
    """Whether no sum of products with bytes overflows 32 bits where all products are 16 times as large."""
    return int(np.abs(numbers).sum(axis=1, dtype=np.int64).max()) * 256 * 16 < 1 << 31


def sixteenfold(word: Value) -> list[Value]:
    """A word of int4 as two words of bytes, each number times 16."""
    return [word << 4 & HIGH_HALVES, word & HIGH_HALVES]


def with_stored_weights(writer: Writer, problem: ConvProblem) -> ConvProblem:
    """The problem with weights as they lie in memory, which is narrower where that pays."""
    if problem.sums is not Element.FLOAT32:
        return problem
    if all(are_int4(phase.weights) for phase in problem.phases):
        return replace(problem, are_packed=True)
    is_wide = problem.weights is STORED[writer.precision] is Element.FLOAT32
    if not is_wide or not _pays(writer, problem) or not is_half(writer.array(problem.node.inputs[1])):
        return problem
    phases = (replace(phase, weights=phase.weights.astype(np.float16)) for phase in problem.phases)
    return replace(problem, phases=tuple(phases))


def _pays(writer: Writer, problem: ConvProblem) -> bool:
    """Whether fewer bytes outweigh that weights go through registers: always where float32 does so too, elsewhere where
    weights are most of what a launch reads and writes, so that few pixels meet them."""
    weights = sum(phase.weights.nbytes for phase in problem.phases)
    tensors = problem.data, problem.output
    moved = sum(writer.graph.tensors[index].size * writer.element(index).nbytes for index in tensors)
    return not writer.gpu.has_async_copy or weights >= moved
