"""The check on a GPU machine from end to end, on a driver without one: a small bundle, every command, in its budget."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba.cuda", reason="needs numba-cuda, the extra 'cuda'")

from jitdelegate.targets.cuda.code.gpu import Costs
from scripts.gpu_check.bundle import EXAMPLE, read_bundle
from scripts.gpu_check.compiled_models import WAYS
from scripts.gpu_check.sanitizer import TOOLS
from scripts.gpu_check.sections import BUDGET, RUNS, seconds_of
from scripts.prepare_gpu_check import dry_run
from scripts.prepare_gpu_check.__main__ import BUNDLES
from scripts.prepare_gpu_check.decoder import NAME
from scripts.prepare_gpu_check.families import ARMS
from tests.gpu.stub.processes import FAULTS, ROOT

COMMAND = [sys.executable, "-m", "scripts.gpu_check"]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(a bundle, the kernels of its programs)"""
    folder = tmp_path_factory.mktemp("gpu-check")
    dry_run.prepare(folder, dry_run.sources())
    return folder / "bundle", folder / "kernels"


@pytest.fixture
def machine(prepared: tuple[Path, Path], tmp_path: Path) -> Mapping[str, str]:
    """The environment of a machine with a GPU and NVIDIA's tools."""
    return on_machine(prepared, tmp_path)


def on_machine(prepared: tuple[Path, Path], folder: Path, fault: str | None = None) -> Mapping[str, str]:
    (folder / "out").mkdir()
    return {**dry_run.machine(folder, prepared[1], fault), "OUT": str(folder / "out")}


def check(bundle: Path, machine: Mapping[str, str], *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
    """(exit status, rows of the results, what was printed) of one command."""
    command = [*COMMAND, str(bundle), "--date", "2026-01-02", *arguments]
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
    assert status == 0, printed
    assert_sections_ended_well(rows, "first")
    kept = [row for row in of(rows, "correctness") if row.get("unit") == "NRMSE"]
    assert len(kept) == len(list(read_bundle(prepared[0]).prepared("sm_90"))) and all(row["holds"] for row in kept)
    differing = {row["subject"]: row["value"] for row in of(rows, "orders") if row["quantity"] == "runs that differ"}
    assert differing == dict.fromkeys((row["subject"] for row in kept), 0.0)
    (arms,) = [row for row in of(rows, "orders") if row["subject"] == f"{ARMS}, float32"]
    assert arms["note"] == "1 runs in each of 4 orders"
    sanitizer = {row["subject"]: row["value"] for row in of(rows, "sanitizer") if row["quantity"] == "errors"}
    assert sanitizer == dict.fromkeys(("racecheck", "synccheck", "memcheck", "initcheck"), 0.0)
    assert {row["subject"] for row in of(rows, "constants")} == {"bundle", *(field.name for field in fields(Costs))}
    ways = {(row["subject"], row["quantity"]) for row in of(rows, "CompiledModel") if row.get("holds")}
    assert ways >= {(subject, way) for subject in (START, f"{NAME}, float32") for way in WAYS}
    assert {row["value"] for row in of(rows, "weights") if row["quantity"] == "others than prepared"} == {0.0}
    assert len({row["quantity"] for row in of(rows, "device") if row["subject"] == "ceilings"}) == 7
    ours = {
        row["quantity"]: row["value"] for row in of(rows, RUNS["first"][-1].name) if row["subject"] == "jitdelegate"
    }
    assert ours.keys() == {"device time", "a call"} and all(ours.values())
    found = {path.name for path in Path(machine["OUT"]).iterdir()}
    assert found == {
        *(f"gpu-results.{kind}" for kind in ("json", "md", "tgz")),
        *(f"sanitizer-{one}.log" for one in TOOLS),
    }


START = f"{EXAMPLE}, float16"
FOUND = {
    "wrong": ("correctness", "SOFTMAX, float32", "form"),
    "unsteady": ("orders", "SOFTMAX, float32", "runs that differ"),
    "race": ("sanitizer", "racecheck", "errors"),
    "no sanitizer": ("sanitizer", "compute-sanitizer", "errors"),
    "crash": ("constants", "bundle", "seconds"),
    "hang": ("constants", "bundle", "seconds"),
}
"""Section, subject and quantity of the row that tells of a fault."""
WORDS = {
    "race": "Race reported between Write access",
    "no sanitizer": "neither on PATH nor in a CUDA toolkit",
    "crash": "failed with -6",
    "hang": "ended after 10 s",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_told_and_the_other_sections_still_run(
    fault: str, prepared: tuple[Path, Path], tmp_path: Path
) -> None:
    section, subject, quantity = FOUND[fault]
    which = ("--only", section, "--only", "latency", "--most", "10" if fault == "hang" else "60")
    status, rows, printed = check(prepared[0], on_machine(prepared, tmp_path, fault), *which)
    assert status == 1
    missed = {(row["section"], row["subject"], row["quantity"]): row for row in rows if row.get("holds") is False}
    assert WORDS.get(fault, "") in missed[section, subject, quantity].get("note", ""), printed
    assert f"- {section}, {subject}, {quantity}: " in printed
    ended = {row["section"] for row in rows if row["quantity"] == "seconds" and row["holds"]}
    assert ended == {"device", "weights", section, "latency"} - ({section} if quantity == "seconds" else set())


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


def test_warm_starts_run_from_end_to_end(prepared: tuple[Path, Path], machine: Mapping[str, str]) -> None:
    _, rows, _ = check(prepared[0], machine, "--run", "start")
    assert_sections_ended_well(rows, "start")
    (start,) = [row for row in of(rows, "warm start") if (row["subject"], row["quantity"]) == (START, "output")]
    assert start["holds"]


def test_one_section_is_run_and_joined_to_earlier_results(
    prepared: tuple[Path, Path], machine: Mapping[str, str], tmp_path: Path
) -> None:
    _, rows, _ = check(prepared[0], machine, "--only", "latency")
    assert {row["section"] for row in rows} == {"device", "weights", "latency"}
    _, rows, _ = check(prepared[0], machine, "--only", "constants")  # adds to what is in $OUT
    assert {row["section"] for row in rows} == {"device", "weights", "latency", "constants"}
    earlier = tmp_path / "earlier.json"
    (Path(machine["OUT"]) / "gpu-results.json").rename(earlier)
    _, rows, _ = check(prepared[0], machine, "--only", "launches", "--join", str(earlier))
    assert {row["section"] for row in rows} == {"device", "weights", "latency", "constants", "launches"}


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_command_that_is_ended_has_written_what_it_found_and_leaves_no_process(
    number: signal.Signals, status: int, prepared: tuple[Path, Path], machine: Mapping[str, str]
) -> None:
    command = [*COMMAND, str(prepared[0]), "--only", "warm start"]
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
