"""Device code of Contract on tensor cores, of floats by precision "float16", "bfloat16" or "tf32", or of 8-bit
integers: copy tiles of K, multiply them, combine, store.

Tiles of data and weights lie one after another in a ring of slots in shared memory. The sums go through shared memory
too: there the sums of warps that split K are added up, and each thread finishes runs of neighbouring channels with wide
accesses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.code.element import Element
from jitdelegate.targets.cuda.code.gpu import Gpu
from jitdelegate.targets.cuda.code.sizes import Kind
from jitdelegate.targets.cuda.multiply import mma_tile
from jitdelegate.targets.cuda.multiply.fragments import Fragments, WarpTile
from jitdelegate.targets.cuda.multiply.mma_tile import Tile, packed
from jitdelegate.targets.cuda.multiply.tensor_core import STEP, Operand, Swizzle, check_operand
from jitdelegate.targets.cuda.walks.contract_kernel import ContractArguments, ContractKernel, ContractTemplate


@dataclass(frozen=True, eq=False, slots=True)
class Mma(ContractTemplate):
    """A product of pixels by channels, on tensor cores.

    Attributes:
        has_async_copy: whether the GPU has cp.async and whole mma steps.
        has_halo: whether pixels outside the image are not zeros.
        has_filter_zero: whether a zero point is subtracted from the weights, four of which are the last argument.
    """

    family: ClassVar[str] = "contract_mma"
    uses_tensor_cores: ClassVar[bool] = True
    tile: Tile
    operand: Operand
    has_async_copy: bool
    has_halo: bool
    has_filter_zero: bool

    @property
    def sums(self) -> Element:
        return self.operand.sums

    @property
    def stored(self) -> Element:
        return self.operand.element

    @property
    def way(self) -> str:
        return self.operand.value

    @property
    def halos(self) -> int:
        return int(self.has_halo)

    @property
    def more(self) -> tuple[Kind, ...]:
        return ("int32",) * self.has_filter_zero

    @property
    def steps(self) -> int:
        return self.tile.row_bytes // self.stored.nbytes

    @property
    def unit_bytes(self) -> int:
        """Bytes of a chunk of the table in shared memory."""
        return self.width * self.operand.element.nbytes

    @property
    def is_asynchronous(self) -> bool:
        """Whether data is copied unchanged by cp.async; otherwise it goes through registers."""
        return self.has_async_copy and not self.converts and not self.converts_weights and self.unit_bytes >= 4

    @property
    def converts(self) -> bool:
        """Whether data is stored in another type than tensor cores read."""
        return self.source is not self.operand.element

    @property
    def layout(self) -> Swizzle:
        return Swizzle(self.tile.row_bytes)

    def packed(self, matrices: np.ndarray) -> Iterable[np.ndarray]:
        return [packed(matrices, self.tile, self.operand)]

    @property
    def combine_cycles(self) -> int:
        return mma_tile.COMBINE_CYCLES

    def check(self, gpu: Gpu) -> None:
        check_operand(gpu, self.operand)

    def cycles(self, gpu: Gpu, parts: int, pixels: int, outputs: int, steps: int, groups: int) -> float:
        k_bytes = steps * self.stored.nbytes
        return self.tile.cycles(gpu, parts, pixels, outputs, k_bytes, groups, self.unit_bytes)

    def write(self, code: Code, *arguments: Any) -> None:
        MmaKernel(code, self, ContractArguments.of(arguments)).write()


class MmaKernel(ContractKernel):
    """Writes the kernel of one template."""

    template: Mma
    multiply: WarpTile

    def locate(self) -> None:
        template, tile, (down, across, slices) = self.template, self.tile, self.tile.warps
        lane, warp = self.thread & 31, self.thread >> 5
        self.slice, within = warp // (down * across), warp % (down * across)
        rows, columns, steps = tile.rows // down, tile.columns // across, tile.row_bytes // STEP // slices
        row, column = within // across * rows, within % across * columns
        fragments = Fragments(self.code, template.operand, lane, template.has_async_copy)
        own = WarpTile.of(fragments, template.layout, (rows, columns, steps), row, column, self.slice)
        self.multiply = replace(own, zero=self.arguments.more[-1]) if template.has_filter_zero else own
        self.finished = template.run

    def write(self) -> None:
        self._finish(self.multiply.centred(self.all_sums()))

    def swizzled(self, row: Value, column: Value) -> Value:
        mask = int(min(3, self.tile.columns // 8 - 1))
        return column ^ ((row & mask) << 3)

    def step(
        self, sums: Sequence[Value], slot: Value, copy: Callable[[], None], advance: Callable[[], None]
    ) -> list[Value]:
        added = self.accumulate(sums, slot, copy)
        advance()
        return added

    def through_registers(self) -> list[Value]:
        code, rows, first = self.code, self.rows(), self.code.integer(0)
        entries, weights = self.data.entries(self.first), self.weights.fetch(first)
        code.await_launches()
        self.put(self.data.fetch(rows, entries), weights, self.shared)
        initial = [code.integer(0), *self.multiply.nothing()]
        with code.carried(self.tiles, initial, start=1) as (tile, now, following):
            code.barrier()
            data, weights = self.data.fetch(rows, self.data.entries(self.first + tile)), self.weights.fetch(tile)
            following[1:] = self.accumulate(now[1:], self.shared + now[0])
            following[0] = self.next_slot(now[0])
            self.put(data, weights, self.shared + following[0])
        code.barrier()
        return self.accumulate(following[1:], self.shared + following[0])
