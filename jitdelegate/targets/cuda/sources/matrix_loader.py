"""Loads tiles of K of a matrix computed at run time, through registers to shared memory; the part of one thread."""

from __future__ import annotations

from dataclasses import dataclass

from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.code.element import Element, load_where

Units = list[list[list[Value]]]
"""Values that a thread fetches, indexed by unit, line and step."""


@dataclass(frozen=True, slots=True)
class Side:
    """The memory layout of one operand's matrices; its lines are the rows or columns of the product.

    Attributes:
        along_depth: True if the steps of a line are neighbours in memory, False if the lines of a step are.
        width: elements of one access; it divides the number of steps or lines that are contiguous.
    """

    element: Element
    along_depth: bool
    width: int


@dataclass(frozen=True, slots=True)
class MatrixTile:
    """How threads divide a tile: each thread loads some units, which are a few lines by a few steps.

    Attributes:
        lines, steps: size of a tile.
        unit_steps: steps of a unit; a multiple of the side's width where steps are neighbours.
    """

    side: Side
    lines: int
    steps: int
    unit_steps: int
    threads: int

    @property
    def unit_lines(self) -> int:
        return 1 if self.side.along_depth else self.side.width

    @property
    def units(self) -> int:
        """Number of units per thread."""
        units = self.lines // self.unit_lines * (self.steps // self.unit_steps)
        assert units % self.threads == 0, self
        return units // self.threads

    def place(self, thread: Value, number: int) -> tuple[Value, Value]:
        """The first line and the first step of a thread's unit; neighbouring threads read neighbouring units."""
        place = thread + number * self.threads
        if self.side.along_depth:
            across = self.steps // self.unit_steps
            return place // across, place % across * self.unit_steps
        across = self.lines // self.unit_lines
        return place % across * self.unit_lines, place // across * self.unit_steps


class MatrixLoader:
    """A thread's part of every tile.

    Args:
        start: index of the matrix's first element.
        first: number of the tile's first line.
        count, depth: lines and steps of the whole matrix.
        pitch: elements between lines if steps are neighbours in memory, else between steps.
    """

    def __init__(
        self,
        code: Code,
        shape: MatrixTile,
        thread: Value,
        data: Value,
        start: Value,
        first: Value,
        count: Value,
        depth: Value,
        pitch: Value,
    ) -> None:
        self.code, self.shape, self.data, self.depth, self.pitch = code, shape, data, depth, pitch
        self.places = [shape.place(thread, number) for number in range(shape.units)]
        self.inside = [first + line < count for line, _ in self.places]
        self.starts = [start + self._index(first + line, step) for line, step in self.places]

    def _index(self, line: Value, step: Value) -> Value:
        return line * self.pitch + step if self.shape.side.along_depth else step * self.pitch + line

    def fetch(self, tile: Value) -> Units:
        """The values of each unit, line and step as float32; zeros outside the matrix."""
        return [self._unit(number, tile * self.shape.steps) for number in range(self.shape.units)]

    def _unit(self, number: int, passed: Value) -> list[list[Value]]:
        shape, width = self.shape, self.shape.side.width
        step = self.places[number][1] + passed
        if shape.side.along_depth:
            start, every = self.starts[number] + passed, range(0, shape.unit_steps, width)
            return [[value for at in every for value in self._run(number, start + at, step + at)]]
        start = self.starts[number] + passed * self.pitch
        rows = [self._run(number, start + self.pitch * at, step + at) for at in range(shape.unit_steps)]
        return [list(line) for line in zip(*rows, strict=True)]

    def _run(self, number: int, index: Value, step: Value) -> list[Value]:
        side, inside = self.shape.side, self.inside[number] & (step < self.depth)
        return load_where(self.code, side.element, inside, self.data, index, side.width)
