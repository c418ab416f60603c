"""Building blocks of kernels on tensor cores: tiles in shared memory, copies to them, and one warp's multiplication.

A tile has rows of 64, 128 or 256 bytes of K. The 16-byte chunks of a row are swizzled, so that the eight rows of a
matrix that `ldmatrix` reads lie in different banks, and so do the rows that a warp writes. A K step is 32 bytes of
every row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from jitdelegate.errors import CompileError
from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.code.element import Element
from jitdelegate.targets.cuda.code.gpu import Gpu

CHUNK = 16
"""Bytes of a row that stay together when the row is swizzled."""
STEP = 32
"""Bytes of K in one step: two chunks, 16 halves or 8 tf32."""


class Operand(Enum):
    """The type of the numbers that tensor cores multiply. Sums of floats are float32; weights of integers are int8, and
    sums int32, which wrap."""

    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    TF32 = "tf32"
    INT8 = "int8"
    UINT8 = "uint8"

    @property
    def is_integer(self) -> bool:
        return self in (Operand.INT8, Operand.UINT8)

    @property
    def element(self) -> Element:
        """The element type in shared memory."""
        return Element.FLOAT32 if self is Operand.TF32 else Element(self.value)

    @property
    def sums(self) -> Element:
        """The type of the sums."""
        return Element.INT32 if self.is_integer else Element.FLOAT32

    def rounded(self, array: np.ndarray) -> np.ndarray:
        """Float32 numbers rounded to nearest even, as tensor cores take them: float16, or bits as uint16 or uint32."""
        if self is Operand.FLOAT16:
            with np.errstate(over="ignore"):  # to infinity, as in the kernels
                return array.astype(np.float16)
        if self is Operand.BFLOAT16:
            return (_dropped(array, 16) >> 16).astype(np.uint16)
        return _dropped(array, 13)


def has_operand(gpu: Gpu, operand: Operand) -> bool:
    """Whether a GPU's tensor cores multiply such numbers."""
    return gpu.has_async_copy if operand in (Operand.BFLOAT16, Operand.TF32) else gpu.has_mma


def check_operand(gpu: Gpu, operand: Operand) -> None:
    """
    Raises:
        CompileError: the GPU's tensor cores do not multiply such numbers.
    """
    if not has_operand(gpu, operand):
        least = "sm_80" if gpu.has_mma else "sm_75"
        raise CompileError(f"{gpu.architecture} has no {operand.value} tensor cores, expected {least} or later")


