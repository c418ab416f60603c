"""The level is what this CPU and its system offer."""

from __future__ import annotations

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


def kernels_list() -> set[str]:
    """Empty for other processors, whose list is named otherwise."""
    text = Path("/proc/cpuinfo").read_text()
    return set(next((line for line in text.splitlines() if line.startswith("flags")), "").split())


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


@pytest.mark.parametrize("platform_name", ["darwin", "win32"])
def test_another_system_is_generic(monkeypatch: pytest.MonkeyPatch, platform_name: str) -> None:
    monkeypatch.setattr(host.sys, "platform", platform_name)
    assert host._ask() == ("generic",)
