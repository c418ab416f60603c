"""The check on a GPU machine, without one: its bundle, sections, processes, results; no time is asserted."""

from __future__ import annotations

import json
import math
import os
import signal
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jitdelegate.errors import DeviceError, ProgramError
from jitdelegate.program.write import write
from jitdelegate.runtime import cuda_device, cuda_library
from scripts.gpu_check import (
    __main__,
    cold_compile,
    correctness,
    device_facts,
    first_output,
    gpu,
    latency,
    module_load,
    report,
    side_by_side,
    warm_start,
    webgpu,
)
from scripts.gpu_check.bundle import EXAMPLE, FORM, MODEL, PRECISIONS, Bundle, Case, pack, read_bundle, write_bundle
from scripts.gpu_check.child import output_of
from scripts.gpu_check.row import LEFT_OUT, NRMSE, RATIO, Row, measured, newest
from scripts.gpu_check.run_sections import run_sections
from scripts.gpu_check.sections import BUDGET, SECTIONS, Section
from scripts.gpu_check.sides import interleave
from tests.cuda_stub.install import install
from tests.cuda_stub.library import Library
from tests.cuda_stub.programs import KERNELS, SCALE, SHIFT, library, scale_and_shift

X = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)
MACHINE = [Row("device", "machine", "GPU", note="Stub 9000"), Row("device", "machine", "xxhash", note="3.5")]


def floats(values: Any) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


Y = floats([SCALE * x + SHIFT for x in X])


@pytest.fixture(autouse=True)
def fresh_device() -> Iterator[None]:
    """No test sees another's device."""
    gpu.gpu.cache_clear()
    yield
    gpu.gpu.cache_clear()


def use(monkeypatch: pytest.MonkeyPatch, driver: Library) -> Library:
    """The stub is this machine's driver."""
    monkeypatch.setattr(cuda_library, "open_library", lambda: driver)
    monkeypatch.setattr(cuda_device, "declare", lambda library: None)
    return driver


def bundle(folder: Path, *, expected: bytes = Y, names: tuple[str, ...] = ("one",), group: str = FORM) -> Bundle:
    """A folder with `scale_and_shift` under each of the names, in both precisions, for sm_90."""
    for name, content in (("program", pack(write(scale_and_shift()))), ("x", floats(X)), ("y", expected)):
        (folder / name).write_bytes(content)
    programs = {f"sm_90 {precision}": "program" for precision in PRECISIONS}
    limits = {"float32": 1e-5, "float16": 2e-3}
    cases = [Case(name, group, "numpy", ["x"], ["y"], programs, limits) for name in names]
    write_bundle(Bundle(folder, cases, {"large": "no room"}))
    return read_bundle(folder)


def test_a_bundle_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = bundle(tmp_path)
    assert found.left_out == {"large": "no room"} and found.architectures == ["sm_90"]
    first, second = found.prepared("sm_90")
    assert (first.name, second.name) == ("one, float32", "one, float16")
    assert (first.limit, second.limit) == (1e-5, 2e-3)
    assert first.inputs == [floats(X)] and first.outputs == [Y]
    assert list(found.prepared("sm_90", MODEL)) == list(found.prepared("sm_80")) == []


