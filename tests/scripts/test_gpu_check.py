"""The check on a GPU machine, without one: its bundle, sections, processes, results; no time is asserted."""

from __future__ import annotations

import json
import math
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh3_128_hexdigest

from jitdelegate.errors import CacheError, DeviceError, ProgramError
from jitdelegate.program.program import Launch
from jitdelegate.program.read import read
from jitdelegate.program.write import write
from jitdelegate.runtime.cuda import device as cuda_device
from jitdelegate.targets.cuda import target as cuda_target
from scripts.gpu_check import (
    __main__,
    child,
    cold_compile,
    correctness,
    device_facts,
    first_output,
    gpu,
    latency,
    launches,
    module_load,
    ncu,
    one_by_one,
    report,
    restore,
    sanitizer,
    side_by_side,
    warm_start,
    webgpu,
)
from scripts.gpu_check import run_sections as run_sections_module
from scripts.gpu_check.bundle import (
    EXAMPLE,
    FORM,
    MODEL,
    Bundle,
    Case,
    Entry,
    Values,
    batch_of,
    named,
    pack,
    read_bundle,
    write_bundle,
)
from scripts.gpu_check.child import output_of, run_tool
from scripts.gpu_check.row import LEFT_OUT, NRMSE, RATIO, Row, measured, newest
from scripts.gpu_check.run_sections import run_sections
from scripts.gpu_check.sections import DEVICE, RUNS, SECTIONS, Section, seconds_of
from scripts.gpu_check.sides import interleave
from tests.api.small_models import convolution
from tests.gpu.stub.cubins import cubin
from tests.gpu.stub.install import install
from tests.gpu.stub.library import Library
from tests.gpu.stub.processes import ROOT
from tests.gpu.stub.programs import KERNELS, SCALE, SHIFT, Kernels, packed, scale_and_shift
from tests.gpu.stub.programs import library as stub_library

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
    monkeypatch.setattr(cuda_target, "open_library", lambda: driver)
    monkeypatch.setattr(cuda_device, "declare", lambda library: None)
    return driver


PRECISIONS = ("float32", "float16")
CYCLES = (("map", 2000.0), ("reduce", 500.0))


CEILING_KINDS = {"nothing": "a", "products": "ai"}


def library(kernels: Kernels = KERNELS, **arguments: Any) -> Library:
    """A stub that also has the kernels of the ceilings, which do nothing."""
    kernels = {**kernels, **dict.fromkeys(CEILING_KINDS, lambda *_: None)}
    made = stub_library(kernels, **{"total_bytes": 1 << 20, **arguments})
    made.kinds = {**made.kinds, **CEILING_KINDS}
    return made


def ceilings() -> bytes:
    """A program of a launch that does nothing, and of one for each kind of products."""
    code, places = packed(cubin("nothing"), cubin("products"))
    products = [Launch(kernel=1, grid=(4, 1, 1), block=(32, 1, 1), kinds="ai", values=(0, 10))] * 3
    nothing = Launch(kernel=0, grid=(1, 1, 1), block=(32, 1, 1), kinds="a", values=(0,))
    changes: dict[str, Any] = dict.fromkeys(("inputs", "outputs", "input_offsets", "output_offsets"), ())
    entries = tuple(zip(CEILING_KINDS, places, strict=True))
    return write(scale_and_shift(code=code, entries=entries, launches=(nothing, *products), **changes))


def bundle(
    folder: Path,
    *,
    expected: bytes = Y,
    names: tuple[str, ...] = ("one",),
    group: str = FORM,
    kinds: tuple[str, ...] = ("sm_90",),
) -> Bundle:
    """A folder with `scale_and_shift` under each of the names, in two precisions, for some kinds of GPU."""
    files = {"program": write(scale_and_shift()), "ceilings": ceilings(), "x": floats(X), "y": expected}
    for name, content in files.items():
        (folder / name).write_bytes(pack(content))
    places = [f"{kind} {precision}" for kind in kinds for precision in PRECISIONS]
    programs = {place: Entry("program", "0" * 32, CYCLES) for place in places}
    limits = {"float32": 1e-5, "float16": 2e-3}
    cases = [Case(name, group, "numpy", [Values("x")], [Values("y")], programs, limits) for name in names]
    write_bundle(Bundle(folder, cases, {"large": "no room"}, dict.fromkeys(kinds, "ceilings")))
    return read_bundle(folder)


