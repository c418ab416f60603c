"""Plants bugs in a PTX text: what a test of a kernel must notice to be worth having."""

from __future__ import annotations

import re
from collections.abc import Callable

Edit = Callable[[re.Match[str]], str]


class NoSuchPlaceError(Exception):
    """The text has nothing where the bug could be planted."""


def remove_barrier(text: str, number: int = 0) -> str:
    """Without the number-th `bar.sync` (or `barrier.sync`) of the text."""
    return _edit(text, r"\bbar(?:rier)?(?:\.cta)?\.sync(?:\.aligned)?\s+\d+\s*;", number, lambda match: "")


def raise_wait_group(text: str, number: int = 0) -> str:
    """Lets the number-th `cp.async.wait_group` leave one more group under way."""
    pattern = r"\bcp\.async\.wait_group\s+(\d+)\s*;"
    return _edit(text, pattern, number, lambda match: f"cp.async.wait_group {int(match.group(1)) + 1};")


def drop_zero_fill(text: str, number: int = 0) -> str:
    """Lets the number-th cp.async with a source size copy all its bytes."""
    pattern = r"(\bcp\.async\.c[ag]\.[^;]*\],\s*(\d+)\s*),\s*[%\w]+\s*;"
    return _edit(text, pattern, number, lambda match: f"{match.group(1)};")


def drop_global_predicate(text: str, number: int = 0) -> str:
    """Lets every lane execute the number-th predicated load from, store to or copy from global memory."""
    pattern = r"@!?%?\w+\s+((?:ld|st)\.(?:\w+\.)*?global\b|cp\.async\.c[ag]\b)"
    return _edit(text, pattern, number, lambda match: match.group(1))


def drop_branch_before_store(text: str, number: int = 0) -> str:
    """Never takes the last conditional branch before the number-th store to global memory.

    NVVM guards stores at the edge of a tensor by branches around them rather than by predicates.
    """
    stores = list(re.finditer(r"\bst\.(?:\w+\.)*?global\b", text))
    branches = list(re.finditer(r"@!?%?\w+\s+bra(?:\.uni)?\s+[^;]*;", text))
    if number >= len(stores):
        raise NoSuchPlaceError(f"{len(stores)} stores to global memory, none numbered {number}")
    before = [branch for branch in branches if branch.start() < stores[number].start()]
    if not before:
        raise NoSuchPlaceError("no conditional branch before the store")
    return text[: before[-1].start()] + text[before[-1].end() :]


def transpose_ldmatrix(text: str, number: int = 0) -> str:
    """Adds `.trans` to the number-th ldmatrix, or takes it away."""

    def flip(match: re.Match[str]) -> str:
        return match.group(1) + ("" if match.group(2) else ".trans") + match.group(3)

    return _edit(text, r"(\bldmatrix\.[\w.]*?x[124])(\.trans)?(\.shared)", number, flip)


def shift_global_store(text: str, nbytes: int, number: int = 0) -> str:
    """Moves the number-th store to global memory by `nbytes`."""
    pattern = r"(\bst\.(?:[\w:]+\.)*?global[\w.:]*\s+\[\s*[%\w$]+)\s*(?:\+\s*(-?\d+))?\s*\]"
    return _edit(text, pattern, number, lambda match: f"{match.group(1)}+{int(match.group(2) or 0) + nbytes}]")


def swap_mma_registers(text: str, number: int = 0) -> str:
    """Exchanges the two B registers of the number-th mma that has two."""
    pattern = r"(\bmma\.sync[^;{]*\{[^}]*\}\s*,\s*\{[^}]*\}\s*,\s*)\{\s*([%\w]+)\s*,\s*([%\w]+)\s*\}"
    return _edit(text, pattern, number, lambda match: f"{match.group(1)}{{{match.group(3)}, {match.group(2)}}}")


def _edit(text: str, pattern: str, number: int, edit: Edit) -> str:
    """The text with the number-th match edited; NoSuchPlaceError where there are fewer."""
    matches = list(re.finditer(pattern, text))
    if number >= len(matches):
        raise NoSuchPlaceError(f"{len(matches)} matches of {pattern}, none numbered {number}")
    match = matches[number]
    return text[: match.start()] + edit(match) + text[match.end() :]
