"""Panels: the matrix that data are multiplied by, as register tiles read it.

A panel is up to four vectors of output channels: [bias][scales][steps of K][vectors * lanes][channels of a step]. There
is a line of scales for each part of K that has its own. Panels of constants are packed when the model is compiled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from jitdelegate.targets.cpu.code.kernel import Generator, split
from jitdelegate.targets.cpu.code.vector_ir import Value
from jitdelegate.targets.cpu.multiply.products import QUAD, Products


class PanelLines(Protocol):
    """A panel that a register tile reads line by line."""

    def lines(self, at: Value, steps: int) -> Iterator[list[Sequence[Value]]]:
        """The weights of all vectors at each of the next steps."""
        ...

    def nbytes(self, steps: int) -> int:
        """Bytes of so many steps, a quad or one."""
        ...


@dataclass(frozen=True)
class PackedLines:
    """The lines of a packed panel, which begins at `at`."""

    products: Products
    vectors: int
    at: Value

    def head(self, number: Value | int) -> list[Value]:
        """A number of each channel, from a line at the panel's beginning."""
        products, vectors = self.products, self.vectors
        at = self.at + number * (vectors * products.bias_bytes)
        return [at.function.load(products.result_type, at + v * products.bias_bytes, 64) for v in range(vectors)]

    def start(self, heads: Value | int) -> Value:
        """The first weights, after so many lines at the beginning."""
        return self.at + heads * (self.vectors * self.products.bias_bytes)

    def lines(self, at: Value, steps: int) -> Iterator[list[Sequence[Value]]]:
        return self.products.lines(at.function, at, self.vectors, steps)

    def nbytes(self, steps: int) -> int:
        return self.vectors * self.products.line_bytes(steps)


@dataclass(frozen=True)
class MatrixLines:
    """Columns of a matrix of floats that lies in memory by rows, `row` bytes apart; the last vector is read with
    `mask`."""

    type_: str
    vectors: int
    row: int
    vector_bytes: int
    mask: Value | None

    def lines(self, at: Value, steps: int) -> Iterator[list[Sequence[Value]]]:
        f, last = at.function, self.vectors - 1
        for k in range(steps):
            line = at + k * self.row
            yield [
                [f.load_masked(self.type_, line + v * self.vector_bytes, self.mask if v == last else None)]
                for v in range(self.vectors)
            ]

    def nbytes(self, steps: int) -> int:
        return steps * self.row


def panel_widths(products: Products, outputs: int) -> list[tuple[int, int]]:
    """Nearly equal panels of `outputs` channels: [(vectors, number of panels)]."""
    return split(-(-outputs // products.lanes), len(products.rows))


def pack(
    generator: Generator,
    products: Products,
    steps: np.ndarray,
    order: np.ndarray,
    quads: int,
    bias: np.ndarray | None = None,
    scales: np.ndarray | None = None,
) -> int:
    """Panels of weights [O, steps, channels of a step], scales [O, blocks] and bias [O]; their offset.

    Args:
        order: of the steps; those of `quads` quads come first.
    """
    in_order = np.array_equal(order, np.arange(len(order)))
    widths = panel_widths(products, len(steps))

    def panels() -> Iterator[np.ndarray]:
        first = 0
        for vectors in (vectors for vectors, count in widths for _ in range(count)):
            width = vectors * products.lanes
            rows = slice(first, first + width)
            weights = steps[rows].swapaxes(0, 1) if in_order else steps[rows].swapaxes(0, 1)[order]
            panel = np.zeros((len(order), width, products.channels), products.stored)
            panel[:, : weights.shape[1]] = weights
            line = np.zeros(width, products.accumulator)
            if bias is not None:
                line[: len(bias[rows])] = bias[rows]
            factors = np.zeros((products.scales, width), np.float32)
            if scales is not None:
                factors[:, : len(scales[rows])] = scales[rows].T
            parts = [line, factors, products.arranged(panel, quads)]
            size = products.panel_bytes(vectors, quads, len(order) - quads * QUAD)
            parts.append(np.zeros(size - sum(part.nbytes for part in parts), np.uint8))
            yield from (part for part in parts if part.size)
            first += width

    sources = [steps, order, *(each for each in (bias, scales) if each is not None)]
    return generator.weights.pack(("panels", products.key, *widths), sources, panels)
