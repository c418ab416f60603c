"""Sizes as people write them."""

from __future__ import annotations

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_LONGEST = 32


def parse_size(text: str) -> int:
    """Bytes of 500M, 2G, 1.5GiB, 123.

    Raises:
        ValueError: it is no size.
    """
    amount = text.strip().upper()
    amount = amount.removesuffix("IB") if amount.endswith("IB") else amount.removesuffix("B")
    unit = amount[-1:] if amount[-1:] in UNITS else ""
    number = amount.removesuffix(unit).rstrip()
    if not number.replace(".", "0", 1).isdecimal() or not number[0].isdecimal() or len(number) > _LONGEST:
        raise ValueError(f"{text[:_LONGEST]!r} is no size")
    return int(float(number) * UNITS[unit]) if "." in number else int(number) * UNITS[unit]
