"""Which element of a matrix lies where in the registers of a warp, after the PTX manual's matrix fragment tables.

The manual gives, for lane l, groupID = l >> 2 and threadID_in_group = l % 4, and for element i of the fragment a row
and a column. `Layout` turns such a rule into an index table: element [row, column] of the matrix is number
`table[row, column]` of the fragment, counted as (register, lane, part of the register).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.gpu.simulator.types import Array

GROUP = np.arange(32) >> 2
IN_GROUP = np.arange(32) & 3
Place = Callable[[int], tuple[Array, Array]]


class Layout:
    """Matrix [rows, columns] <-> `registers` registers of 32 lanes with `parts` elements each."""

    def __init__(self, rows: int, columns: int, registers: int, parts: int, place: Place) -> None:
        self.shape, self.registers, self.parts = (rows, columns), registers, parts
        self.table = np.full(rows * columns, -1)
        for element in range(registers * parts):
            row, column = place(element)
            register, part = divmod(element, parts)
            self.table[row * columns + column] = (register * 32 + np.arange(32)) * parts + part
        assert sorted(self.table.tolist()) == list(range(rows * columns)), "the rule must fill the matrix exactly"
        self.inverse = np.argsort(self.table)

    def gather(self, fragments: Array) -> Array:
        """[warp, register, lane, part] -> matrices [warp, row, column]."""
        return fragments.reshape(len(fragments), -1)[:, self.table].reshape(-1, *self.shape)

    def scatter(self, matrices: Array) -> Array:
        """Matrices [warp, row, column] -> [warp, register, lane, part]."""
        flat = matrices.reshape(len(matrices), -1)[:, self.inverse]
        return flat.reshape(-1, self.registers, 32, self.parts)


def a_layout(rows: int, depth: int, bits: int) -> Layout:
    """The A fragment of mma.m16n8k* and m8n8k16, for elements of 8, 16 or 32 bits."""
    parts = 32 // bits
    registers = rows * depth // (32 * parts)

    def place(i: int) -> tuple[Array, Array]:
        register, part = divmod(i, parts)
        # registers go down 8 rows first, then right by four lanes' worth of elements
        down, right = (register % 2, register // 2) if rows == 16 else (0, register)
        return GROUP + 8 * down, IN_GROUP * parts + part + 4 * parts * right

    return Layout(rows, depth, registers, parts, place)


def b_layout(depth: int, bits: int) -> Layout:
    """The B fragment [depth, 8]: registers go down four lanes' worth of elements each."""
    parts = 32 // bits
    registers = depth * 8 // (32 * parts)

    def place(i: int) -> tuple[Array, Array]:
        register, part = divmod(i, parts)
        return IN_GROUP * parts + part + 4 * parts * register, GROUP

    return Layout(depth, 8, registers, parts, place)


def c_layout(rows: int) -> Layout:
    """The accumulators: c0, c1 in row groupID, c2, c3 eight rows below."""

    def place(i: int) -> tuple[Array, Array]:
        return GROUP + 8 * (i // 2), IN_GROUP * 2 + (i & 1)

    return Layout(rows, 8, rows // 4, 1, place)