def test_a_bundle_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = bundle(tmp_path)
    assert found.left_out == {"large": "no room"} and found.kinds == ["sm_90"]
    first, second = found.prepared("sm_90")
    assert (first.name, second.name) == ("one, float32", "one, float16")
    assert (first.limit, second.limit) == (1e-5, 2e-3)
    assert first.inputs == [floats(X)] and first.outputs == [Y]
    assert [tuple(launch) for launch in first.entry.launches] == list(CYCLES)
    assert first.content == write(scale_and_shift()) and found.ceiling("sm_90") == ceilings()
    assert list(found.prepared("sm_90", MODEL)) == list(found.prepared("sm_80")) == []


def test_a_batch_is_made_of_two_images_in_an_order_without_a_period(tmp_path: Path) -> None:
    assert batch_of(b"abAB", (2,), 8) == b"abABABabABababAB"
    assert batch_of(b"abcABC", (2, 1), 3) == b"abABABcCC"
    assert batch_of(b"abAB", (2,), 1) == b"ab"
    (tmp_path / "values").write_bytes(pack(b"abAB"))
    assert Values("values", (1, 1)).read(tmp_path, 2) == b"aAbB"
    assert Values("values").read(tmp_path, 2) == b"abAB"


def test_a_folder_that_was_not_prepared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="was not prepared"):
        read_bundle(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": 0}')
    with pytest.raises(ProgramError, match="format 0, expected 2"):
        read_bundle(tmp_path)


def device(monkeypatch: pytest.MonkeyPatch, **arguments: Any) -> cuda_device.Device:
    """A GPU."""
    return cuda_device.find_device(use(monkeypatch, library(**arguments)))


def test_programs_for_another_gpu_say_how_to_prepare_for_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = bundle(tmp_path)
    assert found.kind(device(monkeypatch)) == "sm_90"
    with pytest.raises(ProgramError, match="for sm_90, the GPU is sm_86: prepare with --architectures sm_86"):
        found.kind(device(monkeypatch, capability=(8, 6)))


@pytest.mark.parametrize(
    ("capability", "multiprocessors", "kind"),
    [
        ((8, 0), 108, "sm_80"),
        ((8, 9), 128, "sm_86"),
        ((9, 0), 132, "sm_90"),
        ((9, 0), 114, "sm_90:114"),
        ((9, 0), 70, "sm_90:60"),
    ],
)
def test_the_newest_programs_that_run_are_taken_of_the_nearest_number_of_multiprocessors(
    capability: tuple[int, int], multiprocessors: int, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = bundle(tmp_path, kinds=("sm_86", "sm_80", "sm_90:60", "sm_90", "sm_90:114"))
    assert found.kind(device(monkeypatch, capability=capability, multiprocessors=multiprocessors)) == kind


def test_an_example_that_was_left_out_says_why(tmp_path: Path) -> None:
    found = Bundle(tmp_path, [], {f"{EXAMPLE}, float32": "no room"})
    with pytest.raises(ProgramError, match="no room"):
        found.example("sm_90", "float32")
    with pytest.raises(ProgramError, match="batch 8 in float32 for sm_90: it was not prepared"):
        found.example("sm_90", "float32", 8)


@pytest.mark.parametrize(
    ("found", "expected", "distance"),
    [
        ((1.0, 2.0), (1.0, 2.0), 0.0),
        ((1.0, 3.0), (1.0, 2.0), 1 / math.sqrt(5)),
        ((math.nan, 1.0), (math.nan, 1.0), 0.0),
        ((math.inf, 1.0), (math.inf, 1.0), 0.0),
        ((math.inf, 1.0), (-math.inf, 1.0), math.inf),
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


def test_networks_are_compared_before_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library())
    found = bundle(tmp_path, names=("form", "net"))
    cases = [found.cases[0], replace(found.cases[1], group=MODEL)]
    rows = list(correctness.rows(replace(found, cases=cases)))
    assert [row.subject for row in rows[::2]] == ["net, float32", "form, float32"]


def test_all_programs_are_compared_in_one_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = use(monkeypatch, library())
    found = bundle(tmp_path, names=("one", "two"))
    for prepared in found.prepared("sm_90"):
        assert correctness.check(prepared).holds
    assert driver.calls["cuDevicePrimaryCtxRetain"] == 1


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


def test_a_program_that_never_ends_costs_only_its_own_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_by_one, "SECONDS", 3.0)
    use(monkeypatch, library({**KERNELS, "scale": once(tmp_path / "ran", lambda memory: time.sleep(600))}))
    first, second = correctness.rows(bundle(tmp_path))
    assert first.note == "it did not end within 3 s" and first.holds is False
    assert second.holds


@pytest.mark.parametrize(("section", "quantity"), [(latency, "kernels"), (launches, "all launches")])
def test_a_kernel_that_fails_costs_no_other_model_its_times(
    section: Any, quantity: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash = once(tmp_path / "ran", lambda memory: memory.read(4, 4))
    use(monkeypatch, library({**KERNELS, "scale": crash}))
    rows = [row for row in section.rows(bundle(tmp_path, group=MODEL)) if row.quantity == quantity]
    assert [row.value is None for row in rows] == [True, False]
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in rows[0].note


def test_facts_name_the_machine_and_what_was_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library(name="Stub 9000", version=13010))
    rows = list(device_facts.rows(bundle(tmp_path)))
    known = report.facts(rows)
    assert known["GPU"] == "Stub 9000" and known["kind"] == "sm_90:132" and known["CUDA of the driver"] == "13.1"
    assert Row("device", "large", "left out", note="no room") in rows
    monkeypatch.setattr(device_facts, "tool", lambda name: f"/usr/local/cuda/bin/{name}")
    assert report.facts(device_facts.rows(bundle(tmp_path)))["ncu"] == "/usr/local/cuda/bin/ncu"


def test_the_ceilings_are_launches_products_and_bytes_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = use(monkeypatch, library(total_bytes=1 << 20))
    rows = {row.quantity: row.value for row in device_facts.rows(bundle(tmp_path)) if row.subject == "ceilings"}
    assert rows["a launch after another"] == pytest.approx(51e-3 / 50)  # a millisecond each, and an event
    added = 4 * 32 * 16 * 16 * 10  # to the sums of all threads, in rounds and iterations
    assert rows["multiply-adds a second, float32"] == pytest.approx(2 * added / 3e-3)
    assert rows["multiply-adds a second, float16"] == pytest.approx(16 * 2 * added / 3e-3)
    assert rows["clock"] == pytest.approx(2 * added / 3e-3 / (128 * 132))
    assert rows["bytes a second, memory"] == pytest.approx(2 * 20 * (1 << 17) / 21e-3)  # an eighth of the memory
    assert driver.leaks() == []


def test_each_launch_stands_beside_its_prediction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library())
    rows = list(launches.rows(bundle(tmp_path, names=("net", "other"), group=MODEL)))
    found = {row.name[1:]: row for row in rows}
    clock = found["ceilings", "clock"].value
    first = found["net, float32", "launch 0 map"]
    assert first.value == pytest.approx(0.0, abs=1e-9)  # a kernel takes as long as one that does nothing
    assert first.predicted == pytest.approx(2000 / clock) and first.ratio == pytest.approx(0.0, abs=1e-6)
    whole = found["net, float32", "all launches"]
    assert whole.predicted == pytest.approx(2500 / clock) and whole.note.startswith("2 launches")


def test_measuring_programs_leaves_nothing_on_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = use(monkeypatch, library())
    found = bundle(tmp_path, group=MODEL)
    limits, clock = launches.measure_ceilings(found)
    for prepared in found.prepared("sm_90"):
        assert correctness.compare(prepared) and latency.measure(prepared)
        assert launches.measure(prepared, limits=limits, clock=clock)
    assert driver.leaks() == []


def test_a_model_whose_launches_cannot_be_timed_costs_only_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, library())
    found = bundle(tmp_path, names=("net", "other"), group=MODEL)
    wrong = replace(found.cases[0], programs={"sm_90 float32": Entry("x", "0" * 32, CYCLES)})
    rows = list(launches.rows(replace(found, cases=[wrong, found.cases[1]])))
    assert rows[1].name[1:] == ("net, float32", "all launches") and rows[1].value is None and rows[1].note
    assert {row.subject for row in rows[2:]} >= {"other, float32", "other, float16"}


