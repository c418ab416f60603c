"""The check on a GPU machine from end to end, on a driver without one: a small bundle, every command, in its budget."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba.cuda", reason="needs numba-cuda, the extra 'cuda'")

from jitdelegate.ops import OPS
from jitdelegate.ops.case import Case, Weights
from jitdelegate.program.read import read
from jitdelegate.targets.cuda.compile import compile_templates
from scripts.gpu_check.bundle import BATCHES, EXAMPLE, FORM, PRECISIONS, read_bundle
from scripts.gpu_check.sections import BUDGET, RUNS, seconds_of
from scripts.prepare_gpu_check.__main__ import BUNDLES
from scripts.prepare_gpu_check.folder import Folder
from scripts.prepare_gpu_check.networks import network
from scripts.prepare_gpu_check.source import Feed, Source
from tests.api.small_models import convolution
from tests.child import command_of
from tests.gpu.stub.processes import ROOT, stubbed_environment, write_kernels
from tests.ops.litert import model_of
from tests.scripts.gpu_check import commands


def small_form(name: str, case: Case, precision: str) -> Source:
    op = OPS[name]
    feeds, expected = list(map(Feed, case.feeds())), list(map(Feed, case.outputs(op)))
    return Source(name, FORM, model_of(case.graph(op)), feeds, lambda: expected, "numpy", (precision,))


def sources() -> Iterator[Source]:
    """The example, which is not the real one, and a graph for each of the families that the sanitizer is to see."""
    yield from network(EXAMPLE, convolution(), PRECISIONS, BATCHES)
    image = Case(((1, 6, 6, 8), Weights((8, 3, 3, 8)), Weights((8,))), {"stride_w": 1, "stride_h": 1})
    yield small_form("CONV_2D", image, "float32")
    yield small_form("SOFTMAX", Case(((4, 10),), {"beta": 1.0}), "float32")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(a bundle, the kernels of its programs)"""
    folder = tmp_path_factory.mktemp("gpu-check")
    ptx: dict[str, bytes] = {}
    compile_one = compile_templates.compile_template

    def remember(*arguments: Any) -> Any:
        compiled = compile_one(*arguments)
        ptx[compiled.template.symbol] = compiled.ptx
        return compiled

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compile_templates, "compile_template", remember)
        filled = Folder(folder / "bundle", ["sm_90"], 1 << 24, str(folder / "templates"))
        for source in sources():
            filled.add(source)
        filled.finish()
    assert filled.left_out == {}
    bundle = read_bundle(folder / "bundle")
    programs = chain((one.content for one in bundle.prepared("sm_90")), [bundle.ceiling("sm_90")])
    kinds = {
        program.entries[launch.kernel][0]: launch.kinds
        for program in map(read, programs)
        for launch in program.launches
    }
    write_kernels(folder / "kernels", ptx, kinds)
    return folder / "bundle", folder / "kernels"


@pytest.fixture
def machine(prepared: tuple[Path, Path], tmp_path: Path) -> Mapping[str, str]:
    """The environment of a machine with a GPU and NVIDIA's tools."""
    tools, start, out = tmp_path / "tools", tmp_path / "start", tmp_path / "out"
    for folder in (tools, start, out):
        folder.mkdir()
    for name, act in (("compute-sanitizer", commands.sanitizer), ("ncu", commands.profiler)):
        (tools / name).write_text(f'#!/bin/sh\nexec {shlex.join(command_of(act))} "$@"\n')
        (tools / name).chmod(0o755)
    found = stubbed_environment(start, prepared[1])
    return {**found, "PATH": f"{tools}:{found['PATH']}", "OUT": str(out), "TMPDIR": str(tmp_path)}


def check(bundle: Path, machine: Mapping[str, str], *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
    """(exit status, rows of the results, what was printed) of one command."""
    command = command_of(commands.check_gpu, machine["OUT"], bundle, "--date", "2026-01-02", *arguments)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(machine), cwd=ROOT)
    results = Path(machine["OUT"]) / "gpu-results.json"
    assert results.exists(), done.stderr
    return done.returncode, json.loads(results.read_text())["rows"], done.stdout + done.stderr


def of(rows: list[dict[str, Any]], section: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["section"] == section]


def assert_sections_ended_well(rows: list[dict[str, Any]], run: str) -> None:
    """Every section of a command has its findings, and none was ended or failed."""
    for section in ("device", "weights", *(section.name for section in RUNS[run])):
        found = {(row["subject"], row["quantity"]): row for row in of(rows, section)}
        assert len(found) > 1 and found["bundle", "seconds"]["holds"], section


