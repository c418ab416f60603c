"""Sizes, ages and versions, from text and as text."""

from __future__ import annotations

import argparse
import re

from jitdelegate.base.sizes import parse_size
from jitdelegate.base.tables import short_number
from jitdelegate.runtime.cache.statements import LARGEST_VERSION

AGES = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "": 86400}


def size(text: str) -> int:
    """Bytes of 500M, 2G, 1.5GiB."""
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"it is {text!r}, expected a size such as 500M or 2G") from error


def age(text: str) -> float:
    """Seconds of 30d, 12h, 2w; a bare number is days."""
    amount = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*([a-zA-Z]?)", text.strip())
    if amount is None or amount[2].lower() not in AGES:
        raise argparse.ArgumentTypeError(f"it is {text!r}, expected an age such as 30d or 12h")
    return float(amount[1]) * AGES[amount[2].lower()]


def version(text: str) -> int:
    """A whole number of a bundle."""
    if len(text) > len(str(LARGEST_VERSION)) or not text.isdecimal() or int(text) > LARGEST_VERSION:
        raise argparse.ArgumentTypeError(f"it is {text[:80]!r}, expected a whole number up to {LARGEST_VERSION}")
    return int(text)


def short_size(nbytes: int) -> str:
    """1.2 MB of 1,234,567 bytes."""
    return short_number(nbytes, (" bytes", " kB", " MB", " GB", " TB"))


def short_age(seconds: float) -> str:
    """5 min, 3 h, 12 d."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds / length)} {unit}"
    return "now"