def tools(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, script: str) -> Path:
    """A tool of NVIDIA's that is a shell script; answers where its output is kept."""
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("OUT", str(folder))
    return folder


def test_what_a_tool_watches_is_ended_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = f"{sys.executable} -c 'import time; time.sleep(600)' & echo $! > {tmp_path / 'watched'}; wait"
    tools(monkeypatch, tmp_path, "slow", script)
    assert run_tool([str(tmp_path / "slow")], "slow.log", 1)[0] is None
    wait_for_end(int((tmp_path / "watched").read_text()))


def test_a_tool_is_ended_in_time_and_its_output_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tools(monkeypatch, tmp_path, "slow", "echo begun; exec sleep 60")
    assert child.tool("slow") == str(folder / "slow") and child.tool("nonesuch-tool") is None
    assert run_tool([str(folder / "slow")], "slow.log", 2) == (None, "begun\n")
    assert (folder / "slow.log").read_text() == "begun\n"


@pytest.mark.parametrize(
    ("script", "value", "note"),
    [
        ("echo '========= ERROR SUMMARY: 0 errors'", 0.0, "1 programs"),
        ("echo '========= ERROR SUMMARY: 3 errors'; exit 1", 3.0, "1 programs, failed with 1"),
        ("echo '========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)'", 2.0, "1 programs"),
        ("echo '========= Error: Device not supported'; exit 255", None, "failed with 255: ========= Error: Device"),
    ],
)
def test_the_sanitizers_errors_are_counted(
    script: str, value: float | None, note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, library())
    tools(monkeypatch, tmp_path, "compute-sanitizer", script)
    rows = list(sanitizer.rows(bundle(tmp_path)))
    assert [(row.subject, row.value, row.limit) for row in rows] == [(name, value, 0.0) for name in sanitizer.TOOLS]
    assert all(row.note.startswith(note) and row.holds is (value == 0.0) for row in rows)