def test_a_folder_that_was_not_prepared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="was not prepared"):
        read_bundle(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": 0}')
    with pytest.raises(ProgramError, match="format 0, expected 1"):
        read_bundle(tmp_path)


def test_programs_for_another_gpu_say_how_to_prepare_for_this_one(tmp_path: Path) -> None:
    found = bundle(tmp_path)
    assert found.architecture((9, 0)) == "sm_90"
    with pytest.raises(ProgramError, match="for sm_90, the GPU is sm_86: prepare with --architectures sm_86"):
        found.architecture((8, 6))


def test_the_newest_programs_that_run_are_taken(tmp_path: Path) -> None:
    programs = {f"{gpu} float32": "program" for gpu in ("sm_86", "sm_80", "sm_90")}
    found = Bundle(tmp_path, [Case("one", FORM, "numpy", [], [], programs)], {})
    assert [found.architecture(each) for each in ((8, 0), (8, 9), (9, 0))] == ["sm_80", "sm_86", "sm_90"]


def test_an_example_that_was_left_out_says_why(tmp_path: Path) -> None:
    found = Bundle(tmp_path, [], {f"{EXAMPLE}, float32": "no room"})
    with pytest.raises(ProgramError, match="no room"):
        found.example("sm_90", "float32")


@pytest.mark.parametrize(
    ("found", "expected", "distance"),
    [
        ((1.0, 2.0), (1.0, 2.0), 0.0),
        ((1.0, 3.0), (1.0, 2.0), 1 / math.sqrt(5)),
        ((math.nan, 1.0), (math.nan, 1.0), 0.0),
        ((math.inf, 1.0), (math.inf, 1.0), 0.0),
        ((math.nan, 1.0), (0.0, 1.0), math.inf),
        ((1.0,), (1.0, 1.0), math.inf),
        ((2.0,), (0.0,), 2.0),
    ],
)
def test_the_distance_is_relative_and_infinite_where_nan_or_lengths_differ(
    found: tuple[float, ...], expected: tuple[float, ...], distance: float
) -> None:
    assert gpu.nrmse(floats(found), floats(expected)) == pytest.approx(distance)


def test_every_program_is_compared_with_what_was_expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library())
    rows = list(correctness.rows(bundle(tmp_path, names=("one", "two"))))
    assert [row.subject for row in rows] == ["one, float32", "one, float16", "two, float32", "two, float16"]
    assert all(row.holds and row.value == 0.0 and row.unit == NRMSE for row in rows)


def test_a_wrong_output_exceeds_its_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library())
    rows = list(correctness.rows(bundle(tmp_path, expected=floats([1.001 * SCALE * x + SHIFT for x in X]))))
    assert [row.holds for row in rows] == [False, True]


def once(path: Path, act: Any) -> Any:
    """A kernel that does something else the first time that any process runs it."""

    def kernel(values: Any, memory: Any) -> None:
        if not path.exists():
            path.touch()
            act(memory)
        KERNELS["scale"](values, memory)

    return kernel


def test_a_kernel_that_fails_costs_only_its_own_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crash = once(tmp_path / "ran", lambda memory: memory.read(4, 4))
    use(monkeypatch, library({**KERNELS, "scale": crash}))
    first, second = correctness.rows(bundle(tmp_path))
    assert first.value is None and first.holds is False and "CUDA_ERROR_ILLEGAL_ADDRESS" in first.note
    assert second.holds


def test_a_process_that_dies_costs_only_its_own_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library({**KERNELS, "scale": once(tmp_path / "ran", lambda memory: os._exit(1))}))
    first, second = correctness.rows(bundle(tmp_path))
    assert first.note == "the process died" and first.holds is False
    assert second.holds


def test_facts_name_the_machine_and_what_was_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library(name="Stub 9000", version=13010))
    rows = list(device_facts.rows(bundle(tmp_path)))
    known = report.facts(rows)
    assert known["GPU"] == "Stub 9000" and known["architecture"] == "sm_90" and known["CUDA of the driver"] == "13.1"
    assert rows[-1] == Row("device", "large", "left out", note="no room")


def test_latency_is_measured_of_models_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = use(monkeypatch, library())
    rows = list(latency.rows(bundle(tmp_path, group=MODEL)))
    assert [row.quantity for row in rows[:4]] == ["kernels", "kernels and copies", "a call", "launches"]
    assert all(row.value for row in rows) and driver.leaks() == []
    assert list(latency.rows(bundle(tmp_path))) == []


