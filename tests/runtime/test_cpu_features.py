"""The level is what this CPU and its system offer."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from jitdelegate.errors import DeviceError
from jitdelegate.runtime.arena import Memory
from jitdelegate.runtime.cpu import features

V3 = {"avx", "avx2", "fma", "bmi1", "bmi2", "f16c", "abm", "movbe", "popcnt", "sse4_2"}
V4 = V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}

linux_x86 = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="only Linux on x86-64 is asked"
)


@linux_x86
def test_the_level_agrees_with_the_kernels_own_list() -> None:
    text = Path("/proc/cpuinfo").read_text()
    flags = set(next(line for line in text.splitlines() if line.startswith("flags")).split())
    expected = "x86-64-v4" if flags >= V4 else "x86-64-v3" if flags >= V3 else "generic"
    assert features.level() == expected


@linux_x86
def test_the_cpu_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = features.level()
    monkeypatch.setattr(features, "_ask", lambda: pytest.fail("asked again"))
    assert features.level() == expected


@linux_x86
def test_a_missing_bit_lowers_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    never = 10  # a bit of CPUID leaf 7 that this register keeps zero or that no level asks for
    monkeypatch.setattr(features, "_X86_64_V4", ((0x7FFFFFFF, 0, {"none": never}),))
    assert features._ask() in ("x86-64-v3", "generic")
    monkeypatch.setattr(features, "_X86_64_V3", ((0x7FFFFFFF, 0, {"none": never}),))
    assert features._ask() == "generic"


@linux_x86
def test_registers_that_the_system_does_not_save_lower_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    unsaved = 1 << 62
    monkeypatch.setattr(features, "_ZMM_STATE", unsaved)
    assert features._ask() in ("x86-64-v3", "generic")
    monkeypatch.setattr(features, "_YMM_STATE", unsaved)
    assert features._ask() == "generic"


def test_a_system_without_executable_memory_is_generic(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Memory) -> None:
        raise DeviceError("no executable memory")

    monkeypatch.setattr(Memory, "make_executable", refuse)
    assert features._ask() == "generic"


@pytest.mark.parametrize("platform_name", ["darwin", "win32"])
def test_another_system_is_generic(monkeypatch: pytest.MonkeyPatch, platform_name: str) -> None:
    monkeypatch.setattr(features.sys, "platform", platform_name)
    assert features._ask() == "generic"
