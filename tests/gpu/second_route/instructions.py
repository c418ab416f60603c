"""What the pieces of PTX in the kernels mean, written after the text of NVIDIA's PTX ISA alone.

A piece is a Python function under the pattern that its text matches, which Numba compiles. Its parameters are those of
the piece, and then the numbers in the pattern's groups. One with a parameter `own`, which is the address of the
thread's own words, leaves its results in the first of them. A collective piece is given the rows of a warp's 32 lanes,
once all of them have come to it: their first words are the parameters, and then the results.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from tests.gpu.second_route import row
from tests.gpu.second_route.native import bits_of_float, float_of_bits, memory

BARRIERS = {
    "bar.warp.sync -1;": row.OF_WARP,
    "bar.sync 0;": row.OF_BLOCK,
    "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;": row.OF_CLUSTER,
}


@dataclass(frozen=True)
class Piece:
    """What a piece of PTX does."""

    function: Callable[..., Any]
    is_collective: bool


PIECES: dict[str, Piece] = {}
"""Pattern of a text -> what it does."""


def piece(pattern: str, *, is_collective: bool = False) -> Callable[[Any], Any]:
    """Enters what text of this pattern does."""

    def enter(function: Any) -> Any:
        PIECES[pattern] = Piece(function, is_collective)
        return function

    return enter


def found(text: str) -> tuple[str, list[int]]:
    """The pattern of a text, and the numbers in its groups; 1 for one that is left out.

    Raises:
        KeyError: nothing says what it does.
    """
    for pattern in PIECES:
        if match := re.fullmatch(pattern, text):
            return pattern, [int(number or 1) for number in match.groups()]
    raise KeyError(text)


@piece(r"griddepcontrol\.(?:wait|launch_dependents);|cp\.async\.(?:commit_group|wait_group \d+);")
def nothing():
    """Launches run one after another here, and copies end where they begin: PTX allows both."""


piece(r"mov\.(?:u64|b32) \$0, \$1;")(lambda a: a)
piece(r"mad\.wide\.s32 \$0, \$1, (-?\d+), \$2;")(lambda a, c, b: np.int64(a) * np.int64(b) + c)


@piece(r"max\.f32 \$0, \$1, \$2;")
def larger(a, b):
    """If one is NaN, the other one; +0.0 is larger than -0.0."""
    if a != a or b > a:
        return b
    return float_of_bits(bits_of_float(a) & bits_of_float(b)) if a == b else a


@piece(r"ex2\.approx\.ftz\.f32 \$0, \$1;")
def power_of_two(a):
    """Subnormal results are zeros; of the values that the ISA allows, the nearest one."""
    return np.float32(0) if a < -126 else np.float32(2.0 ** np.float64(a))


@njit
def clamped(a, low, high):
    """A float cut off towards zero, within a range; NaN is 0."""
    return np.int64(0) if a != a else np.int64(min(max(np.float64(a), low), high))


piece(r"cvt\.rzi\.s32\.f32 \$0, \$1;")(lambda a: clamped(a, -(2.0**31), 2.0**31 - 1))
piece(r"cvt\.rzi\.u32\.f32 \$0, \$1;")(lambda a: clamped(a, 0.0, 2.0**32 - 1))


@piece(r"cvt\.rzi\.s64\.f32 \$0, \$1;")
def to_int64(a):
    """NaN is the smallest number."""
    if a >= 2.0**63:
        return np.int64(2**63 - 1)
    return np.int64(a) if a > -(2.0**63) else np.int64(-(2**63))


@piece(r"cvt\.rna\.tf32\.f32 \$0, \$1;")
def to_tf32(a):
    """The nearest number with 10 bits of mantissa, of two the one farther from zero."""
    return np.uint32(0x7FFFFFFF if a != a else bits_of_float(a) + 0x1000 & 0xFFFFE000)


@njit
def to_bfloat16(a):
    """The nearest number with 7 bits of mantissa, of two the even one, in the lower half of a word."""
    bits = bits_of_float(a)
    return np.uint32(0x7FFF if a != a else bits + 0x7FFF + (bits >> 16 & 1) >> 16)


piece(r"cvt\.rn\.bf16x2\.f32 \$0, \$1, \$2;")(lambda a, b: to_bfloat16(a) << 16 | to_bfloat16(b))


@piece(r"prmt\.b32 \$0, \$1, (\d+), (\d+);")
def permute(a, b, selector):
    """Nibble k of the selector is the number of byte k in the eight bytes of (b, a); its highest bit is never set."""
    result = 0
    for k in range(4):
        number = selector >> 4 * k & 7
        word = a if number < 4 else b
        result |= (word >> 8 * (number & 3) & 0xFF) << 8 * k
    return result


@piece(r"dp4a\.s32\.s32 \$0, \$1, \$2, \$3;")
def dot_of_signed(a, b, c):
    for k in range(4):
        c += np.int8(a >> 8 * k) * np.int8(b >> 8 * k)
    return c


@piece(r"dp4a\.u32\.s32 \$0, \$1, \$2, \$3;")
def dot_of_unsigned(a, b, c):
    """Only the first factors are unsigned."""
    for k in range(4):
        c += (a >> 8 * k & 0xFF) * np.int8(b >> 8 * k)
    return c


@piece(r"(?:mov\.b32 \$\d, 0; )+@\$\d ld\.global(?:\.nc)?(?:\.v([24]))?\.b32 [^;]*;")
def load_words_where(own, address, condition, count):
    words, source = memory(own, count, np.uint32), memory(address, count, np.uint32)
    for k in range(count):
        words[k] = source[k] if condition else 0


@piece(r"mov\.b16 \$0, 0; @\$2 ld\.global(?:\.nc)?\.b16 \$0, \[\$1\];")
def load_half_word_where(address, condition):
    return memory(address, 1, np.uint16)[0] if condition else np.uint16(0)


@njit
def shared(own):
    """The address of the shared memory of a thread's block."""
    return memory(own + 4 * row.SHARED, 1, np.int64)[0]


