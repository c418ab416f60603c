"""The table of words for the entry `invoke` of compiled code, which LiteRT's interpreter calls."""

from __future__ import annotations

import ctypes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

WORD = 8
"""Bytes of a word."""
FILLS, COPIES, HEAD = 5, 6, 7
"""The words are: the five arguments of `run`, number of fills, number of copies, the fills, the copies."""


def hosting_words(
    arguments: Sequence[int], fills: Sequence[tuple[int, int]], copies: Sequence[tuple[int, int, int]]
) -> Any:
    """The words, as a ctypes array that has to live as long as LiteRT may call.

    Args:
        arguments: of the entry `run`.
        fills: (number of a pointer in io, offset of its data pointer in LiteRT's array of tensors) pairs, read before
            `run`.
        copies: (address, offset as in `fills`, bytes) of memory to copy to LiteRT after `run`.
    """
    content = [*arguments, len(fills), len(copies), *(word for each in (*fills, *copies) for word in each)]
    return (ctypes.c_int64 * len(content))(*content)