def test_a_model_without_a_session_says_why_it_has_no_latency(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = use(monkeypatch, library(total_bytes=100))
    rows = list(latency.rows(bundle(tmp_path, group=MODEL)))
    assert [row.value for row in rows] == [None, None] and "no GPU memory" in rows[0].note
    assert driver.leaks() == []


def test_module_load_leaves_nothing_on_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = use(monkeypatch, library())
    rows = list(module_load.rows(bundle(tmp_path, names=(EXAMPLE,), group=MODEL)))
    assert [row.quantity for row in rows] == ["driver", "context", *2 * ["modules", "open and close"]]
    assert driver.leaks() == []


def test_a_warm_start_hits_the_entry_that_was_filled_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    driver = install(monkeypatch, use(monkeypatch, library()))
    found = bundle(tmp_path, names=(EXAMPLE,), group=MODEL)
    model = tmp_path / "model.tflite"
    model.write_bytes(b"whatever numpy made of it here")
    for precision in PRECISIONS:
        cache = tmp_path / precision
        warm_start._fill(cache, model, found.example("sm_90", precision))
        output = tmp_path / "output"
        assert first_output.main([str(model), str(cache), precision, str(tmp_path / "x"), str(output)]) == 0
        outcome, *stages = capsys.readouterr().out.split()
        assert outcome == "hit" and len(list(map(float, stages))) == len(warm_start.STAGES)
        assert output.read_bytes() == Y
    assert driver.calls["cuGraphLaunch"] == 2


def code(text: str) -> Any:
    """What runs a section as Python code, with the file for its rows in `path`."""
    return lambda section, path: [sys.executable, "-c", f"path = {str(path)!r}\n{text}"]


def line(name: str) -> str:
    """Code that writes a row."""
    return f"print({json.dumps(Row('s', name, 'q', 1.0).to_dict())!r}, file=open(path, 'a'), flush=True)\n"


def test_a_process_that_fails_is_told_by_its_last_words() -> None:
    assert output_of(["-c", "print(1)"]) == "1\n"
    with pytest.raises(DeviceError, match=r"^ValueError: gone$"):
        output_of(["-c", "raise ValueError('gone')"])
    with pytest.raises(DeviceError, match="exit status 3"):
        output_of(["-c", "raise SystemExit(3)"])


def sections(*names: str, seconds: float = 60) -> list[Section]:
    return [Section(name, "nowhere", seconds) for name in names]


def test_what_sections_wrote_is_collected() -> None:
    assert [row.subject for row in run_sections(sections("a"), 60, code(line("x") + line("y")))] == ["x", "y"]


def test_a_section_that_fails_keeps_what_it_found_and_says_how_it_ended() -> None:
    found, ended = run_sections(sections("a"), 60, code(line("x") + "raise ValueError('gone')"))
    assert found.subject == "x"
    assert (ended.section, ended.note) == ("a", "failed with 1: ValueError: gone")


def wait_for_end(process: int) -> None:
    """Returns once a process that was killed is gone; another one reaps it, or nobody does."""
    status = Path(f"/proc/{process}/stat")
    for _ in range(1000):
        try:
            if status.read_text().rpartition(")")[2].split()[0] in "ZX":
                return
        except OSError:
            return
        time.sleep(0.02)
    os.kill(process, signal.SIGKILL)
    pytest.fail(f"process {process} still runs")


def test_a_section_that_hangs_is_ended_with_all_its_processes(tmp_path: Path) -> None:
    text = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(tmp_path / 'child')!r}, 'w').write(str(child.pid))\n{line('x')}time.sleep(600)\n"
    )
    found, ended = run_sections(sections("a", seconds=5), 60, code(text))
    assert found.subject == "x" and ended.note == "ended after 5 s"
    wait_for_end(int((tmp_path / "child").read_text()))


def test_half_a_line_of_a_section_that_was_ended_does_not_count() -> None:
    (found,) = run_sections(sections("a"), 60, code(line("x") + "open(path, 'a').write('{\"sect')"))
    assert found.subject == "x"


def test_sections_that_the_time_did_not_suffice_for_are_named() -> None:
    rows = run_sections(sections("a", "b"), 0, code(line("x")))
    assert [(row.section, row.value) for row in rows] == [("a", None), ("b", None)]
    assert all("not begun" in row.note for row in rows)


def test_a_later_row_takes_the_place_of_an_earlier_one() -> None:
    first, other, second = Row("s", "a", "q", 1.0), Row("s", "b", "q", 2.0), Row("s", "a", "q", 3.0)
    assert newest([first, other, second]) == [second, other]


def test_rows_survive_json() -> None:
    row = measured("s", "a", "q", [1.0, 2.0, 3.0, 4.0], limit=2.0)
    assert (row.low, row.value, row.high, row.holds) == (1.25, 2.5, 3.75, False)
    assert Row.from_dict(json.loads(json.dumps(row.to_dict()))) == row