def _dropped(array: np.ndarray, low: int) -> np.ndarray:
    """The bits of float32 numbers, rounded to nearest even, without the `low` lowest bits; NaN stays NaN."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    half = (1 << low - 1) - 1 + (bits >> low & 1)
    return np.where(np.isnan(array), bits | 1 << 22, bits + half) >> low << low


WHOLE_STEP = {
    Operand.FLOAT16: "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    Operand.BFLOAT16: "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    Operand.TF32: "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
    Operand.INT8: "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32",
    Operand.UINT8: "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32",
}
PART_OF_STEP = {
    Operand.FLOAT16: "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32",
    Operand.INT8: "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32",
    Operand.UINT8: "mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32",
}
"""The widest instructions of sm_75: they multiply one chunk of 16 rows of halves, or of 8 rows of integers."""


@dataclass(frozen=True, slots=True)
class Swizzle:
    """Positions of chunks in rows of `row_bytes`: chunk c of row r lies at the position of chunk c ^ key(r)."""

    row_bytes: int

    def key(self, row: Any) -> Any:
        """The number that the row's chunk numbers are XORed with, for a Value or numpy array; depends on row modulo
        8."""
        return (row >> 1) & 3 if self.row_bytes == 64 else row & 7

    def offset(self, row: Value, chunk: Value) -> Value:
        """Offset of a chunk from the tile's start, in bytes."""
        key: Value = self.key(row)
        return row * self.row_bytes + (chunk ^ key) * CHUNK

    def byte_offset(self, row: Value, number: Value) -> Value:
        """Offset of a byte of a row from the tile's start."""
        return self.offset(row, number // CHUNK) + number % CHUNK

    @property
    def pitch(self) -> int:
        """Bytes between rows."""
        return self.row_bytes


@dataclass(frozen=True, slots=True)
class Padded:
    """Chunks in their order in lines that lie `pitch` bytes apart."""

    pitch: int

    def offset(self, line: Value, chunk: Value) -> Value:
        """Offset of a chunk from the tile's start, in bytes."""
        return line * self.pitch + chunk * CHUNK

    def byte_offset(self, line: Value, number: Value) -> Value:
        """Offset of a byte of a line from the tile's start."""
        return line * self.pitch + number


@dataclass(frozen=True, slots=True)
class SharedLines:
    """A tile in shared memory that lies as its matrix does in memory, in lines `pitch` bytes apart.

    Attributes:
        base: shared address.
        turned: whether lines are numbers of K; otherwise they are rows or columns.
    """

    base: Value
    pitch: int
    turned: bool

    def from_line(self, line: Value, item: int) -> SharedLines:
        """The same tile from a row or column on."""
        return replace(self, base=self.base + line * (item if self.turned else self.pitch))

    def address(self, line: int, number: int, item: int) -> Value:
        """The address of a number, which has `item` bytes, of a row or column."""
        down, along = (number, line) if self.turned else (line, number)
        return self.base + (down * self.pitch + along * item)


def copy_async(
    code: Code,
    to: Value,
    source: Value,
    nbytes: int,
    offset: int = 0,
    inside: Value | None = None,
    halo: Value | None = None,
) -> None:
    """Begins to copy 4, 8 or 16 bytes of global memory, `offset` bytes after the pointer `source`, to the shared
    address `to`; where not `inside`, those at `halo`, or zeros."""
    level = "cg" if nbytes == CHUNK else "ca"
    arguments, size = [to, Value(code, code.address(source, 0))], ""
    if inside is not None and halo is not None:
        arguments[1] = code.select(inside, arguments[1], Value(code, code.address(halo, 0)))
    elif inside is not None:
        arguments, size = [*arguments, code.select(inside, code.integer(nbytes), 0)], ", $2"
    text = f"cp.async.{level}.shared.global [$0], [$1+{offset}], {nbytes}{size};"
    code.ptx(text, "", arguments, effects=True)


def commit_copies(code: Code) -> None:
    """Makes the copies begun since the last commit a group."""
    code.ptx("cp.async.commit_group;", "", [], effects=True, convergent=True)


def await_copies(code: Code, unfinished: int) -> None:
    """Waits for this thread's copies, except the last `unfinished` groups."""
    code.ptx(f"cp.async.wait_group {unfinished};", "", [], effects=True, convergent=True)


def load_matrices(code: Code, address: Value, *, transposed: bool = False) -> list[Value]:
    """Loads four 8x8 matrices of 16-bit elements from shared memory; lane l gives the address of row l % 8 of matrix
    l // 8. With `transposed`, each matrix is transposed on the way."""
    kind = ".trans" if transposed else ""
    text = f"ldmatrix.sync.aligned.m8n8.x4{kind}.shared.b16 {{$0, $1, $2, $3}}, [$4];"
    return code.ptx(text, "rrrr", [address], effects=True, convergent=True)


def rounded(code: Code, operand: Operand, registers: list[Value]) -> list[Value]:
    """Float32 numbers, or their bits, rounded to nearest tf32, which tensor cores would truncate; those of other
    operands as they are."""
    if operand is not Operand.TF32:
        return registers
    floats = [one if one.is_float else code.from_bits(one) for one in registers]
    return [code.ptx("cvt.rna.tf32.f32 $0, $1;", "r", [one])[0] for one in floats]


def _instruction(
    code: Code, name: str, left: Sequence[Value], right: Sequence[Value], sums: Sequence[Value]
) -> list[Value]:
    counts = [len(sums), len(left), len(right), len(sums)]
    starts = [sum(counts[:k]) for k in range(4)]
    lists = ", ".join(
        "{" + ", ".join(f"${number}" for number in range(start, start + count)) + "}"
        for start, count in zip(starts, counts, strict=True)
    )
    letter = "f" if sums[0].is_float else "r"
    return code.ptx(f"{name} {lists};", letter * len(sums), [*left, *right, *sums], convergent=True)


def multiply(
    code: Code,
    operand: Operand,
    left: Sequence[Value],
    right: Sequence[Value],
    sums: Sequence[Value],
    *,
    whole_steps: bool,
) -> list[Value]:
    """The sums of 16 rows and 8 columns after one K step.

    Args:
        left, right: four and two registers, as `load_matrices` returns them.
        whole_steps: False for sm_75, which needs two instructions per step of halves, four per step of integers.
    """
    if whole_steps:
        return _instruction(code, WHOLE_STEP[operand], left, right, sums)
    name, totals = PART_OF_STEP[operand], list(sums)
    rows = 2 if operand.is_integer else 4  # sums of one instruction
    for chunk, column in enumerate(right):
        for at in range(0, 4, rows):
            first = 2 * chunk + at // 2
            totals[at : at + rows] = _instruction(
                code, name, left[first : first + rows // 2], [column], totals[at : at + rows]
            )
    return totals
