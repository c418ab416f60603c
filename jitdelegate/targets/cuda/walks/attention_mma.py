"""Attention on tensor cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.code.element import Element, pack
from jitdelegate.targets.cuda.multiply.fragments import FRAGMENT, WIDTH, Fragments
from jitdelegate.targets.cuda.multiply.tensor_core import STEP, Operand, SharedLines
from jitdelegate.targets.cuda.walks.attention_kernel import AttentionKernel, Rows
from jitdelegate.targets.cuda.walks.attention_template import WARP_ROWS, AttentionTemplate


@dataclass(frozen=True, eq=False, slots=True)
class MmaAttention(AttentionTemplate):
    """A warp has 16 rows and all keys of a tile. Its scores lie in registers as the left operand of the second product
    needs them."""

    family: ClassVar[str] = "attention_mma"
    uses_tensor_cores: ClassVar[bool] = True
    thread_rows: ClassVar[int] = 2
    other_registers: ClassVar[int] = 64
    operand: Operand

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

    def __init__(self, code: Code, template: MmaAttention, *arguments: Any) -> None:
        super().__init__(code, template, *arguments)
        self.shape = template
        self.fragments = Fragments(code, template.operand, self.lane, template.has_async_copy)
        first = self.warp * WARP_ROWS
        zero = code.integer(0)
        self.scores = self.fragments.held(first, zero, WARP_ROWS, template.tile.keys)
        self.held = self.fragments.held(first, zero, WARP_ROWS, template.columns)
        pitch = template.query_pitch
        self.own_queries = SharedLines(self.queries + first * pitch, pitch, turned=False)
        self.key_lines = SharedLines(self.key_address, template.key_tile.pitch, turned=not template.key.by_key)
        self.value_lines = SharedLines(self.value_address, template.value_tile.pitch, turned=template.value.by_key)

    def _scores(self) -> list[Value]:
        shape, fragments = self.shape, self.fragments
        sums = [self.code.real(0.0)] * (shape.tile.keys // 2)
        for number in range(0, shape.depth, STEP // shape.stored.nbytes):
            left = fragments.left(self.own_queries, 0, number)
            for key in range(0, shape.tile.keys, WIDTH):
                fragments.add(sums, [left], [fragments.right(self.key_lines, key, number)], key // FRAGMENT)
        return sums

    def _weighted(self, sums: Sequence[Value], powers: Rows) -> list[Value]:
        """Weights are left operands as they are. Those of tf32 are in another order: number k of a fragment is key 2k
        for k < 4, and else key 2k - 7; the values are read in that order too."""
        totals, shape = list(sums), self.shape
        for key in range(0, shape.tile.keys, STEP // shape.stored.nbytes):
            left = self._left(powers, key)
            for column in range(0, shape.columns, WIDTH):
                values = self.fragments.right(self.value_lines, column, key, paired=True)
                self.fragments.add(totals, [left], [values], column // FRAGMENT)
        return totals

    def _left(self, powers: Rows, key: int) -> list[Value]:
        """The weights of a step from `key` on."""
        at = key // FRAGMENT * 2
        if self.shape.operand is Operand.TF32:
            return self.fragments.rounded([row[at + one] for one in range(2) for row in powers])
        pairs = [row[at + 2 * half : at + 2 * half + 2] for half in range(2) for row in powers]
        return [pack(self.code, self.shape.stored, pair)[0] for pair in pairs]
