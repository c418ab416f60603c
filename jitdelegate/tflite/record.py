"""A table of a .tflite file as a dictionary of its fields, decoded by TFLite's schema."""

from __future__ import annotations

from functools import cache
from typing import Any

from jitdelegate.errors import ModelError
from jitdelegate.program.flatbuffer import Table
from jitdelegate.tflite.schema import ENUMS, TABLES, UNIONS

Record = dict[str, Any]
"""Field names to numbers, strings, enum names, tuples of these, records, tuples of records, bytes or None."""


def record(table: Table, kind: str) -> Record:
    """Every field of `table`, of the schema's `kind`, in the schema's order; absent fields have their defaults.

    Raises:
        ModelError: an offset or length leads out of the file, or an enum has an unknown number.
    """
    fields, known = default(kind), TABLES[kind]
    for slot in table.stored():
        field = known[slot] if slot < len(known) else None
        if field is not None:
            name, code, of, _ = field
            fields[name] = _value(table, slot, name, code, of, fields)
    return fields


def default(kind: str) -> Record:
    """The fields of an empty table of the schema's `kind`."""
    return dict(_defaults(kind))


@cache
def _defaults(kind: str) -> Record:
    return {field[0]: _default(field[1], field[2], field[3]) for field in TABLES[kind] if field is not None}


def _value(table: Table, slot: int, name: str, code: str, of: str, before: Record) -> Any:
    """A field that is stored."""
    if code == "t":
        return _child(table.table(slot, name), of)
    if code == "u":
        return _child(table.table(slot, name), before[f"{name}_type"])
    if code == "[t]":
        return tuple(record(child, of) for child in table.tables(slot, name))
    if code == "s":
        return table.string(slot, name)
    if code == "[s]":
        return table.strings(slot, name)
    if code == "[B]":
        # Only a Buffer has `data`: up to gigabytes, which must not be copied.
        return table.memory(slot, name) if name == "data" else table.blob(slot, name)
    if code[0] == "[":
        numbers = table.scalars(slot, name, code[1])
        return tuple(_name(table, name, of, number) for number in numbers) if of else numbers
    number = table.scalar(slot, name, code, 0)
    return _name(table, name, of, number) if of else number


def _child(table: Table | None, kind: str) -> Record | None:
    """The record of a table; None for a union whose type is NONE."""
    return None if table is None or kind == "NONE" else record(table, kind)


def _default(code: str, of: str, default: float | bool | None) -> Any:
    if code in ("t", "u"):
        return None
    if code == "s":
        return ""
    if code == "[B]":
        return b""
    if code[0] == "[":
        return ()
    return _names(of)[default] if of and isinstance(default, int) else default


def _names(of: str) -> dict[int, str]:
    return ENUMS[of] if of in ENUMS else {0: "NONE", **UNIONS[of]}


def _name(table: Table, name: str, of: str, number: float | bool) -> str:
    names = _names(of)
    if not isinstance(number, int) or number not in names:
        raise ModelError(f"{table.path}.{name}: {number} is no {of}; known are 0..{max(names)}")
    return names[number]
