"""Options in a FlexBuffer, which custom operators and composites have instead of a table of the schema."""

from __future__ import annotations

import struct
from typing import Any

from flatbuffers import flexbuffers

_UNREADABLE = (ValueError, TypeError, IndexError, KeyError, OverflowError, RecursionError, MemoryError, struct.error)
"""The errors that flexbuffers raises on invalid bytes."""


def flex_map(content: bytes) -> dict[str, Any] | None:
    """The values by name; None where the bytes are not a map."""
    try:
        found = flexbuffers.Loads(content)
    except _UNREADABLE:
        return None
    return found if isinstance(found, dict) else None