def test_the_first_command_runs_from_end_to_end(prepared: tuple[Path, Path], machine: Mapping[str, str]) -> None:
    status, rows, printed = check(prepared[0], machine, "--run", "first")
    assert_sections_ended_well(rows, "first")
    kept = [row for row in of(rows, "correctness") if row.get("unit") == "NRMSE"]
    assert len(kept) == 3 * 3 + 2 and all(row["holds"] for row in kept), printed
    assert [row["subject"] for row in kept[:9]] == [row["subject"] for row in kept if row["quantity"] == "model"]
    sanitizer = {row["subject"]: row["value"] for row in of(rows, "sanitizer") if row["quantity"] == "errors"}
    assert sanitizer == dict.fromkeys(("memcheck", "racecheck", "synccheck"), 0.0), printed
    assert {row["value"] for row in of(rows, "weights") if row["quantity"] == "others than prepared"} == {0.0}
    ceilings = {row["quantity"] for row in of(rows, "device") if row["subject"] == "ceilings"}
    assert len(ceilings) == 7
    (start,) = [row for row in of(rows, "warm start") if (row["subject"], row["quantity"]) == (START, "output")]
    assert start["holds"]
    assert status == int(any(row.get("holds") is False for row in rows))
    assert {path.name for path in Path(machine["OUT"]).iterdir()} >= {"gpu-results.md", "sanitizer-memcheck.log"}


START = f"{EXAMPLE}, float16"


def test_the_networks_command_runs_from_end_to_end(prepared: tuple[Path, Path], machine: Mapping[str, str]) -> None:
    _, rows, printed = check(prepared[0], machine, "--run", "networks")
    assert_sections_ended_well(rows, "networks")
    launches = [row for row in of(rows, "launches") if row["quantity"].startswith("launch ")]
    bundle = read_bundle(prepared[0])
    expected = sum(len(one.entry.launches) for one in bundle.prepared("sm_90", "model"))
    assert len(launches) == expected and all(row["predicted"] > 0 for row in launches)
    families = [row for row in of(rows, "launches") if row["quantity"] == "measured / predicted"]
    assert {row["subject"] for row in families} >= {"contract_ffma, float32", "contract_mma, float16"}
    assert "launches, measured over predicted (quartiles):" in printed
    profiled = of(rows, "ncu")
    assert {row["value"] for row in profiled if row["quantity"] == "Achieved Occupancy"} == {25.5}
    assert (Path(machine["OUT"]) / "ncu-bundle.csv").exists()


@pytest.mark.parametrize("precision", ["float16", "tf32"])
def test_what_is_not_installed_leaves_our_own_rows(
    prepared: tuple[Path, Path], machine: Mapping[str, str], precision: str
) -> None:
    _, rows, _ = check(prepared[0], machine, "--run", precision)
    assert_sections_ended_well(rows, precision)
    for section in RUNS[precision]:
        found = {(row["subject"], row["quantity"]): row for row in of(rows, section.name)}
        assert all(found["jitdelegate", quantity]["value"] > 0 for quantity in ("device time", "queued", "a call"))


def test_one_section_is_run_and_joined_to_earlier_results(
    prepared: tuple[Path, Path], machine: Mapping[str, str], tmp_path: Path
) -> None:
    _, rows, _ = check(prepared[0], machine, "--only", "latency")
    assert {row["section"] for row in rows} == {"device", "weights", "latency"}
    _, rows, _ = check(prepared[0], machine, "--only", "module load")  # adds to what is in $OUT
    assert {row["section"] for row in rows} == {"device", "weights", "latency", "module load"}
    earlier = tmp_path / "earlier.json"
    (Path(machine["OUT"]) / "gpu-results.json").rename(earlier)
    _, rows, _ = check(prepared[0], machine, "--only", "launches", "--join", str(earlier))
    assert {row["section"] for row in rows} == {"device", "weights", "latency", "module load", "launches"}


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_command_that_is_ended_has_written_what_it_found_and_leaves_no_process(
    number: signal.Signals, status: int, prepared: tuple[Path, Path], machine: Mapping[str, str]
) -> None:
    command = command_of(commands.check_gpu, machine["OUT"], prepared[0], "--only", "warm start")
    results = Path(machine["OUT"]) / "gpu-results.json"
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(machine), cwd=ROOT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("== warm start"):  # which takes long
                break
        wait_until(lambda: len(processes(machine["TMPDIR"])) > 1)
        process.send_signal(number)
        assert process.wait(30) == status
    found = {row["section"] for row in json.loads(results.read_text())["rows"]}
    assert found == {"device", "weights"}
    wait_until(lambda: processes(machine["TMPDIR"]) == [])  # the kernel ends one after the other


def wait_until(reached: Callable[[], bool]) -> None:
    for _ in range(250):
        if reached():
            return
        time.sleep(0.02)
    pytest.fail("it was not reached in 5 s")


def processes(word: str) -> list[str]:
    """The commands of processes that run with this in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if path.name != str(os.getpid()) and word.encode() in (path / "environ").read_bytes():
                found.append((path / "cmdline").read_text())
    return found


def test_every_command_fits_its_budget_and_ten_minutes() -> None:
    assert all(seconds_of(sections) <= BUDGET for sections in RUNS.values())
    assert BUDGET <= 10 * 60 - 60


def test_the_page_names_every_command_and_every_bundle() -> None:
    page = (ROOT / "docs" / "gpu-check.md").read_text()
    shown = re.findall(r"`scripts/gpu_check\.sh \.gpu_check/(\w+) --run (\w+)`", page)
    assert {run for _, run in shown} == set(RUNS)
    assert {bundle for bundle, _ in shown} == set(BUNDLES)
    assert all(f"--output .gpu_check/{bundle}" in page for bundle in BUNDLES)
    assert f"at most {BUDGET:g} s" in " ".join(page.split())
