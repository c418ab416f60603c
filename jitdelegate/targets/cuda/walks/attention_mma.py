"""Attention on tensor cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from jitdelegate.targets.cuda.code.device_code import F32, Code, Value
from jitdelegate.targets.cuda.code.element import Element, pack
from jitdelegate.targets.cuda.multiply.fragments import FRAGMENT, WIDTH, Fragments
from jitdelegate.targets.cuda.multiply.tensor_core import STEP, Operand
from jitdelegate.targets.cuda.walks.attention_kernel import AttentionKernel, Rows
from jitdelegate.targets.cuda.walks.attention_template import FLOAT, WARP_ROWS, AttentionTemplate


@dataclass(frozen=True, eq=False, slots=True)
class MmaAttention(AttentionTemplate):
    """A warp has 16 rows and all keys of a tile. Its scores lie in registers as the left operand of the second product
    needs them.

    Attributes:
        whole_steps: as in `tensor_core.multiply`.
    """

    family: ClassVar[str] = "attention_mma"
    uses_tensor_cores: ClassVar[bool] = True
    thread_rows: ClassVar[int] = 2
    other_registers: ClassVar[int] = 64
    operand: Operand
    whole_steps: bool

    @property
    def stored(self) -> Element:
        return self.operand.element

    @property
    def sums(self) -> int:
        return self.columns // 2

    def write(self, code: Code, *arguments: Any) -> None:
        MmaAttentionKernel(code, self, *arguments).write()


class MmaAttentionKernel(AttentionKernel):
    """Writes the kernel."""

    lanes = 4
    neighbours = 2

    def __init__(self, code: Code, template: MmaAttention, *arguments: Any) -> None:
        super().__init__(code, template, *arguments)
        self.shape = template
        self.fragments = Fragments(code, template.operand, self.lane, template.whole_steps)
        first = self.warp * WARP_ROWS
        self.rows = [self.first_row + first + self.fragments.down + half for half in (0, FRAGMENT)]
        self.keys = self._columns(template.tile.keys)
        self.own_queries = self.queries + first * template.query_pitch

    def _columns(self, count: int) -> list[Value]:
        """The columns of a row that a thread holds."""
        return [self.fragments.across * 2 + (at + one) for at in range(0, count, FRAGMENT) for one in range(2)]

    def _scores(self) -> Rows:
        shape, fragments = self.shape, self.fragments
        sums = [self.code.real(0.0)] * (shape.tile.keys // 2)
        pitch, item = shape.key_tile.pitch, shape.stored.nbytes
        for number in range(0, shape.depth, STEP // item):
            left = fragments.left(self.own_queries, shape.query_pitch, number)
            for key in range(0, shape.tile.keys, WIDTH):
                if shape.key.by_key:
                    right = fragments.right(self.key_place + key * pitch, pitch, number)
                else:
                    right = fragments.right_turned(self.key_place + key * item, pitch, number)
                fragments.multiply(sums, key // FRAGMENT, left, right)
        return [[sums[at + 2 * row + one] for at in range(0, len(sums), 4) for one in range(2)] for row in range(2)]

    def _weighted(self, sums: Sequence[Value], powers: Rows) -> list[Value]:
        """Weights are left operands as they are. Those of tf32 are in another order: number k of a fragment is key 2k
        for k < 4, and else key 2k - 7; the values are read in that order too."""
        found, shape = list(sums), self.shape
        for key in range(0, shape.tile.keys, STEP // shape.stored.nbytes):
            left = self._left(powers, key)
            for column in range(0, shape.columns, WIDTH):
                self.fragments.multiply(found, column // FRAGMENT, left, self._values(key, column))
        return found

    def _left(self, powers: Rows, key: int) -> list[Value]:
        """The weights of a step from `key` on."""
        at = key // FRAGMENT * 2
        if self.shape.operand is Operand.TF32:
            return self.fragments.rounded([row[at + one] for one in range(2) for row in powers])
        pairs = [row[at + 2 * half : at + 2 * half + 2] for half in range(2) for row in powers]
        return [pack(self.code, self.shape.stored, pair)[0] for pair in pairs]

    def _values(self, key: int, column: int) -> list[Value]:
        """The right operand of a step from `key` on, for 16 columns."""
        shape, fragments = self.shape, self.fragments
        pitch, item = shape.value_tile.pitch, shape.stored.nbytes
        if shape.value.by_key:
            base = self.value_place + column * item
            if shape.operand is not Operand.TF32:
                return fragments.right_turned(base, pitch, key)
            return fragments.singles(base + key * pitch, pitch, [fragments.across * 2, fragments.across * 2 + 1])
        base = self.value_place + column * pitch
        if shape.operand is not Operand.TF32:
            return fragments.right(base, pitch, key)
        start = base + fragments.down * pitch + fragments.across * (2 * FLOAT) + key * FLOAT
        places = (0, FRAGMENT * pitch)
        return fragments.rounded([one for at in places for one in self.code.load(start, at, F32, 2)])

    def _row_of(self, at: int) -> int:
        return at % 4 // 2

    def _results(self) -> list[tuple[int, Value, list[int]]]:
        columns = self._columns(self.shape.columns)
        return [
            (row, columns[fragment * 2], [4 * fragment + 2 * row, 4 * fragment + 2 * row + 1])
            for fragment in range(self.shape.columns // FRAGMENT)
            for row in range(2)
        ]
