"""The checked reader alone, on FlatBuffers that the flatbuffers package or these tests make."""

from __future__ import annotations

import struct

import pytest
from flatbuffers import Builder

from jitdelegate.program.flatbuffer import FlatBuffer, Table
from tests import imports
from tests.child import answer_of


class RefusedError(Exception):
    """The error class that these tests hand to the reader."""


def root(content: bytes | bytearray) -> Table:
    return FlatBuffer(content, RefusedError).root(b"TEST", "file")


def sample() -> bytes:
    """Slots: 0 i8 -3, 1 f64 0.5, 2 absent, 3 text, 4 [i32], 5 [text], 6 [table], 7 table, 8 [u8], 9 bool."""
    builder = Builder()
    text = builder.CreateString("héllo")
    words = [builder.CreateString(word) for word in ("a", "bc")]
    builder.StartVector(4, 2, 4)
    for word in reversed(words):
        builder.PrependUOffsetTRelative(word)
    texts = builder.EndVector()
    builder.StartVector(4, 3, 4)
    for number in reversed((1, -2, 3)):
        builder.PrependInt32(number)
    numbers = builder.EndVector()
    builder.StartObject(1)
    builder.PrependUint16Slot(0, 77, 0)
    child = builder.EndObject()
    builder.StartVector(4, 2, 4)
    builder.PrependUOffsetTRelative(child)
    builder.PrependUOffsetTRelative(child)
    children = builder.EndVector()
    memory = builder.CreateByteVector(b"raw")
    builder.StartObject(10)
    builder.PrependInt8Slot(0, -3, 0)
    builder.PrependFloat64Slot(1, 0.5, 0.0)
    for slot, offset in ((3, text), (4, numbers), (5, texts), (6, children), (7, child), (8, memory)):
        builder.PrependUOffsetTRelativeSlot(slot, offset, 0)
    builder.PrependBoolSlot(9, True, False)
    builder.Finish(builder.EndObject(), b"TEST")
    return bytes(builder.Output())


def by_hand(fields: bytes, table: bytes, behind: bytes = b"") -> bytes:
    """A file of field offsets, then the root table (its first four bytes lead back to them), then anything."""
    at = 8 + len(fields)
    return struct.pack("<I", at) + b"TEST" + fields + struct.pack("<i", len(fields)) + table + behind


def test_every_kind_of_field_is_read() -> None:
    table = root(sample())
    assert (table.scalar(0, "i8", "b", 0), table.scalar(1, "f64", "d", 0.0)) == (-3, 0.5)
    assert table.string(3, "text") == "héllo"
    assert table.integers(4, "numbers", "i") == (1, -2, 3)
    assert table.strings(5, "texts") == ("a", "bc")
    assert [each.integer(0, "u16", "H") for each in table.tables(6, "children")] == [77, 77]
    child = table.table(7, "child")
    assert child is not None and child.integer(0, "u16", "H") == 77
    assert (bytes(table.memory(8, "memory")), table.blob(8, "memory")) == (b"raw", b"raw")
    assert table.scalar(9, "flag", "?", False) is True


@pytest.mark.parametrize("slot", [2, 10, 1000])
def test_absent_fields_read_as_defaults(slot: int) -> None:
    table = root(sample())
    assert slot not in table.stored()
    assert table.scalar(slot, "x", "i", 5) == 5
    assert table.string(slot, "x") == ""
    assert table.table(slot, "x") is None
    assert [*table.scalars(slot, "x", "f"), *table.strings(slot, "x"), *table.tables(slot, "x")] == []
    assert len(table.memory(slot, "x")) == 0


def test_the_place_of_a_table_is_its_path() -> None:
    table = root(sample())
    child = table.table(7, "child")
    assert child is not None
    assert (table.path, child.path, table.tables(6, "children")[1].path) == (
        "file",
        "file.child",
        "file.children[1]",
    )


def test_memory_is_not_copied() -> None:
    content = bytearray(sample())
    memory = root(content).memory(8, "memory")
    content[content.index(b"raw")] = ord("R")
    assert bytes(memory) == b"Raw"


def test_any_identifier_will_do_where_none_is_asked_for() -> None:
    assert FlatBuffer(sample(), RefusedError).root(b"", "file").stored()