def entry(*launches: tuple[str, float]) -> Entry:
    return Entry("program", "0" * 32, launches)


def of_families(tmp_path: Path, *families: Entry, batch: int = 1) -> list[Any]:
    """Prepared programs with these launches."""
    cases = [
        Case(f"{number}, batch {batch}", FORM, "", [], [], {"sm_90 float16": one}, {}, batch)
        for number, one in enumerate(families)
    ]
    return list(Bundle(tmp_path, cases, {}).prepared("sm_90"))


def test_the_sanitizer_sees_the_smallest_program_of_each_family(tmp_path: Path) -> None:
    small, large = entry(("contract_mma", 10.0), ("map", 1.0)), entry(("contract_mma", 20.0), ("map", 5.0))
    programs = of_families(tmp_path, large, small, entry(("map", 1.0)), entry(("softmax", 5.0)))
    assert [one.case.name[0] for one in sanitizer.chosen(programs)] == ["1", "3"]


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


def test_what_nvidia_did_not_install_is_a_row_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library())
    monkeypatch.setattr(child.shutil, "which", lambda name, path: None)
    (row,) = sanitizer.rows(bundle(tmp_path))
    assert row.note == "it is not installed"
    (row,) = ncu.rows(bundle(tmp_path))
    assert row.note == "it is not installed"


def test_latency_is_measured_of_models_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library())
    rows = list(latency.rows(bundle(tmp_path, group=MODEL)))
    assert [row.quantity for row in rows[:4]] == ["kernels", "kernels and copies", "a call", "launches"]
    assert rows[0].value == pytest.approx(101e-3 / 50)  # fifty times two kernels, between two events
    assert all(row.value for row in rows)
    assert list(latency.rows(bundle(tmp_path))) == []


def test_a_model_without_a_session_says_why_it_has_no_latency(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = use(monkeypatch, library(total_bytes=100))
    found = bundle(tmp_path, group=MODEL)
    rows = list(latency.rows(found))
    assert [row.value for row in rows] == [None, None] and "no GPU memory" in rows[0].note
    with pytest.raises(DeviceError):
        latency.measure(next(found.prepared("sm_90")))
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
        source = tmp_path / "input"
        source.write_bytes(floats(X))
        assert first_output.main([str(model), str(cache), precision, str(source), str(output)]) == 0
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


def test_weights_are_put_back_into_programs_and_compared_with_those_that_were_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore.tempfile, "gettempdir", lambda: str(tmp_path))
    content = convolution()
    (tmp_path / "model").write_bytes(pack(content))
    weights = restore.plan_of(content, (), "sm_90", "float32").weights
    kept = write(scale_and_shift(weights=bytes(len(weights))))
    (tmp_path / "kept").write_bytes(pack(kept))

    def row_of(weights_hash: str) -> list[Row]:
        programs = {"sm_90 float32": Entry("kept", weights_hash)}
        return list(restore.rows(Bundle(tmp_path, [Case("net", MODEL, "", [], [], programs, {}, model="model")], {})))

    right = {row.quantity: row.value for row in row_of(xxh3_128_hexdigest(weights))}
    assert (right["restored"], right["others than prepared"]) == (1.0, 0.0)
    other, _, count, _ = row_of("0" * 32)
    assert "numpy lays out other weights here" in other.note and count.value == 1.0 and count.holds is False
    programs = {"sm_90 float32": Entry("kept", "")}
    (prepared,) = Bundle(tmp_path, [Case("net", MODEL, "", [], [], programs, {}, model="model")], {}).prepared("sm_90")
    assert bytes(read(prepared.content).weights) == weights