@piece(r"cp\.async\.c[ag]\.shared\.global \[\$0\], \[\$1\+(\d+)\], (\d+), \$2;")
def copy_part(own, to, address, taken, offset, size):
    """Of `size` bytes the first `taken` are copied, and the others are zeros."""
    target, source = memory(shared(own) + to, size, np.uint8), memory(address + offset, taken, np.uint8)
    for k in range(size):
        target[k] = source[k] if k < taken else 0


@piece(r"cp\.async\.c[ag]\.shared\.global \[\$0\], \[\$1\+(\d+)\], (\d+);")
def copy(own, to, address, offset, size):
    memory(shared(own) + to, size, np.uint8)[:] = memory(address + offset, size, np.uint8)


@piece(r"mapa\.shared::cluster\.u32 \$0, \$1, \$2;")
def address_in_cluster(own, address, rank):
    words = memory(own, row.WORDS, np.int32)
    words[0] = address + (rank - words[row.RANK]) * words[row.STRIDE]


@piece(r"ld\.shared::cluster(?:\.v([24]))?\.b32 [^;]*;")
def load_of_cluster(own, address, count):
    memory(own, count, np.uint32)[:] = memory(shared(own) + address, count, np.uint32)


@piece(r"st\.shared::cluster\.b32 \[\$0\], \$1;")
def store_in_cluster(own, address, value):
    memory(shared(own) + address, 1, np.int32)[0] = value


@njit
def rows_of(warp):
    """The words of a warp, [lane, word]."""
    return memory(warp, (row.WARP, row.WORDS), np.uint32)


def shuffle(source):
    """Each lane takes from the lane that `source` makes of its own number and of b."""

    def take(warp):
        rows = rows_of(warp)
        values = rows[:, 0].copy()
        for lane in range(row.WARP):
            rows[lane, 0] = values[source(lane, rows[lane, 1] & 31)]

    return take


piece(r"shfl\.sync\.bfly\.b32 \$0, \$1, \$2, 31, -1;", is_collective=True)(shuffle(njit(lambda lane, b: lane ^ b)))
piece(r"shfl\.sync\.idx\.b32 \$0, \$1, \$2, 31, -1;", is_collective=True)(shuffle(njit(lambda lane, b: b)))
