"""The flat blob: runs anywhere, and whatever would need a loader is refused."""

from __future__ import annotations

import struct

import pytest

from jitdelegate.targets.cpu.code.machine import compile_object
from jitdelegate.targets.cpu.entry.link import MACHINES, Machine, link

HEADS = {name: f'target triple = "{name}-unknown-linux-gnu"\n' for name in ("x86_64", "aarch64")}
LEVEL = {"x86_64": "x86-64-v3", "aarch64": "aarch64"}
each = pytest.mark.parametrize("architecture", HEADS)


def linked(architecture: str, ir: str) -> tuple[bytes, dict[str, int]]:
    return link(compile_object(HEADS[architecture] + ir, LEVEL[architecture]))


@each
def test_every_global_function_is_exported_and_internal_ones_are_not(architecture: str) -> None:
    ir = "define internal void @b() noinline { ret void }\ndefine void @a() { call void @b()\n ret void }\n"
    blob, exports = linked(architecture, ir)
    assert set(exports) == {"a"}
    assert len(blob) > exports["a"]


@each
def test_an_undefined_symbol_is_refused_by_name(architecture: str) -> None:
    ir = "declare void @elsewhere()\ndefine void @a() { call void @elsewhere()\n ret void }\n"
    with pytest.raises(ValueError, match="external symbol 'elsewhere'"):
        linked(architecture, ir)


@each
def test_a_relocation_that_is_not_known_is_refused(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in MACHINES:
        monkeypatch.setitem(MACHINES, number, Machine(b"\0"))
    ir = "@data = constant i32 7\ndefine i32 @a() { %v = load volatile i32, ptr @data\n ret i32 %v }\n"
    with pytest.raises(ValueError, match=r"relocation of type \d+, expected a PC-relative one"):
        linked(architecture, ir)


@each
def test_writable_data_is_refused(architecture: str) -> None:
    ir = "@counter = internal global i64 1\ndefine i64 @a() { %v = load i64, ptr @counter\n"
    ir += "%w = add i64 %v, 1\n store i64 %w, ptr @counter\n ret i64 %v }\n"
    with pytest.raises(ValueError, match="writable"):
        linked(architecture, ir)


def word_at(blob: bytes, offset: int) -> int:
    return int.from_bytes(blob[offset : offset + 4], "little")


def page_address(word: int, place: int) -> int:
    """Where ADRP points."""
    assert word & 0x9F000000 == 0x90000000
    pages = word >> 29 & 3 | (word >> 5 & 0x7FFFF) << 2
    return (place & -4096) + ((pages ^ 1 << 20) - (1 << 20) << 12)


@pytest.mark.parametrize("padding", [0, 5000])
@pytest.mark.parametrize(("type_", "scale"), [("i8", 0), ("i16", 1), ("i32", 2), ("i64", 3), ("<2 x i64>", 4)])
def test_loads_by_page_find_their_constant(type_: str, scale: int, padding: int) -> None:
    """An ADRP, then a load at a multiple of its size. The constant is aligned, and lies after others."""
    values = "<i64 77, i64 77>" if scale == 4 else "77"
    ir = f"@before = constant [{padding or 1} x i8] zeroinitializer\n@wanted = internal constant {type_} {values}\n"
    ir += f"define {type_} @a() {{ %v = load volatile {type_}, ptr @wanted\n ret {type_} %v }}\n"
    blob, exports = linked("aarch64", ir)
    start = exports["a"]
    found = page_address(word_at(blob, start), start) + ((word_at(blob, start + 4) >> 10 & 0xFFF) << scale)
    assert blob[found] == 77
    assert exports["before"] <= found - padding or found < exports["before"]


DATA = '@data = internal constant [4 x i8] c"abcd"\n'
ADDRESS = "() noinline { ret ptr getelementptr (i8, ptr @data, i64 2) }\n"
CALL = "define ptr @a() { %p = call ptr @b()\n ret ptr %p }\n"


@pytest.mark.parametrize("is_apart", [False, True])
def test_addresses_and_calls_reach_what_they_name(is_apart: bool) -> None:
    """Also in an object of its own, which a program lacks."""
    if is_apart:
        function = compile_object(HEADS["aarch64"] + DATA + "define ptr @one" + ADDRESS, LEVEL["aarch64"])
        ir = HEADS["aarch64"] + "declare hidden ptr @b()\n" + CALL
        blob, exports = link(compile_object(ir, LEVEL["aarch64"]), {"b": function})
    else:
        blob, exports = linked("aarch64", DATA + "define internal ptr @b" + ADDRESS + CALL)
    assert set(exports) == {"a"}
    words = range(exports["a"], len(blob) - 3, 4)
    place = next(at for at in words if word_at(blob, at) & 0x7C000000 == 0x14000000)  # B or BL
    jump = word_at(blob, place) & 0x3FFFFFF
    callee = place + 4 * ((jump ^ 1 << 25) - (1 << 25))
    data = page_address(word_at(blob, callee), callee) + (word_at(blob, callee + 4) >> 10 & 0xFFF)
    assert blob[data : data + 2] == b"cd"


def test_a_distance_that_does_not_fit_is_refused() -> None:
    branch = MACHINES[183].kinds[283]
    assert branch.patched(0x94000000, 1 << 27, 4) == 0x94000000 | (1 << 25) - 1
    for target in (1 << 27, -(1 << 27) - 4):
        with pytest.raises(struct.error, match="does not fit 26 bits"):
            branch.patched(0x94000000, target, 0)
    with pytest.raises(struct.error, match="no multiple of 16"):
        MACHINES[183].kinds[299].patched(0, 4104, 0)
    with pytest.raises(struct.error, match="does not fit 21 bits"):
        MACHINES[183].kinds[275].patched(0, 1 << 32, 0)


def test_another_machine_is_refused() -> None:
    elf = bytearray(compile_object(HEADS["x86_64"] + "define void @a() { ret void }", "x86-64-v3"))
    elf[0x12] = 243
    with pytest.raises(ValueError, match="machine type 243"):
        link(bytes(elf))


def test_what_is_no_object_is_refused() -> None:
    with pytest.raises(ValueError, match="not an ELF object"):
        link(b"MZ" + bytes(100))