def test_weights_that_have_no_place_in_their_program_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore.tempfile, "gettempdir", lambda: str(tmp_path))
    for name, content in (("model", convolution()), ("kept", write(scale_and_shift()))):
        (tmp_path / name).write_bytes(pack(content))
    cases = [Case("net", MODEL, "", [], [], {"sm_90 float32": Entry("kept", "")}, {}, model="model")]
    first, *_ = restore.rows(Bundle(tmp_path, cases, {}))
    assert (first.subject, first.quantity) == ("net, float32", "weights")
    assert "bytes, expected 1004" in first.note


def test_programs_that_others_may_write_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = tmp_path / f"{restore.CACHE}-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(CacheError, match="mode 0777"):
        restore.restored(b"kept", tmp_path / "model", (), "sm_90", "float32")


def test_a_process_that_fails_is_told_by_its_last_words() -> None:
    assert output_of(["-c", "print(1)"]) == "1\n"
    with pytest.raises(DeviceError, match=r"^ValueError: gone$"):
        output_of(["-c", "raise ValueError('gone')"])
    with pytest.raises(DeviceError, match="exit status 3"):
        output_of(["-c", "raise SystemExit(3)"])


def sections(*names: str, seconds: float = 60) -> list[Section]:
    return [Section(name, "nowhere", seconds) for name in names]


def run(some: list[Section], budget: float, command: Any) -> list[Row]:
    """All that the sections found on a bundle of no importance."""
    return [row for found in run_sections(some, budget, command, "first") for row in found]


def test_what_sections_wrote_is_collected() -> None:
    *found, ended = run(sections("a"), 60, code(line("x") + line("y")))
    assert [row.subject for row in found] == ["x", "y"]
    assert (ended.section, ended.subject, ended.quantity, ended.limit, ended.holds) == (
        "a",
        "first",
        "seconds",
        60,
        True,
    )


def test_what_a_section_found_is_there_before_the_next_one_begins(tmp_path: Path) -> None:
    text = f"{line('x')}open({str(tmp_path / 'runs')!r}, 'a').write('.')"
    for number, found in enumerate(run_sections(sections("a", "b", "c"), 60, code(text), "first"), 1):
        assert [row.subject for row in found] == ["x", "first"]
        assert len((tmp_path / "runs").read_text()) == number