@pytest.mark.parametrize(
    ("value", "limit", "holds"),
    [(1.0, 1.0, True), (2.0, 1.0, False), (math.nan, 1.0, False), (None, 1.0, False), (5.0, None, None)],
)
def test_a_mark_holds_only_for_a_number_within_it(value: float | None, limit: float | None, holds: bool | None) -> None:
    assert Row("s", "a", "q", value, limit=limit).holds is holds


class Constant:
    """A side that takes no time, and says that it takes some."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def device_seconds(self) -> float:
        return self.seconds

    def call_seconds(self) -> float:
        return 2 * self.seconds


def broken(precision: str) -> Constant:
    raise RuntimeError(f"no {precision} here")


def test_each_side_is_compared_with_ours_round_by_round() -> None:
    makers = {side_by_side.COMPILED: lambda precision: Constant(2.0), "broken": broken}
    sides: dict[str, Any] = {side_by_side.OURS: Constant(3.0)}
    rows = {row.name[1:]: row for row in side_by_side.compare("float16", sides, makers)}
    ratio = rows[f"{side_by_side.OURS} / {side_by_side.COMPILED}", side_by_side.DEVICE]
    assert (ratio.value, ratio.unit, ratio.limit, ratio.holds) == (1.5, RATIO, 1.0, False)
    assert rows[side_by_side.OURS, side_by_side.CALL].value == 6.0
    assert rows["broken", side_by_side.DEVICE].note == "RuntimeError: no float16 here"


def test_only_the_gpu_time_in_float16_has_a_mark() -> None:
    makers = {side_by_side.COMPILED: lambda precision: Constant(2.0)}
    rows = list(side_by_side.compare("float32", {side_by_side.OURS: Constant(3.0)}, makers))
    assert [row.limit for row in rows] == [None] * len(rows)


def test_sides_that_take_long_to_make_join_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = use(monkeypatch, library())
    monkeypatch.setattr(side_by_side, "QUICK", {"JAX": broken})
    slow = {side_by_side.COMPILED_GRAPH: lambda precision: Constant(1.0), side_by_side.COMPILED: broken}
    monkeypatch.setattr(side_by_side, "SLOW", slow)
    rows = list(side_by_side.rows(bundle(tmp_path, names=(EXAMPLE,), group=MODEL), "float16"))
    assert [row.subject for row in rows if row.note] == ["JAX", side_by_side.COMPILED]
    (*_, ratio) = [row for row in rows if row.unit == RATIO and row.quantity == side_by_side.DEVICE]
    assert (
        ratio.value == pytest.approx(0.00202) and ratio.holds
    )  # the clock of the stub: fifty times two kernels, an event
    assert driver.calls["cuGraphLaunch"] > 0


def test_what_is_not_installed_is_a_row_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library())
    monkeypatch.setattr(cold_compile, "find_spec", lambda name: None)
    (row,) = cold_compile.rows(bundle(tmp_path))
    assert row.value is None and row.note == "numba-cuda is not installed"
    monkeypatch.setitem(sys.modules, "ai_edge_litert.compiled_model", None)
    (row,) = webgpu.rows(bundle(tmp_path))
    assert row.value is None and "ai_edge_litert" in row.note


def test_every_round_measures_every_side_and_the_first_does_not_count() -> None:
    calls: list[str] = []

    def measure(name: str) -> Any:
        return lambda: float(calls.append(name) or len(calls))

    found = interleave({"a": measure("a"), "b": measure("b")}, rounds=3)
    assert [sorted(calls[k : k + 2]) for k in range(0, 8, 2)] == [["a", "b"]] * 4
    assert sorted(found["a"] + found["b"]) == [3.0, 4.0, 5.0, 6.0, 7.0, 8.0]


def test_the_table_names_the_gpu_and_counts_marks() -> None:
    rows = [
        *MACHINE,
        Row("correctness", "0 ADD, float32", FORM, 1e-7, NRMSE, limit=1e-5),
        Row("correctness", "1 MUL, float32", FORM, 1e-6, NRMSE, limit=1e-5),
        Row("correctness", "2 DIV, float32", FORM, 1e-3, NRMSE, limit=1e-5),
        Row("correctness", "net, float32", MODEL, 1e-6, NRMSE, limit=1e-5),
        measured("latency", "net, float32", "kernels", [1e-4, 2e-4, 3e-4]),
        Row("WebGPU", "LiteRT WebGPU", "a call", note="no |\nadapter"),
    ]
    text = report.table("2026-01-02", rows)
    assert text.startswith("# Stub 9000, 2026-01-02\n")
    assert "3 of 4 hold." in text and "2 DIV, float32, form: 1.0e-05 **exceeded**" in text
    assert "2 of 3 graphs hold; worst is 2 DIV" in text and "0 ADD" not in text
    assert "| net, float32 | kernels | 0.2 ms | 0.1 ms to 0.3 ms |  |  |" in text
    assert "no / adapter" in text


def results(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rows: list[Row], *, out: str = "", join: Path | None = None
) -> tuple[int, Path]:
    """What `check` returns where its sections find these rows, and the folder that stands for docs/."""
    docs = tmp_path / "docs"
    docs.mkdir()
    bundle(tmp_path)
    monkeypatch.setattr(__main__, "DOCS", docs)
    monkeypatch.setattr(__main__, "run_sections", lambda some, *rest: [r for r in rows if r.section == some[0].name])
    monkeypatch.delenv("OUT", raising=False)
    if out:
        monkeypatch.setenv("OUT", out)
    joining = ["--join", str(join)] if join else []
    return __main__.main([str(tmp_path), "--date", "2026-01-02", *joining]), docs


def test_without_a_gpu_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status, docs = results(monkeypatch, tmp_path, [Row("device", "device", "outcome", note="no NVIDIA driver")])
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


def test_results_also_go_where_out_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    carried = tmp_path / "out"
    carried.mkdir()
    _, docs = results(monkeypatch, tmp_path, MACHINE, out=str(carried))
    assert {path.name for path in carried.iterdir()} == {"gpu-results.json", "gpu-results.md"}
    assert {path.name for path in docs.iterdir()} == {"gpu-results.md"}


def test_results_of_one_gpu_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = [
        *MACHINE,
        Row("device", "net, float32", LEFT_OUT, note="no room"),
        Row("device", "other, float32", LEFT_OUT, note="no room"),
        Row("correctness", "small, float32", MODEL, 1e-7, NRMSE, limit=1e-5),
        Row("latency", "small, float32", "kernels", 1e-3, "s"),
    ]
    report.write_json(tmp_path / "earlier", "2026-01-01", earlier)
    found = Row("correctness", "net, float32", MODEL, 1e-6, NRMSE, limit=1e-5)
    status, docs = results(monkeypatch, tmp_path, [*MACHINE, found], join=tmp_path / "earlier")
    assert status == 0
    assert report.read_json(docs / "gpu-results.json") == [*MACHINE, *earlier[3:], found]
    assert (docs / "gpu-results.md").read_text().count("## Correctness") == 1


def test_results_of_another_gpu_are_not_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report.write_json(tmp_path / "earlier", "2026-01-01", [Row("device", "machine", "GPU", note="Other")])
    status, docs = results(monkeypatch, tmp_path, MACHINE, join=tmp_path / "earlier")
    assert status == 1 and list(docs.iterdir()) == []
    with pytest.raises(ProgramError, match="holds no results"):
        report.read_json(tmp_path / "manifest.json")


def test_a_section_writes_its_rows_as_it_finds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library())
    bundle(tmp_path)
    rows = tmp_path / "rows"
    assert __main__.main([str(tmp_path), "--section", "device", "--rows", str(rows)]) == 0
    assert json.loads(rows.read_text().splitlines()[0])["note"] == "Stub 9000"


def test_every_section_has_its_module_and_all_fit_in_eight_minutes() -> None:
    folder = Path(__main__.__file__).parent
    assert all((folder / f"{section.module}.py").exists() for section in SECTIONS)
    assert BUDGET + SECTIONS[0].seconds < 8 * 60