def test_another_identifier_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"file: bytes 4\.\.7 are b'TEST', expected b'OTHR'"):
        FlatBuffer(sample(), RefusedError).root(b"OTHR", "file")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (by_hand(struct.pack("<HH", 2, 4), b""), "field offsets at byte 8 of 16 have a length of 2 bytes"),
        (by_hand(struct.pack("<HH", 5, 4), b""), "have a length of 5 bytes"),
        (by_hand(struct.pack("<HH", 400, 4), b""), "have a length of 400 bytes"),
        (by_hand(struct.pack("<HH", 4, 3), b""), "the table at byte 12 of 16 has a length of 3 bytes"),
        (by_hand(struct.pack("<HH", 4, 5), b""), "the table at byte 12 of 16 has a length of 5 bytes"),
        (struct.pack("<I4sIi", 12, b"TEST", 0, 99), "the field offsets start at byte -87 of 16"),
        (struct.pack("<I4sIi", 12, b"TEST", 0, -99), "the field offsets start at byte 111 of 16"),
    ],
)
def test_a_root_out_of_bounds_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        root(content)


def one_field(offset: int, value: bytes, behind: bytes = b"") -> Table:
    """A table with the field `value`, which its list of offsets puts at `offset`."""
    return root(by_hand(struct.pack("<HHH", 6, 4 + len(value), offset), value, behind))


@pytest.mark.parametrize("offset", [1, 3, 5, 8, 65535])
def test_a_scalar_outside_of_its_table_is_refused(offset: int) -> None:
    with pytest.raises(RefusedError, match=rf"file\.x: its 4 bytes start at {offset} of a table of 8 bytes"):
        one_field(offset, b"\0\0\0\0").scalar(0, "x", "i", 0)


@pytest.mark.parametrize("target", [0, 1, 5, 0x7FFFFFFF, 0xFFFFFFFF])
def test_an_offset_out_of_the_file_or_onto_itself_is_refused(target: int) -> None:
    with pytest.raises(RefusedError, match=r"file\.x: its offset leads to byte \d+ of 22"):
        one_field(4, struct.pack("<I", target)).string(0, "x")


@pytest.mark.parametrize("count", [4, 0x40000000, 0xFFFFFFFF])
def test_a_vector_out_of_the_file_is_refused(count: int) -> None:
    table = one_field(4, struct.pack("<I", 4), struct.pack("<I3i", count, 1, 2, 3))
    with pytest.raises(
        RefusedError, match=rf"file\.x: its {count} elements of 4 bytes do not fit in the 12 bytes left"
    ):
        table.scalars(0, "x", "i")


def test_a_vector_that_ends_with_the_file_is_read() -> None:
    assert one_field(4, struct.pack("<I", 4), struct.pack("<I3i", 3, 1, 2, 3)).scalars(0, "x", "i") == (1, 2, 3)


def test_tables_that_share_tables_do_not_unfold_without_measure() -> None:
    with pytest.raises(RefusedError, match="are read over and over"):
        unfold(root(chain(18)))


def chain(depth: int) -> bytes:
    """Tables each of which has two fields that lead to the next."""
    builder = Builder()
    builder.StartObject(2)
    table = builder.EndObject()
    for _ in range(depth):
        builder.StartObject(2)
        builder.PrependUOffsetTRelativeSlot(0, table, 0)
        builder.PrependUOffsetTRelativeSlot(1, table, 0)
        table = builder.EndObject()
    builder.Finish(table, b"TEST")
    return bytes(builder.Output())


def unfold(table: Table) -> int:
    """The number of tables below, each counted as often as an offset leads to it."""
    children = [table.table(slot, "next") for slot in (0, 1)]
    return sum(unfold(child) for child in children if child is not None) + 1


def test_a_file_of_nothing_but_empty_tables_is_read() -> None:
    builder = Builder()
    tables = []
    for _ in range(20_000):
        builder.StartObject(0)
        tables.append(builder.EndObject())
    builder.StartVector(4, len(tables), 4)
    for table in tables:
        builder.PrependUOffsetTRelative(table)
    vector = builder.EndVector()
    builder.StartObject(1)
    builder.PrependUOffsetTRelativeSlot(0, vector, 0)
    builder.Finish(builder.EndObject(), b"TEST")
    assert len(root(bytes(builder.Output())).tables(0, "tables")) == 20_000


def test_text_that_is_shared_without_measure_is_refused() -> None:
    builder = Builder()
    text = builder.CreateString("x" * 1000)
    builder.StartVector(4, 10_000, 4)
    for _ in range(10_000):
        builder.PrependUOffsetTRelative(text)
    texts = builder.EndVector()
    builder.StartObject(1)
    builder.PrependUOffsetTRelativeSlot(0, texts, 0)
    builder.Finish(builder.EndObject(), b"TEST")
    with pytest.raises(RefusedError, match="are read over and over"):
        root(bytes(builder.Output())).strings(0, "texts")


def test_importing_the_reader_needs_struct_alone() -> None:
    imported = answer_of(imports.the_flatbuffer_reader)
    assert all(module.startswith("jitdelegate") for module in imported.split()), imported
