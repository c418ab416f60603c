"""Sizes, ages and versions, from text and as text."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

from jitdelegate.base.tables import short_number
from jitdelegate.runtime.cache.statements import LARGEST_VERSION

SIZES = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
AGES = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "": 86400}


def size(text: str) -> int:
    """Bytes of 500M, 2G, 1.5GiB."""
    return int(_amount(text, SIZES, r"(?i:i?B)?", str.upper, "a size such as 500M or 2G"))


def age(text: str) -> float:
    """Seconds of 30d, 12h, 2w; a bare number is days."""
    return _amount(text, AGES, "", str.lower, "an age such as 30d or 12h")


def version(text: str) -> int:
    """A whole number of a bundle."""
    if len(text) > len(str(LARGEST_VERSION)) or not text.isdecimal() or int(text) > LARGEST_VERSION:
        raise argparse.ArgumentTypeError(f"it is {text[:80]!r}, expected a whole number up to {LARGEST_VERSION}")
    return int(text)


def _amount(text: str, units: dict[str, int], suffix: str, unit_of: Callable[[str], str], expected: str) -> float:
    amount = re.fullmatch(rf"(\d{{1,9}}(?:\.\d{{1,9}})?)\s*([a-zA-Z]?){suffix}", text.strip())
    if amount is None or unit_of(amount[2]) not in units:
        raise argparse.ArgumentTypeError(f"it is {text!r}, expected {expected}")
    return float(amount[1]) * units[unit_of(amount[2])]


def short_size(nbytes: int) -> str:
    """1.2 MB of 1,234,567 bytes."""
    return short_number(nbytes, (" bytes", " kB", " MB", " GB", " TB"))


def short_age(seconds: float) -> str:
    """5 min, 3 h, 12 d."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds / length)} {unit}"
    return "now"
