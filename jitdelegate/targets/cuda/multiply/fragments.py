"""Operands of tensor cores from tiles in shared memory that lie as their matrices do in memory, in either order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.multiply.tensor_core import CHUNK, Operand, load_matrices, multiply, rounded

FRAGMENT = 8
"""Columns of a fragment of sums."""
WIDTH = 16
"""Rows of a left operand, and columns of the two right operands that are loaded at once."""
FLOAT = 4


@dataclass(frozen=True, slots=True)
class Fragments:
    """Loads and multiplies operands of one K step: 16 halves, or 8 tf32, of 16 rows or columns.

    In the functions below, `base` is the shared address of the first row or column, and `number` the first number of
    the step. `pitch` are bytes between lines. Where the tile is `turned`, lines are numbers, not rows or columns.

    Attributes:
        lane: number of this thread in its warp.
        whole_steps: as in `tensor_core.multiply`.
    """

    code: Code
    operand: Operand
    lane: Value
    whole_steps: bool

    @property
    def item(self) -> int:
        """Bytes of a number."""
        return self.operand.element.nbytes

    @property
    def down(self) -> Value:
        """The row of a left operand, or the column of a right one, that this thread holds; of eight."""
        return self.lane >> 2

    @property
    def across(self) -> Value:
        """The number that this thread holds, of four."""
        return self.lane & 3

    def left(self, base: Value, pitch: int, number: int) -> list[Value]:
        """16 rows."""
        start = base + (self.lane & 15) * pitch + (self.lane >> 4) * CHUNK
        return self.rounded(load_matrices(self.code, start + number * self.item))

    def left_turned(self, base: Value, pitch: int, number: int) -> list[Value]:
        """16 rows of a turned tile."""
        if self.operand is Operand.TF32:
            start = base + self.across * pitch + self.down * FLOAT + number * pitch
            places = [far * pitch + row * FLOAT for far in (0, 4) for row in (0, FRAGMENT)]
            return self.rounded([self.code.load(start, at)[0] for at in places])
        line = (self.lane & 7) + ((self.lane >> 4) << 3)
        start = base + line * pitch + ((self.lane >> 3) & 1) * CHUNK
        return load_matrices(self.code, start + number * pitch, transposed=True)

    def right(self, base: Value, pitch: int, number: int) -> list[Value]:
        """16 columns."""
        line = (self.lane & 7) + ((self.lane >> 4) << 3)
        start = base + line * pitch + ((self.lane >> 3) & 1) * CHUNK
        return self.rounded(load_matrices(self.code, start + number * self.item))

    def right_turned(self, base: Value, pitch: int, number: int) -> list[Value]:
        """16 columns of a turned tile."""
        if self.operand is Operand.TF32:
            return self.singles(base + number * pitch, pitch, [self.across, self.across + 4])
        start = base + (self.lane & 15) * pitch + (self.lane >> 4) * CHUNK
        return load_matrices(self.code, start + number * pitch, transposed=True)

    def singles(self, base: Value, pitch: int, lines: Sequence[Value]) -> list[Value]:
        """16 columns of a turned tile of tf32, whose two numbers of this thread are on `lines`, one by one."""
        starts = [base + line * pitch + self.down * FLOAT for line in lines]
        places = (0, FRAGMENT * FLOAT)
        return self.rounded([self.code.load(start, at)[0] for at in places for start in starts])

    def rounded(self, registers: list[Value]) -> list[Value]:
        """The numbers as tensor cores take them."""
        return rounded(self.code, self.operand, registers)

    def multiply(self, sums: list[Value], first: int, left: Sequence[Value], right: Sequence[Value]) -> None:
        """Adds the products with 16 columns to two fragments of four sums each, from fragment number `first` on."""
        for half in range(2):
            place = slice((first + half) * 4, (first + half) * 4 + 4)
            columns = right[2 * half : 2 * half + 2]
            sums[place] = multiply(self.code, self.operand, left, columns, sums[place], whole_steps=self.whole_steps)
