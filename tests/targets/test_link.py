"""The flat blob: runs anywhere, and whatever would need a loader is refused."""

from __future__ import annotations

import pytest

from jitdelegate.targets.cpu.code.machine import compile_object
from jitdelegate.targets.cpu.entry.link import link

HEAD = 'target triple = "x86_64-unknown-linux-gnu"\n'


def test_every_global_function_is_exported_and_internal_ones_are_not() -> None:
    ir = HEAD + "define internal void @b() noinline { ret void }\ndefine void @a() { call void @b()\n ret void }\n"
    blob, exports = link(compile_object(ir, "x86-64-v3"))
    assert set(exports) == {"a"}
    assert len(blob) > exports["a"]


def test_an_undefined_symbol_is_refused_by_name() -> None:
    ir = HEAD + "declare void @elsewhere()\ndefine void @a() { call void @elsewhere()\n ret void }\n"
    with pytest.raises(ValueError, match="external symbol 'elsewhere'"):
        link(compile_object(ir, "x86-64-v3"))


def test_writable_data_is_refused() -> None:
    ir = HEAD + "@counter = internal global i64 1\ndefine i64 @a() { %v = load i64, ptr @counter\n"
    ir += "%w = add i64 %v, 1\n store i64 %w, ptr @counter\n ret i64 %v }\n"
    with pytest.raises(ValueError, match="writable"):
        link(compile_object(ir, "x86-64-v3"))


def test_what_is_no_object_is_refused() -> None:
    with pytest.raises(ValueError, match="not an ELF object"):
        link(b"MZ" + bytes(100))
