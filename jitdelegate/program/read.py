"""Reads a program's untrusted file. Load path: struct and xxhash only."""

from __future__ import annotations

from xxhash import xxh3_128, xxh3_128_digest

from jitdelegate.errors import ProgramError
from jitdelegate.program.flatbuffer import FlatBuffer
from jitdelegate.program.program import (
    FORMAT_VERSION,
    HEADER,
    HEADER_BYTES,
    INTEGER,
    INTEGERS,
    LARGEST_MEMORY,
    LINE,
    LITERT,
    MAGIC,
    READ_LATER,
    REALS,
    STRING,
    TABLE_IDENTIFIER,
    VARIES,
    Layout,
    Packed,
    Program,
    aligned,
    check_port,
    check_range,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from _typeshed import ReadableBuffer

    from jitdelegate.program.flatbuffer import Table
    from jitdelegate.program.program import Kind

_COUNTS = ("arena_bytes", "scratch_bytes", "sync_bytes", "num_subgraphs", "num_tensors", "num_nodes")
_PLAIN_LOADERS = ("flat", "object", "none")
_RARE = (
    *("states", "shape_inputs", "partitions", "between", "idle", "aliases"),
    *("launches", "input_offsets", "output_offsets", "windows"),
)
"""Fields that are empty in programs of plain CPU code."""


def read(buffer: ReadableBuffer, *, verify_code: bool = True) -> Program:
    """The program in a whole file's bytes. Its weights are a view into them, its table and code a copy.

    Args:
        verify_code: False skips the code's hash, for tools that only read the table.
    Raises:
        ProgramError: the bytes are not a program that this version wrote, or they are damaged.
    """
    content = _bytes(buffer)
    start = weights_start(content, len(content))
    return read_parts(bytes(content[:start]), content[start:], verify_code=verify_code)


def weights_start(head: ReadableBuffer, nbytes: int) -> int:
    """Offset of the weights in a file of `nbytes` bytes that begins with `head`.

    Raises:
        ProgramError: the file is not a program of this version, or its size is wrong.
    """
    start: int = _header(_bytes(head), nbytes).weights
    return start


def read_parts(front: ReadableBuffer, weights: ReadableBuffer, *, verify_code: bool = True) -> Program:
    """The program of a file that is split into `front` and `weights`; code and weights are views into them.

    Header, table and code are hashed, and every offset, length and count is checked before it is used.
    `verify_weights` checks the weights. `front` must not change while the program is used.

    Raises:
        ProgramError: as `read`.
    """
    rest = _bytes(weights)
    program = read_front(front, len(_bytes(front)) + len(rest), verify_code=verify_code)
    if program.shared:
        raise ProgramError("a part of the weights lies in another entry, expected all of them")
    return complete(program, rest)


def read_front(front: ReadableBuffer, nbytes: int, *, verify_code: bool = True) -> Program:
    """The program in a file of `nbytes` bytes before its weights; `complete` gives it those.

    Raises:
        ProgramError: as `read`.
    """
    content = _bytes(front)
    parts = _header(content, nbytes)
    if parts.weights != len(content):
        raise ProgramError(f"weights are at {parts.weights}, expected {len(content)}")
    _check_hash("table", content[parts.table : parts.code], parts.table_hash)
    if verify_code:
        _check_hash("code", content[parts.code : parts.weights], parts.code_hash)
    table = FlatBuffer(content[parts.table : parts.table + parts.table_bytes], ProgramError)
    program = _read_program(table.root(TABLE_IDENTIFIER, "program"))
    program.code = content[parts.code : parts.code + parts.code_bytes]
    return program


def complete(program: Program, weights: ReadableBuffer) -> Program:
    """The program of `read_front` with all its weights, which are not copied, and with checked bounds.

    Raises:
        ProgramError: as `read`.
    """
    program.weights = _bytes(weights)
    _check(program)
    return program


def verify_weights(program: Program, parts: Sequence[ReadableBuffer] = ()) -> None:
    """Hash the weights; call it before any result computed from them is used.

    Args:
        parts: the weights, one part after another, where not all of them are read at one place.
    Raises:
        ProgramError: the weights are damaged.
    """
    state = xxh3_128()
    for part in parts or (program.weights,):
        state.update(part)
    found = state.hexdigest()
    if found != program.weights_hash:
        raise ProgramError(f"weights: hash of {len(program.weights)} bytes is {found}, expected {program.weights_hash}")


class _Header:
    """The header's fields after the version; offsets and sizes in bytes."""

    __slots__ = (
        "code",
        "code_bytes",
        "code_hash",
        "file_bytes",
        "table",
        "table_bytes",
        "table_hash",
        "weights",
        "weights_bytes",
    )

    def __init__(self, content: memoryview) -> None:
        (
            *_,
            self.file_bytes,
            self.table,
            self.table_bytes,
            self.code,
            self.code_bytes,
            self.weights,
            self.weights_bytes,
            self.table_hash,
            self.code_hash,
        ) = HEADER.unpack_from(content)


def _bytes(buffer: ReadableBuffer) -> memoryview:
    try:
        return memoryview(buffer).cast("B").toreadonly()
    except (TypeError, ValueError) as error:
        raise ProgramError(f"not readable as bytes: {error}") from error


def _header(content: memoryview, nbytes: int) -> _Header:
    if len(content) < HEADER_BYTES:
        raise ProgramError(f"{len(content)} bytes, expected a header of {HEADER_BYTES}")
    magic, version = HEADER.unpack_from(content)[:2]
    if magic != MAGIC:
        raise ProgramError(f"not a program: bytes 0..7 are {magic!r}, expected {MAGIC!r}")
    if version != FORMAT_VERSION:
        raise ProgramError(f"format version {version}, expected {FORMAT_VERSION}")
    _check_hash("header", content[: HEADER.size], bytes(content[HEADER.size : HEADER_BYTES]))
    header = _Header(content)
    if header.file_bytes != nbytes:
        raise ProgramError(f"{nbytes} bytes, the header says {header.file_bytes}")
    _check_parts(header)
    return header


def _check_parts(header: _Header) -> None:
    """Check that the parts follow each other without gaps or overlaps, as `write` places them."""
    code = aligned(HEADER_BYTES + header.table_bytes, LINE)
    end = code + header.code_bytes
    found = (header.table, header.code, header.weights, header.file_bytes)
    starts = {aligned(end, LINE), aligned(end)}
    expected = [(HEADER_BYTES, code, weights, weights + header.weights_bytes) for weights in sorted(starts)]
    if found not in expected:
        raise ProgramError(f"table, code, weights and end are at {found}, expected {expected[0]}")


def _check_hash(name: str, part: memoryview, expected: bytes) -> None:
    found = xxh3_128_digest(part)
    if found != expected:
        raise ProgramError(f"{name}: hash of {len(part)} bytes is {found.hex()}, expected {expected.hex()}")


def _check(program: Program) -> None:
    """Check the bounds of every value; the runtime relies on them."""
    if program.target == LITERT and program.loader != "none":
        raise ProgramError(f"a program for {LITERT} has the loader {program.loader}, expected none")
    for name in _COUNTS:
        check_range(name, getattr(program, name), LARGEST_MEMORY)
    for name, offset in program.entries:
        check_range(f"entry {name}", offset, len(program.code) - 1)
    for port in program.inputs + program.outputs:
        check_port(port)
    if program.loader not in _PLAIN_LOADERS or any(getattr(program, name) for name in _RARE):
        from jitdelegate.program.check import check  # not before: most programs are plain CPU code

        check(program)


def _read_program(table: Table) -> Program:
    layout = Program.layout
    fields = {name: (slot, name, kind) for slot, (name, kind) in enumerate(layout.fields)}
    later = {name: fields.pop(name) for name in READ_LATER}
    program = Program(**{name: _read_field(table, *field) for name, field in fields.items()})
    program.read_later(**{name: lambda field=field: _read_field(table, *field) for name, field in later.items()})
    return program


def _read_table(table: Table, layout: Layout) -> Any:
    return layout.make(
        **{name: _read_field(table, slot, name, kind) for slot, (name, kind) in enumerate(layout.fields)}
    )


def _read_field(table: Table, slot: int, name: str, kind: Kind) -> Any:
    if kind == INTEGER:
        return table.integer(slot, name, "q")
    if kind == STRING:
        return table.string(slot, name)
    if kind == INTEGERS:
        return table.integers(slot, name, "q")
    if kind == REALS:
        return table.scalars(slot, name, "d")
    if isinstance(kind, Packed):
        return _unpacked(
            kind, name, table.strings(slot, name) if kind.name == STRING else table.integers(slot, name, "q")
        )
    assert isinstance(kind, Layout)
    return tuple(_read_table(item, kind) for item in table.tables(slot, name))


def _unpacked(kind: Packed, name: str, elements: Sequence[Any]) -> tuple[Any, ...]:
    if not elements or kind.size == 1:
        return tuple(elements)
    if kind.size == VARIES:
        from jitdelegate.program.launch_list import unpack  # most programs are for the CPU

        return unpack(elements)
    if len(elements) % kind.size:
        raise ProgramError(f"{name} has {len(elements)} elements, expected {kind.size} for each")
    return tuple(tuple(elements[at : at + kind.size]) for at in range(0, len(elements), kind.size))