def test_of_many_findings_those_that_exceed_their_marks_are_printed_first(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [Row("s", f"{number}", "q", 1.0, limit=2.0).to_dict() for number in range(100)]
    rows.append(Row("s", "late", "q", 3.0, limit=2.0).to_dict())
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    text = f"open(path, 'a').write({lines!r})"
    assert len(run(sections("a"), 60, code(text))) == 102
    _, first, *_, more, _ = capsys.readouterr().out.splitlines()
    assert first.strip() == "late: q 3  EXCEEDS 2" and more.strip() == "and 61 more"


def test_a_section_that_fails_keeps_what_it_found_and_says_how_it_ended() -> None:
    found, ended = run(sections("a"), 60, code(line("x") + "raise ValueError('gone')"))
    assert found.subject == "x"
    assert (ended.section, ended.note) == ("a", "failed with 1: ValueError: gone")
    assert ended.holds is False


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
    found, ended = run(sections("a", seconds=5), 60, code(text))
    assert found.subject == "x" and ended.note == "ended after 5 s" and ended.holds is False
    wait_for_end(int((tmp_path / "child").read_text()))


def test_a_process_that_cannot_be_ended_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kill = os.killpg
    monkeypatch.setattr(run_sections_module.os, "killpg", lambda group, number: None)  # as where the driver hangs
    monkeypatch.setattr(run_sections_module, "LEAVE", 0.1)
    text = (
        f"import os, time\nopen({str(tmp_path / 'child')!r}, 'w').write(str(os.getpid()))\n{line('x')}time.sleep(600)\n"
    )
    try:
        found, ended = run(sections("a", seconds=3), 60, code(text))
    finally:
        kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
    assert found.subject == "x" and ended.note == "ended after 3 s"


def test_an_end_that_comes_while_a_section_is_started_is_not_lost() -> None:
    text = """
import os, signal, sys
from scripts.gpu_check.run_sections import run_sections
from scripts.gpu_check.sections import DEVICE
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGTERM))  # where Python ignores exceptions
list(run_sections([DEVICE], 5, lambda section, path: ["sleep", "30"], "first"))
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 128 + signal.SIGTERM, done.stderr


def test_half_a_line_of_a_section_that_was_ended_does_not_count() -> None:
    found, _ = run(sections("a"), 60, code(line("x") + "open(path, 'a').write('{\"sect')"))
    assert found.subject == "x"


def test_sections_that_the_time_did_not_suffice_for_are_named() -> None:
    rows = run(sections("a", "b"), 0, code(line("x")))
    assert [(row.section, row.value) for row in rows] == [("a", None), ("b", None)]
    assert all("not begun" in row.note and row.holds is False for row in rows)


def test_a_later_row_takes_the_place_of_an_earlier_one() -> None:
    first, other, second = Row("s", "a", "q", 1.0), Row("s", "b", "q", 2.0), Row("s", "a", "q", 3.0)
    assert newest([first, other, second]) == [second, other]


def test_rows_survive_json() -> None:
    row = measured("s", "a", "q", [1.0, 2.0, 3.0, 4.0], limit=2.0, predicted=5.0)
    assert (row.low, row.value, row.high, row.holds, row.ratio) == (1.25, 2.5, 3.75, False, 0.5)
    assert Row.from_dict(json.loads(json.dumps(row.to_dict()))) == row
    assert Row("s", "a", "q", note="why").to_dict() == {"section": "s", "subject": "a", "quantity": "q", "note": "why"}
    assert Row("s", "a", "q", 1.0).ratio is None and Row("s", "a", "q", predicted=2.0).ratio is None


@pytest.mark.parametrize(
    ("value", "limit", "holds"),
    [(1.0, 1.0, True), (2.0, 1.0, False), (math.nan, 1.0, False), (None, 1.0, False), (5.0, None, None)],
)
def test_a_mark_holds_only_for_a_number_within_it(value: float | None, limit: float | None, holds: bool | None) -> None:
    assert Row("s", "a", "q", value, limit=limit).holds is holds


class Constant:
    """A side that takes no time, and says that it takes some."""

    def __init__(self, seconds: float, *, has_events: bool = True) -> None:
        self.seconds = seconds
        self.has_events = has_events

    def device_seconds(self) -> float:
        assert self.has_events
        return self.seconds

    def queued_seconds(self) -> float:
        return 3 * self.seconds

    def call_seconds(self) -> float:
        return 2 * self.seconds


def broken(precision: str, batch: int) -> Constant:
    raise RuntimeError(f"no {precision} here for {batch}")


def test_each_side_is_compared_with_ours_round_by_round() -> None:
    makers = {
        side_by_side.COMPILED: lambda precision, batch: Constant(2.0),
        side_by_side.JAX: lambda precision, batch: Constant(4.0, has_events=False),
        "broken": broken,
    }
    sides: dict[str, Any] = {side_by_side.OURS: Constant(3.0)}
    rows = {row.name[1:]: row for row in side_by_side.compare("s", "float16", 8, sides, makers)}
    ratio = rows[f"{side_by_side.OURS} / {side_by_side.COMPILED}", side_by_side.DEVICE]
    assert (ratio.value, ratio.unit, ratio.limit, ratio.holds) == (1.5, RATIO, 1.0, False)
    assert rows[side_by_side.OURS, side_by_side.CALL].value == 6.0
    assert rows["broken", side_by_side.DEVICE].note == "RuntimeError: no float16 here for 8"


def test_what_gives_no_events_is_compared_by_the_hosts_clock_alone() -> None:
    makers = {side_by_side.JAX: lambda precision, batch: Constant(4.0, has_events=False)}
    sides: dict[str, Any] = {side_by_side.OURS: Constant(3.0)}
    rows = {row.name[1:]: row for row in side_by_side.compare("s", "float32", 1, sides, makers)}
    ratio = rows[f"{side_by_side.OURS} / {side_by_side.JAX}", side_by_side.QUEUED]
    assert (ratio.value, ratio.limit, ratio.holds) == (0.75, 1.0, True)
    assert (side_by_side.JAX, side_by_side.DEVICE) not in rows
    assert rows[f"{side_by_side.OURS} / {side_by_side.JAX}", side_by_side.CALL].limit is None


def test_sides_that_take_long_to_make_join_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = use(monkeypatch, library())
    monkeypatch.setattr(side_by_side, "QUICK", {"JAX": broken})
    slow = {side_by_side.COMPILED_GRAPH: lambda precision, batch: Constant(1.0), side_by_side.COMPILED: broken}
    monkeypatch.setattr(side_by_side, "SLOW", slow)
    rows = list(side_by_side.rows(bundle(tmp_path, names=(named(EXAMPLE, 8),), group=MODEL), "float16", "8"))
    assert {row.section for row in rows} == {"side by side, float16, batch 8"}
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
    assert "3 of 4 hold." in text and "2 DIV, float32, form: 1.0e-03, mark 1.0e-05 **exceeded**" in text
    assert "2 of 3 graphs hold; worst is 2 DIV" in text and "0 ADD" not in text
    assert "| net, float32 | kernels | 0.2 ms | 0.1 ms to 0.3 ms |  |  |" in text
    assert "no / adapter" in text


def results(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rows: list[Row], *arguments: str, out: str = ""
) -> tuple[int, Path]:
    """What `main` returns where the sections find these rows, and the folder that stands for docs/."""
    docs = tmp_path / "docs"
    docs.mkdir()
    bundle(tmp_path)

    def found(some: list[Section], *rest: Any) -> list[list[Row]]:
        return [[row for row in rows if row.section == one.name] for one in some]

    monkeypatch.setattr(__main__, "DOCS", docs)
    monkeypatch.setattr(__main__, "run_sections", found)
    monkeypatch.delenv("OUT", raising=False)
    if out:
        monkeypatch.setenv("OUT", out)
    return __main__.main([str(tmp_path), "--date", "2026-01-02", *arguments]), docs


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
    carried = tmp_path / "out"
    carried.mkdir()
    _, docs = results(monkeypatch, tmp_path, MACHINE, out=str(carried))
    assert {path.name for path in carried.iterdir()} == {"gpu-results.json", "gpu-results.md"}
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
    assert {path.name for path in docs.iterdir()} == {"gpu-results.json", "gpu-results.md"}


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


def test_sections_that_may_take_longer_than_there_is_time_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    every = [word for name in SECTIONS for word in ("--only", name)]
    with pytest.raises(SystemExit) as ended:
        __main__.main([str(tmp_path), *every])
    assert ended.value.code == 2
    assert "seconds, expected at most 520: run some of them" in capsys.readouterr().err


def test_what_is_asked_for_by_name_is_run_after_the_machine_was_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    _, _ = results(monkeypatch, tmp_path, [])

    def note(some: list[Section], *rest: Any) -> list[list[Row]]:
        ran.extend(section.name for section in some)
        return [MACHINE] if some == [DEVICE] else []

    monkeypatch.setattr(__main__, "run_sections", note)
    assert __main__.main([str(tmp_path), "--only", "warm start", "--only", "latency", "--only", "device"]) == 0
    assert ran == ["device", "weights", "latency", "warm start"]


def test_a_section_writes_its_rows_as_it_finds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library())
    bundle(tmp_path)
    rows = tmp_path / "rows"
    assert __main__.main([str(tmp_path), "--section", "device", "--rows", str(rows)]) == 0
    assert json.loads(rows.read_text().splitlines()[0])["note"] == "Stub 9000"


def test_every_section_has_its_module_and_correctness_comes_before_speed() -> None:
    folder = Path(__main__.__file__).parent
    assert all((folder / f"{section.module}.py").exists() for section in SECTIONS.values())
    names = [section.name for section in RUNS["first"]]
    assert names.index("sanitizer") < names.index("correctness") < names.index("latency") < names.index("launches")
    assert all(seconds_of((section,)) <= seconds_of(tuple(RUNS["first"])) for section in SECTIONS.values())
