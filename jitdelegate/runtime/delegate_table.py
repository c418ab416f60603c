"""The table of words for the entry `invoke` of compiled code, which LiteRT's interpreter calls."""

from __future__ import annotations

import ctypes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

WORD = 8
"""Bytes of a word."""
FILLS, COPIES, FORMATS, HEAD = 5, 6, 7, 8
"""The words are: the five arguments of `run`, number of fills, number of copies, the address of the formats' addresses,
the fills, the copies."""


def hosting_words(
    arguments: Sequence[int],
    fills: Sequence[tuple[int, int]],
    copies: Sequence[tuple[int, int, int]],
    refusals: Sequence[str] = (),
) -> Any:
    """The words, as a ctypes array that has to live as long as LiteRT may call.

    Args:
        arguments: of the entry `run`.
        fills: (number of a pointer in io, offset of its data pointer in LiteRT's array of tensors) pairs, read before
            `run`.
        copies: (address, offset as in `fills`, bytes) of memory to copy to LiteRT after `run`.
        refusals: the program's, which LiteRT is told by their number in the result of `run`.
    """
    table: Any = None
    if refusals:
        from jitdelegate.runtime.status import formats  # not before: few programs refuse values

        table = (ctypes.c_char_p * len(refusals))(*formats(refusals))
    where = ctypes.addressof(table) if refusals else 0
    content = [*arguments, len(fills), len(copies), where, *(word for row in (*fills, *copies) for word in row)]
    words: Any = (ctypes.c_int64 * len(content))(*content)
    words.formats = table  # kept as long
    return words
