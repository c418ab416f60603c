"""Packs a dictionary of fields as a table of a .tflite file: the inverse of `record`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from flatbuffers import Builder, encode, packer
from flatbuffers.table import Table

from jitdelegate.errors import OptionError
from jitdelegate.tflite.schema import ENUMS, TABLES, UNIONS

_ALIGNMENT = 16
"""Alignment of buffers in bytes, which LiteRT requires."""

_PREPEND: dict[str, Callable[..., None]] = {
    "?": Builder.PrependBoolSlot,
    "b": Builder.PrependInt8Slot,
    "B": Builder.PrependUint8Slot,
    "i": Builder.PrependInt32Slot,
    "I": Builder.PrependUint32Slot,
    "q": Builder.PrependInt64Slot,
    "Q": Builder.PrependUint64Slot,
    "f": Builder.PrependFloat32Slot,
}


class _Stored(NamedTuple):
    """A field for the builder: a number, or the offset of an object appended before."""

    slot: int
    code: str
    value: Any
    default: float = 0


def outside(size: int) -> dict[str, int]:
    """The record of a Buffer of `size` bytes behind the FlatBuffer, before its offset is known."""
    return {"offset": _ALIGNMENT, "size": size}


def pack_model(model: Mapping[str, Any], external: Mapping[int, bytes | memoryview]) -> bytes:
    """The .tflite file of a table Model.

    Args:
        model: its fields, as `pack` takes them.
        external: buffers behind the FlatBuffer, by number; in `model` they are `outside` records.

    Raises:
        OptionError: as `pack`.
        BuilderSizeError: all but the external buffers exceeds 2 GB.
    """
    builder = Builder()
    builder.Finish(pack(builder, "Model", model), b"TFL3")
    if not external:
        return bytes(builder.Output())
    content = builder.Output()
    _place(content, external)
    return b"".join(piece for part in (content, *external.values()) for piece in (part, bytes(-len(part) % _ALIGNMENT)))


def _place(content: bytearray, external: Mapping[int, bytes | memoryview]) -> None:
    """Append the external buffers and set their offsets, which are unknown until the FlatBuffer is finished."""
    start = _aligned(len(content))
    model = Table(content, encode.Get(packer.uoffset, content, 0))
    buffers = model.Vector(model.Offset(_field_position("Model", "buffers")))
    for number, data in external.items():
        buffer = Table(content, model.Indirect(buffers + packer.uoffset.size * number))
        at = buffer.Pos + buffer.Offset(_field_position("Buffer", "offset"))
        encode.Write(packer.uint64, content, at, start)
        start += _aligned(len(data))


def _field_position(kind: str, name: str) -> int:
    """Position of a field in its table's list of field offsets."""
    names = [field[0] if field is not None else "" for field in TABLES[kind]]
    return 4 + 2 * names.index(name)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def pack(builder: Builder, kind: str, fields: Mapping[str, Any]) -> int:
    """Append a table of the schema's `kind`, and return its offset. Absent fields are left out.

    Values are as in `record`. A union is given by its value alone, as (table name, fields).

    Raises:
        OptionError: unknown field, or unknown value of an enum.
    """
    refuse_unknown(kind, fields)
    stored: list[_Stored] = []
    for slot, field in enumerate(TABLES[kind]):
        if field is None or fields.get(field[0]) is None:
            continue
        name, code, of, default = field
        value = fields[name]
        if code == "u":
            stored.append(_Stored(slot - 1, "B", _number_of(UNIONS[of], of, name, value[0])))
            stored.append(_Stored(slot, code, pack(builder, *value)))
        elif code in _PREPEND:
            number = _number_of(ENUMS[of], of, name, value) if of in ENUMS else value
            stored.append(_Stored(slot, code, number, default or 0))
        else:
            stored.append(_Stored(slot, code, _reference(builder, code, of, name, value)))
    return _table(builder, len(TABLES[kind]), stored)


def refuse_unknown(kind: str, fields: Mapping[str, Any]) -> None:
    """
    Raises:
        OptionError: a field is not one of the schema's `kind`; names it.
    """
    known = [field[0] for field in TABLES[kind] if field is not None]
    for name in fields:
        if name not in known:
            raise OptionError(f"{kind} has no {name!r}; it has {', '.join(known) or 'no options'}")


def _table(builder: Builder, slots: int, stored: Sequence[_Stored]) -> int:
    builder.StartObject(slots)
    for slot, code, value, default in stored:
        if code in _PREPEND:
            _PREPEND[code](builder, slot, value, default)
        else:
            builder.PrependUOffsetTRelativeSlot(slot, value, 0)
    return int(builder.EndObject())


def _number_of(names: Mapping[int, str], of: str, field: str, value: str) -> int:
    for number, name in names.items():
        if name == value:
            return number
    raise OptionError(f"{field} is {value!r}, expected one of {of}: {', '.join(names.values())}")


def _reference(builder: Builder, code: str, of: str, name: str, value: Any) -> int:
    """Append a string, a table or a vector, and return its offset."""
    if code == "s":
        return int(builder.CreateString(value))
    if code == "t":
        return pack(builder, of, value)
    if code == "[s]":
        return _offsets(builder, [builder.CreateString(text) for text in value])
    if code == "[t]":
        return _offsets(builder, [pack(builder, of, child) for child in value])
    if code == "[B]":
        return _bytes(builder, value)
    numbers = [_number_of(ENUMS[of], of, name, entry) for entry in value] if of else value
    return int(builder.CreateNumpyVector(np.array(numbers, np.dtype(code[1]))))


def _offsets(builder: Builder, offsets: Sequence[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


def _bytes(builder: Builder, value: bytes | memoryview) -> int:
    """Append an aligned vector of bytes; the builder's CreateByteVector cannot align."""
    builder.StartVector(1, len(value), _ALIGNMENT)
    builder.head -= len(value)
    builder.Bytes[builder.head : builder.head + len(value)] = value
    return int(builder.EndVector())
