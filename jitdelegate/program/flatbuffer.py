"""Reads untrusted FlatBuffers: every offset, length and count is checked before it is used.

    root = FlatBuffer(content, ModelError).root(b"TFL3", "model")
    for operator in root.tables(3, "operators"):
        code, name = operator.scalar(0, "code", "i", 0), operator.string(1, "name")

An accessor takes the field's slot (its position in the schema, from 0) and its name, which only messages use. An
absent field reads as its default: the given scalar, "", (), an empty view or None. A value out of bounds raises the
FlatBuffer's error class; the message has the path to the field, what was found and what was expected.

Several offsets may lead to one table, so a small file could unfold into an endless tree. Reading is therefore limited
in proportion to the file's size, which is enough to read everything once.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import ReadableBuffer

    Number = int | float | bool

_SHORT = struct.Struct("<H")
_OFFSET = struct.Struct("<I")
_SIGNED_OFFSET = struct.Struct("<i")
_SCALARS = {code: struct.Struct("<" + code) for code in "?bBhHiIqQfd"}
# A table takes at least 8 bytes (an offset to it, its own first field), a string 9, an element 1: all that is stored
# once can be read once.
_TABLE_COST = 40
_TEXT_COST = 16
_ELEMENT_COST = 4
_ALLOWANCE_PER_BYTE = 6
_ALLOWANCE_AT_LEAST = 1 << 16


class FlatBuffer:
    """The bytes of one FlatBuffer, and the remaining limit for reading them.

    Args:
        content: anything contiguous with the buffer protocol; it is not copied.
        error: makes every error of its sentence.
    """

    __slots__ = ("allowance", "content", "error", "size")

    def __init__(self, content: ReadableBuffer, error: Callable[[str], Exception]) -> None:
        self.content = memoryview(content).cast("B")
        self.size = len(self.content)
        self.error = error
        self.allowance = _ALLOWANCE_PER_BYTE * self.size + _ALLOWANCE_AT_LEAST

    def root(self, identifier: bytes, name: str) -> Table:
        """The root table.

        Args:
            identifier: the four bytes expected at 4..7; empty for any.
            name: name of the root in messages.
        """
        if self.size < 8:
            raise self.error(f"{name}: {self.size} bytes are too few for a FlatBuffer")
        found = bytes(self.content[4:8])
        if identifier and found != identifier:
            raise self.error(f"{name}: bytes 4..7 are {found!r}, expected {identifier!r}")
        return Table(self, _OFFSET.unpack_from(self.content)[0], None, name)

    def spend(self, cost: int, where: str) -> None:
        """Take `cost` from the limit; an error for a file that unfolds into far more than it holds."""
        self.allowance -= cost
        if self.allowance < 0:
            raise self.error(
                f"{where}: the file's {self.size} bytes are read over and over; its offsets lead in circles"
            )


class Table:
    """One table of a FlatBuffer; `path` is the path to it from the root."""

    __slots__ = ("_buffer", "_fields", "_index", "_length", "_name", "_parent", "_position", "_slots")

    def __init__(self, buffer: FlatBuffer, position: int, parent: Table | None, name: str, index: int = -1) -> None:
        self._buffer = buffer
        self._position = position
        self._parent = parent
        self._name = name
        self._index = index
        self._open()

    def _open(self) -> None:
        """Find the list of field offsets ("vtable"), and check that it and the table lie in the file."""
        content, size, position = self._buffer.content, self._buffer.size, self._position
        self._buffer.spend(_TABLE_COST, self._name)
        if position + 4 > size:
            raise self._refusal("", f"the table starts at byte {position} of {size}")
        fields = position - _SIGNED_OFFSET.unpack_from(content, position)[0]
        if not 0 <= fields <= size - 4:
            raise self._refusal("", f"the field offsets start at byte {fields} of {size}")
        width = _SHORT.unpack_from(content, fields)[0]
        if width < 4 or width % 2 or fields + width > size:
            raise self._refusal("", f"the field offsets at byte {fields} of {size} have a length of {width} bytes")
        self._length = _SHORT.unpack_from(content, fields + 2)[0]
        if self._length < 4 or position + self._length > size:
            raise self._refusal("", f"the table at byte {position} of {size} has a length of {self._length} bytes")
        self._fields = fields
        self._slots = (width - 4) // 2

    @property
    def path(self) -> str:
        """The path from the root, like `model.subgraphs[0].operators[3]`."""
        own = self._name if self._index < 0 else f"{self._name}[{self._index}]"
        return own if self._parent is None else f"{self._parent.path}.{own}"

    def stored(self) -> list[int]:
        """The slots of the fields that are stored, in order; writers leave out fields that equal their default."""
        offsets = struct.unpack_from(f"<{self._slots}H", self._buffer.content, self._fields + 4)
        return [slot for slot, offset in enumerate(offsets) if offset]

    def scalar(self, slot: int, name: str, code: str, default: Number) -> Number:
        """The field's number; `code` is its type as in `struct` (one of ?bBhHiIqQfd)."""
        form = _SCALARS[code]
        at = self._field(slot, name, form.size)
        return form.unpack_from(self._buffer.content, at)[0] if at else default

    def integer(self, slot: int, name: str, code: str = "i", default: int = 0) -> int:
        """As `scalar`, for the integer types."""
        return int(self.scalar(slot, name, code, default))

    def string(self, slot: int, name: str) -> str:
        """The field's string; bytes that are not UTF-8 read as `\\xNN`."""
        start = self._target(slot, name)
        return self._text(start, name) if start else ""

    def table(self, slot: int, name: str) -> Table | None:
        """The field's table, also for the value of a union."""
        start = self._target(slot, name)
        return Table(self._buffer, start, self, name) if start else None

    def memory(self, slot: int, name: str) -> memoryview:
        """A vector of bytes, not copied."""
        start, count = self._vector(slot, name, 1)
        return self._buffer.content[start : start + count]

    def blob(self, slot: int, name: str) -> bytes:
        """A vector of bytes, copied."""
        view = self.memory(slot, name)
        self._buffer.spend(_TEXT_COST + len(view), name)
        return bytes(view)

    def scalars(self, slot: int, name: str, code: str) -> tuple[Number, ...]:
        """A vector of numbers; `code` as in `scalar`."""
        start, count = self._vector(slot, name, _SCALARS[code].size)
        self._buffer.spend(_ELEMENT_COST * count, name)
        return struct.unpack_from(f"<{count}{code}", self._buffer.content, start)

    def integers(self, slot: int, name: str, code: str = "i") -> tuple[int, ...]:
        """As `scalars`, for the integer types."""
        return self.scalars(slot, name, code)  # type: ignore[return-value]

    def strings(self, slot: int, name: str) -> tuple[str, ...]:
        """A vector of strings."""
        return tuple(self._text(start, name) for start in self._targets(slot, name))

    def tables(self, slot: int, name: str) -> tuple[Table, ...]:
        """A vector of tables."""
        starts = self._targets(slot, name)
        return tuple(Table(self._buffer, start, self, name, index) for index, start in enumerate(starts))

    def _offset(self, slot: int) -> int:
        """Offset of the field in its table; 0 if it is absent."""
        if slot >= self._slots:
            return 0
        offset: int = _SHORT.unpack_from(self._buffer.content, self._fields + 4 + 2 * slot)[0]
        return offset

    def _field(self, slot: int, name: str, width: int) -> int:
        """Position of the field's `width` bytes; 0 if it is absent."""
        offset = self._offset(slot)
        if not offset:
            return 0
        if offset < 4 or offset + width > self._length:
            raise self._refusal(name, f"its {width} bytes start at {offset} of a table of {self._length} bytes")
        return self._position + offset

    def _target(self, slot: int, name: str) -> int:
        """Target of the field's offset, with at least four bytes left in the file; 0 if it is absent."""
        at = self._field(slot, name, 4)
        return self._follow(at, name) if at else 0

    def _follow(self, at: int, name: str) -> int:
        target: int = at + _OFFSET.unpack_from(self._buffer.content, at)[0]
        if target == at or target + 4 > self._buffer.size:
            raise self._refusal(name, f"its offset leads to byte {target} of {self._buffer.size}")
        return target

    def _counted(self, start: int, name: str, width: int) -> tuple[int, int]:
        """The first byte and the number of the elements, each `width` bytes, of the vector at `start`."""
        count: int = _OFFSET.unpack_from(self._buffer.content, start)[0]
        room = self._buffer.size - start - 4
        if count * width > room:
            raise self._refusal(name, f"its {count} elements of {width} bytes do not fit in the {room} bytes left")
        return start + 4, count

    def _vector(self, slot: int, name: str, width: int) -> tuple[int, int]:
        start = self._target(slot, name)
        return self._counted(start, name, width) if start else (0, 0)

    def _targets(self, slot: int, name: str) -> list[int]:
        """Targets of a vector's offsets."""
        start, count = self._vector(slot, name, 4)
        self._buffer.spend(_ELEMENT_COST * count, name)
        return [self._follow(start + 4 * index, f"{name}[{index}]") for index in range(count)]

    def _text(self, start: int, name: str) -> str:
        first, count = self._counted(start, name, 1)
        self._buffer.spend(_TEXT_COST + count, name)
        return str(self._buffer.content[first : first + count], "utf-8", "backslashreplace")

    def _refusal(self, name: str, reason: str) -> Exception:
        return self._buffer.error(f"{self.path}{'.' if name else ''}{name}: {reason}")
