"""Results: where they are written, how they are joined, and their table."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jitdelegate.errors import ProgramError
from scripts.gpu_check import __main__, report
from scripts.gpu_check.bundle import FORM, MODEL
from scripts.gpu_check.orders import DIFFER
from scripts.gpu_check.row import LEFT_OUT, NRMSE, RATIO, Row, measured
from scripts.gpu_check.sections import DEVICE, Section
from tests.scripts.gpu_check.machine import MACHINE, results


def test_the_table_names_the_gpu_and_counts_marks() -> None:
    rows = [
        *MACHINE,
        Row("correctness", "0 ADD, float32", FORM, 1e-7, NRMSE, limit=1e-5),
        Row("correctness", "1 MUL, float32", FORM, 1e-6, NRMSE, limit=1e-5),
        Row("correctness", "2 DIV, float32", FORM, 1e-3, NRMSE, limit=1e-5),
        Row("correctness", "net, float32", MODEL, 1e-6, NRMSE, limit=1e-5),
        *(Row("orders", f"{number} ADD, float32", DIFFER, number // 3, limit=0.0) for number in range(4)),
        measured("latency", "net, float32", "kernels", [1e-4, 2e-4, 3e-4]),
        Row("WebGPU", "LiteRT WebGPU", "a call", note="no |\nadapter"),
    ]
    text = report.table("2026-01-02", rows)
    assert text.startswith("# Stub 9000, 2026-01-02\n")
    assert "| programs whose runs are equal | count | 3 |" in text and text.count(f"| {DIFFER} |") == 1
    assert "6 of 8 hold." in text and "2 DIV, float32, form: 1.0e-03, mark 1.0e-05 **exceeded**" in text
    assert "2 of 3 graphs hold; worst is 2 DIV" in text and "0 ADD" not in text
    assert "| net, float32 | kernels | 0.2 ms | 0.1 ms to 0.3 ms |  |  |" in text
    assert "no / adapter" in text


def test_without_a_gpu_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status, docs = results(monkeypatch, tmp_path, [Row("device", "first", "seconds", note="no NVIDIA driver")])
    assert status == 1 and list(docs.iterdir()) == []


@pytest.mark.parametrize(("value", "status"), [(1e-6, 0), (1e-3, 1)])
def test_results_are_written_and_the_status_says_whether_all_marks_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: float, status: int
) -> None:
    mark = Row("correctness", "net, float32", MODEL, value, NRMSE, limit=1e-5)
    found, docs = results(monkeypatch, tmp_path, [*MACHINE, mark])
    assert found == status
    written = json.loads((docs / "gpu-results.json").read_text())
    assert written["GPU"] == "Stub 9000" and written["date"] == "2026-01-02"
    assert written["rows"][-1] == mark.to_dict()
    assert "Stub 9000" in (docs / "gpu-results.md").read_text()


def test_results_go_where_out_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    carried = tmp_path / "results" / "out"
    _, docs = results(monkeypatch, tmp_path, MACHINE, out=str(carried))
    assert {path.name for path in carried.iterdir()} == {"gpu-results.json", "gpu-results.md", "gpu-results.tgz"}
    assert list(docs.iterdir()) == []


def test_a_section_that_failed_is_a_mark_that_does_not_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = Row("correctness", "first", "seconds", None, "s", limit=130, note="failed with 1: gone")
    status, docs = results(monkeypatch, tmp_path, [*MACHINE, failed])
    text = (docs / "gpu-results.md").read_text()
    assert status == 1 and "0 of 1 hold." in text
    assert "- correctness, first, seconds: failed with 1: gone, mark 130.000 s **missing**" in text


def test_results_are_there_before_the_next_section_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, docs = results(monkeypatch, tmp_path, [])
    found = Row("correctness", "net, float32", MODEL, 1e-6, NRMSE, limit=1e-5)

    def ended(some: list[Section], *rest: Any) -> Iterator[list[Row]]:
        if some == [DEVICE]:
            yield MACHINE
            return
        yield [found]
        raise KeyboardInterrupt

    monkeypatch.setattr(__main__, "run_sections", ended)
    with pytest.raises(KeyboardInterrupt):
        __main__.main([str(tmp_path)])
    assert report.read_json(docs / "gpu-results.json") == [*MACHINE, found]
    assert {path.name for path in docs.iterdir()} == {"gpu-results.json", "gpu-results.md", "gpu-results.tgz"}


def test_commands_add_to_what_earlier_ones_left_in_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    carried = tmp_path / "out"
    carried.mkdir()
    report.write_json(carried / "gpu-results.json", "2026-01-01", EARLIER)
    found = Row("correctness", "net, float32", MODEL, 1e-6, NRMSE, limit=1e-5)
    results(monkeypatch, tmp_path, [*MACHINE, found], out=str(carried))
    assert report.read_json(carried / "gpu-results.json") == [*MACHINE, *EARLIER[3:], found]


def test_families_are_of_all_launches_of_all_results_that_are_joined() -> None:
    def launch(model: str, number: int, ratio: float) -> Row:
        return Row("launches", f"{model}, float16", f"launch {number} reduce", ratio, "s", predicted=1.0)

    first = report.joined([*MACHINE, launch("net", 0, 1.0), launch("net", 1, 3.0)])
    second = report.joined([*MACHINE, launch("other", 0, 2.0)])
    assert [(row.quantity, row.note) for row in first if row.unit == RATIO] == [("measured / predicted", "2 launches")]
    (family,) = [row for row in report.joined(first, second) if row.unit == RATIO]
    assert (family.subject, family.value, family.note) == ("reduce, float16", 2.0, "3 launches")


EARLIER = [
    *MACHINE,
    Row("device", "net, float32", LEFT_OUT, note="no room"),
    Row("device", "other, float32", LEFT_OUT, note="no room"),
    Row("correctness", "small, float32", MODEL, 1e-7, NRMSE, limit=1e-5),
    Row("latency", "small, float32", "kernels", 1e-3, "s"),
]


def test_results_of_one_gpu_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report.write_json(tmp_path / "earlier", "2026-01-01", EARLIER)
    found = Row("correctness", "net, float32", MODEL, 1e-6, NRMSE, limit=1e-5)
    status, docs = results(monkeypatch, tmp_path, [*MACHINE, found], "--join", str(tmp_path / "earlier"))
    assert status == 0
    assert report.read_json(docs / "gpu-results.json") == [*MACHINE, *EARLIER[3:], found]
    assert (docs / "gpu-results.md").read_text().count("## Correctness") == 1


def test_results_are_joined_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [*MACHINE, Row("correctness", "net, float32", MODEL, 1.0, NRMSE, limit=1e-5)]
    for number, rows in enumerate((EARLIER, found)):
        report.write_json(tmp_path / str(number), "2026-01-01", rows)
    joins = ["--only-join", "--join", str(tmp_path / "0"), "--join", str(tmp_path / "1")]
    status, docs = results(monkeypatch, tmp_path, [], *joins)
    assert status == 0
    assert report.read_json(docs / "gpu-results.json") == [*MACHINE, *EARLIER[3:], found[-1]]
    assert "1 of 2 hold." in capsys.readouterr().out


@pytest.mark.parametrize("names", [(), ("no machine",)])
def test_results_that_name_no_gpu_are_not_joined(
    names: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in names:
        report.write_json(tmp_path / name, "2026-01-01", EARLIER[len(MACHINE) :])
    with pytest.raises(SystemExit) as ended:
        __main__.main(["--only-join", *(word for name in names for word in ("--join", str(tmp_path / name)))])
    assert ended.value.code == 2
    assert "give some with --join" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [(), ("--only-join",)])
def test_results_of_another_gpu_are_not_joined(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("Other", "Third") if arguments else ("Other",)
    for name in names:
        report.write_json(tmp_path / name, "2026-01-01", [Row("device", "machine", "GPU", note=name)])
    joins = [word for name in names for word in ("--join", str(tmp_path / name))]
    status, docs = results(monkeypatch, tmp_path, MACHINE, *arguments, *joins)
    assert status == 1 and list(docs.iterdir()) == []
    with pytest.raises(ProgramError, match="holds no results"):
        report.read_json(tmp_path / "manifest.json")


def test_an_archive_has_results_and_logs_and_no_names_of_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sanitizer-racecheck.log").write_text("nothing\n")
    results(monkeypatch, tmp_path, MACHINE, out=str(tmp_path))
    with tarfile.open(tmp_path / report.ARCHIVE) as archive:
        assert archive.getnames() == [report.JSON, report.TABLE, "sanitizer-racecheck.log"]
        assert not any(member.uname or member.gname for member in archive)
    assert report.read_json(tmp_path / report.ARCHIVE) == MACHINE
    (tmp_path / "other.tgz").write_bytes(b"no archive")
    with pytest.raises(ProgramError, match="holds no results"):
        report.read_json(tmp_path / "other.tgz")
