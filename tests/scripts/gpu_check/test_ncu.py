"""The profiler's section; no tool of NVIDIA's is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.gpu_check import ncu
from scripts.gpu_check.bundle import EXAMPLE, MODEL
from tests.scripts.gpu_check.machine import bundle, entry, library, of_families, tools, use


def test_the_profiler_sees_the_longest_launch_of_each_family_and_then_the_longest(tmp_path: Path) -> None:
    single = of_families(tmp_path, entry(("mma", 10.0), ("map", 5.0), ("mma", 30.0)), entry(("map", 7.0)))
    many = of_families(tmp_path, entry(("mma", 300.0), ("mma", 200.0)), batch=8)
    found = [(one.case.name, number) for one, number in ncu.chosen([*single, *many])]
    assert found[:3] == [("0, batch 8", 0), ("0, batch 1", 2), ("1, batch 1", 0)]
    assert found[3:] == [("0, batch 8", 1), ("0, batch 1", 0), ("0, batch 1", 1)]


def test_the_profilers_table_is_read_and_what_it_lacks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library())
    table = (
        '==PROF== Connected\n"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'
        '"0","k","Duration","ns","1,234.5"\n"0","k","Function Cache Configuration","","CachePreferNone"\n'
    )
    (tmp_path / "table").write_text(table)
    tools(monkeypatch, tmp_path, "ncu", f"cat {tmp_path / 'table'}")
    found = bundle(tmp_path, names=(EXAMPLE,), group=MODEL)
    told, duration = ncu.rows(found)
    assert (told.value, told.note) == (
        1.0,
        'of 2; ended with 0: "0","k","Function Cache Configuration","","CachePreferNone"',
    )
    assert (duration.subject, duration.quantity) == (f"{EXAMPLE}, float16: launch 0 map", "Duration")
    assert (duration.value, duration.note) == (1234.5, "ns")
