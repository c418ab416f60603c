"""The level is what this CPU and its system offer."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jitdelegate.base.options import PRECISIONS
from jitdelegate.base.targets import LEVELS, Level
from jitdelegate.targets import host, target_named
from jitdelegate.targets.cpu.code.machine import compile_object
from tests.child import answer_of

V3 = {"avx", "avx2", "fma", "bmi1", "bmi2", "f16c", "abm", "movbe", "popcnt", "sse4_2"}
V4 = V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
FLAGS = {
    "x86-64-v3": V3,
    "x86-64-v3-vnni": V3 | {"avx_vnni"},
    "x86-64-v4": V4,
    "x86-64-v4-vnni": V4 | {"avx512_vnni"},
    "x86-64-v4-vbmi": V4 | {"avx512_vnni", "avx512vbmi"},
    "x86-64-v4-bf16": V4 | {"avx512_vnni", "avx512vbmi", "avx512_bf16", "sse4a"},
}
ALL = V4 | {"avx_vnni", "avx512_vnni", "avx512vbmi", "avx512_bf16", "sse4a"}

linux_x86 = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="only Linux on x86-64 is asked"
)
tells = pytest.mark.skipif(
    not hasattr(host.libc, "__x86_get_cpuid_feature_leaf"), reason="only glibc 2.33 and later tells"
)


linux_arm = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "aarch64", reason="only Linux on AArch64 is asked so"
)


def kernels_list(name: str = "flags") -> set[str]:
    """Empty for other processors, whose list is named otherwise."""
    text = Path("/proc/cpuinfo").read_text()
    return set(next((line for line in text.splitlines() if line.startswith(name)), "").split())


@linux_x86
def test_the_levels_agree_with_the_kernels_own_list() -> None:
    expected = tuple(name for name, flags in FLAGS.items() if flags <= kernels_list())
    assert host.levels() == ("generic", *expected)
    assert host.level() == next(name for name in reversed(host.levels()) if name != "x86-64-v4-bf16")


@linux_x86
def test_a_level_that_is_only_for_one_precision_is_taken_for_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_known", ("generic", *FLAGS))
    assert [host.level(precision) for precision in PRECISIONS] == [*["x86-64-v4-vbmi"] * 3, "x86-64-v4-bf16"]


@linux_x86
@pytest.mark.parametrize("source", [pytest.param(host._flags_of_libc, marks=tells), host._flags_of_kernel])
def test_both_sources_know_every_flag(source: Callable[[], list[str]]) -> None:
    assert {*host._BITS} == ALL
    assert {*source()} & ALL == kernels_list() & ALL


@linux_x86
def test_the_cpu_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = host.level()
    monkeypatch.setattr(host, "_ask", lambda: pytest.fail("asked again"))
    assert host.level() == expected


@linux_x86
@pytest.mark.parametrize("missing", sorted(ALL))
def test_a_missing_flag_takes_the_levels_that_need_it(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_flags_of_libc", lambda: sorted(ALL - {missing}))
    assert host._ask() == ("generic", *(name for name, flags in FLAGS.items() if missing not in flags))


@linux_x86
@tells
@pytest.mark.skipif(not kernels_list() >= V3 if sys.platform == "linux" else True, reason="the CPU has no AVX2")
def test_what_the_process_may_not_use_lowers_the_level() -> None:
    """glibc's own setting hides a flag from one process, as a system does that does not save the registers."""
    assert answer_of(host.level, GLIBC_TUNABLES="glibc.cpu.hwcaps=-AVX2") == "generic"


@linux_x86
def test_a_c_library_that_does_not_tell_leaves_it_to_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = host.levels()
    monkeypatch.setattr(host, "libc", object())
    assert host._ask() == expected
    monkeypatch.setattr("builtins.open", lambda *arguments, **further: (_ for _ in ()).throw(FileNotFoundError()))
    assert host._ask() == ("generic",)


@linux_x86
def test_a_row_of_the_table_is_a_further_level(monkeypatch: pytest.MonkeyPatch) -> None:
    further = LEVELS["x86-64-v3"].with_more("x86-64-v3-fast", ("fast",), "+aes")
    monkeypatch.setitem(LEVELS, further.name, further)
    monkeypatch.setattr(host, "_flags_of_libc", lambda: [*V3, "fast"])
    assert host._ask() == ("generic", "x86-64-v3", "x86-64-v3-fast")
    assert target_named("cpu").channel_unit(further.name) == 8
    assert compile_object("define void @f() { ret void }", further.name)


def test_a_level_of_another_processor_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LEVELS, "armv8-a", Level(name="armv8-a", host="aarch64"))
    monkeypatch.setattr(host, "_flags_of_libc", lambda: sorted(ALL))
    assert "armv8-a" not in host._ask() or platform.machine() == "aarch64"


@linux_arm
def test_the_flags_of_the_process_are_the_kernels_own() -> None:
    assert {*host._flags_of_start()} == kernels_list("Features") & {*host._HWCAPS}
    assert host.levels()[:2] == ("generic", "aarch64")


def test_levels_of_aarch64_follow_its_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [level for level in LEVELS.values() if level.host == "aarch64"]
    assert {flag for level in rows for flag in level.flags} <= {*host._HWCAPS}
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "board", "6", "1", "aarch64")))
    for level in rows:
        monkeypatch.setattr(host, "_flags_of_start", lambda level=level: [*level.flags])
        assert host._ask()[-1] == level.name
        assert host._ask() == ("generic", *(one.name for one in rows if {*one.flags} <= {*level.flags}))


@pytest.mark.parametrize(("name", "word", "bit"), [("asimd", 16, 1), ("asimddp", 16, 20), ("i8mm", 26, 13)])
def test_a_bit_of_the_auxiliary_vector_is_a_flag(
    monkeypatch: pytest.MonkeyPatch, name: str, word: int, bit: int
) -> None:
    class CLibrary:
        @staticmethod
        def getauxval(asked: int) -> int:
            return 1 << bit if asked == word else 0

    monkeypatch.setattr(CLibrary, "getauxval", ctypes.CFUNCTYPE(ctypes.c_ulong, ctypes.c_ulong)(CLibrary.getauxval))
    monkeypatch.setattr(host, "libc", CLibrary)
    assert host._flags_of_start() == [name]


def test_a_c_library_without_the_auxiliary_vector_gives_no_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "libc", object())
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "board", "6", "1", "aarch64")))
    assert host._ask() == ("generic",)


@pytest.mark.parametrize("platform_name", ["darwin", "win32"])
def test_another_system_is_generic(monkeypatch: pytest.MonkeyPatch, platform_name: str) -> None:
    monkeypatch.setattr(host.sys, "platform", platform_name)
    assert host._ask() == ("generic",)
