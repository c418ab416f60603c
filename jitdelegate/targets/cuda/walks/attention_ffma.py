"""Attention with float32 multiply-adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.code.element import Element
from jitdelegate.targets.cuda.multiply.quads import QUAD, Quads, add, held
from jitdelegate.targets.cuda.walks.attention_kernel import AttentionKernel, Rows
from jitdelegate.targets.cuda.walks.attention_template import FLOAT, WARP_ROWS, AttentionTemplate

THREAD_ROWS = 4
ACROSS = 8
"""Threads that share rows."""
STEP = 8
"""Numbers of a query that one turn of the loop multiplies."""


@dataclass(frozen=True, eq=False, slots=True)
class FfmaAttention(AttentionTemplate):
    """A warp is 4 by 8 threads. A thread has every fourth row; of the keys every eighth, or four in every 32, whichever
    are lines or neighbours in shared memory, and of the columns as well."""

    family: ClassVar[str] = "attention_ffma"
    stored: ClassVar[Element] = Element.FLOAT32
    thread_rows: ClassVar[int] = THREAD_ROWS
    other_registers: ClassVar[int] = 88

    @property
    def sums(self) -> int:
        return THREAD_ROWS * self.columns // ACROSS

    @property
    def weight_pitch(self) -> int:
        """Bytes between rows of weights in shared memory."""
        return (self.tile.keys + QUAD) * FLOAT

    @property
    def slice_bytes(self) -> int:
        loaded = self.key_tile.nbytes + self.value_tile.nbytes
        return loaded + self.tile.rows * self.weight_pitch

    def write(self, code: Code, *arguments: Any) -> None:
        FfmaAttentionKernel(code, self, *arguments).write()


class FfmaAttentionKernel(AttentionKernel):
    """Writes the kernel. The weights of a warp's rows go through shared memory, from the threads that computed them to
    those that share the rows."""

    lanes = ACROSS

    def __init__(self, code: Code, template: FfmaAttention, *arguments: Any) -> None:
        super().__init__(code, template, *arguments)
        self.shape = template
        number, group = self.lane & (ACROSS - 1), self.lane // ACROSS
        key, value, tile = template.key, template.value, template.tile

        def rows(pitch: int) -> Quads:
            return Quads.of(code, group, WARP_ROWS // THREAD_ROWS, THREAD_ROWS, pitch, turned=False)

        def columns(count: int, pitch: int, *, turned: bool) -> Quads:
            return Quads.of(code, number, ACROSS, count // ACROSS, pitch, turned=turned)

        self.of_scores = (
            rows(template.query_pitch),
            columns(tile.keys, template.key_tile.pitch, turned=not key.by_key),
        )
        self.of_values = (
            rows(template.weight_pitch),
            columns(template.columns, template.value_tile.pitch, turned=value.by_key),
        )
        first = self.warp * WARP_ROWS
        self.scores, self.held = (held(*sides, first) for sides in (self.of_scores, self.of_values))
        self.own_queries = self.queries + first * template.query_pitch
        weights = self.value_address + template.value_tile.nbytes
        self.weights = weights + first * template.weight_pitch

    def _scores(self) -> list[Value]:
        code, initial = self.code, [self.code.real(0.0)] * (THREAD_ROWS * len(self.keys))
        tiles = self.own_queries, self.key_address
        with code.carried(self.shape.depth, initial, step=STEP) as (at, now, following):
            following[:] = add(now, *self.of_scores, tiles, [at + step for step in range(0, STEP, QUAD)])
        return following

    def _weighted(self, sums: Sequence[Value], powers: Rows) -> list[Value]:
        code, pitch, left = self.code, self.shape.weight_pitch, self.of_values[0]
        start = self.weights + left.first * pitch
        for row, values in zip(left.starts, powers, strict=True):
            for at in range(0, len(values), self.neighbours):
                code.store(values[at : at + self.neighbours], start + self.keys[at] * FLOAT, row * pitch)
        code.warp_barrier()
        with code.carried(self.shape.tile.keys, sums, step=QUAD) as (key, now, following):
            following[:] = add(now, *self.of_values, (self.weights, self.value_address), [key])
        return following
