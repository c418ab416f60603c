"""Options in a FlexBuffer: what custom operators and composites have in the place of a table of the schema."""

from __future__ import annotations

import struct
from typing import Any

from flatbuffers import flexbuffers

_UNREADABLE = (ValueError, TypeError, IndexError, KeyError, OverflowError, RecursionError, MemoryError, struct.error)
"""What flexbuffers raises on bytes that are none."""


def flex_map(content: bytes) -> dict[str, Any] | None:
    """The values by name; None where the bytes are no map."""
    try:
        found = flexbuffers.Loads(content)
    except _UNREADABLE:
        return None
    return found if isinstance(found, dict) else None
