"""Writes a program as one file's bytes. Compile path: uses the flatbuffers package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import flatbuffers
from xxhash import xxh3_128_digest

from jitdelegate.program.launch_list import pack
from jitdelegate.program.program import ALIGNMENT as PAGE
from jitdelegate.program.program import (
    FORMAT_VERSION,
    HEADER,
    HEADER_BYTES,
    INTEGER,
    INTEGERS,
    LINE,
    MAGIC,
    REALS,
    STRING,
    TABLE_IDENTIFIER,
    VARIES,
    Layout,
    Packed,
    Program,
    aligned,
)
from jitdelegate.program.shared_pages import LEAST_PAGES, find_shared, hash_of, stored_ranges, whole_bytes, whole_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jitdelegate.program.program import FileParts, Kind, SharedPages

_OFFSET_BYTES = 4
_ELEMENT_BYTES = 8


def write(program: Program) -> bytes:
    """The bytes of `program`'s file with all its weights; equal programs give equal bytes in every process.

    The weights' hash in the file is computed from the weights; `program.weights_hash` is ignored.
    """
    return b"".join(parts(program))


def parts(program: Program, sources: Sequence[Program | None] = ()) -> FileParts:
    """The file in parts, to be written one after the other: all before the weights, and the weights uncopied, without
    the pages that one of the `sources` stores."""
    lacking, own = program.shared, memoryview(program.weights)
    shared = find_shared(own, sources, lacking) if any(sources) else ()
    if not shared:
        return _front(program, len(own), (), ""), program.weights
    main = sources[0] if any(number == 0 for _, number, _, _ in shared) else None
    stored = []
    for start, end in stored_ranges(shared, whole_bytes(own, lacking)):
        before = PAGE * sum(pages for first, _, _, pages in lacking if first * PAGE < start)
        stored.append(own[start - before : end - before])
    return _front(program, sum(map(len, stored)), shared, main.weights_hash if main else "", sources), *stored


def front_of_whole(program: Program, sources: Sequence[Program | None]) -> bytes:
    """All before the weights in a file that has all of them, also those that `program.weights` lack."""
    return _front(program, whole_bytes(program.weights, program.shared), (), "", sources)


def _front(
    program: Program, weights_bytes: int, shared: SharedPages, main_hash: str, sources: Sequence[Program | None] = ()
) -> bytes:
    """All before the weights, of which `weights_bytes` are stored."""
    weights_hash = hash_of(whole_parts(program.weights, sources, program.shared))
    own = {"shared": shared, "main_hash": main_hash, "weights_hash": weights_hash}
    table, code = _table(program, own), bytes(program.code)
    may_be_mapped = whole_bytes(program.weights, program.shared) >= LEAST_PAGES * PAGE
    code_offset = aligned(HEADER_BYTES + len(table), LINE)
    weights_offset = aligned(code_offset + len(code), PAGE if may_be_mapped else LINE)
    table_part = table.ljust(code_offset - HEADER_BYTES, b"\0")
    code_part = code.ljust(weights_offset - code_offset, b"\0")
    header = HEADER.pack(
        MAGIC,
        FORMAT_VERSION,
        HEADER_BYTES,
        weights_offset + weights_bytes,
        *(HEADER_BYTES, len(table)),
        *(code_offset, len(code)),
        *(weights_offset, weights_bytes),
        xxh3_128_digest(table_part),
        xxh3_128_digest(code_part),
    )
    return b"".join((header, xxh3_128_digest(header), table_part, code_part))


def _table(program: Program, own: dict[str, Any]) -> bytes:
    """The table; `own` has the values that are not the program's."""
    builder = flatbuffers.Builder(4096)
    values = {name: getattr(program, name) for name, _ in Program.layout.fields} | own
    builder.Finish(_write_table(builder, Program.layout, values), TABLE_IDENTIFIER)
    return bytes(builder.Output())


def _write_table(builder: Any, layout: Layout, values: dict[str, Any]) -> int:
    """Write the children first, as FlatBuffers requires, then the table; returns its offset."""
    stored = [_write_child(builder, kind, values[name]) for name, kind in layout.fields]
    builder.StartObject(len(stored))
    for slot, ((_, kind), value) in enumerate(zip(layout.fields, stored, strict=True)):
        if kind == INTEGER:
            builder.PrependInt64Slot(slot, value, 0)
        else:
            builder.PrependUOffsetTRelativeSlot(slot, value, 0)
    return int(builder.EndObject())


def _write_child(builder: Any, kind: Kind, value: Any) -> int:
    """Offset of a value stored outside the table, 0 for none; an integer, stored inside, as it is."""
    if kind == INTEGER:
        return int(value)
    if not len(value):
        return 0
    if kind == STRING:
        return int(builder.CreateSharedString(value))
    if kind == INTEGERS:
        return _write_vector(builder, builder.PrependInt64, _ELEMENT_BYTES, value)
    if isinstance(kind, Packed):
        return _write_packed(builder, kind, value)
    if kind == REALS:
        return _write_vector(builder, builder.PrependFloat64, _ELEMENT_BYTES, value)
    assert isinstance(kind, Layout)
    tables = [_write_table(builder, kind, _values(kind, item)) for item in value]
    return _write_vector(builder, builder.PrependUOffsetTRelative, _OFFSET_BYTES, tables)


def _write_packed(builder: Any, kind: Packed, value: Any) -> int:
    groups = [value] if kind.size == 1 else [pack(value)] if kind.size == VARIES else value
    elements = [element for group in groups for element in group]
    if kind.name == INTEGER:
        return _write_vector(builder, builder.PrependInt64, _ELEMENT_BYTES, elements)
    texts = [int(builder.CreateSharedString(element)) for element in elements]
    return _write_vector(builder, builder.PrependUOffsetTRelative, _OFFSET_BYTES, texts)


def _values(layout: Layout, item: Any) -> dict[str, Any]:
    if isinstance(item, tuple):
        return dict(zip((name for name, _ in layout.fields), item, strict=True))
    return {name: getattr(item, name) for name, _ in layout.fields}


def _write_vector(builder: Any, prepend: Any, width: int, values: Any) -> int:
    builder.StartVector(width, len(values), width)
    for value in reversed(values):
        prepend(value)
    return int(builder.EndVector())
