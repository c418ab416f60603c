"""A GPU machine that is made up: its driver, its tools, a small bundle."""

from __future__ import annotations

import os
import signal
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from jitdelegate.program.program import Launch
from jitdelegate.program.write import write
from jitdelegate.runtime.cuda import device as cuda_device
from jitdelegate.targets.cuda import target as cuda_target
from scripts.gpu_check import __main__
from scripts.gpu_check.bundle import FORM, Bundle, Case, Entry, Values, pack, read_bundle, write_bundle
from scripts.gpu_check.row import Row
from scripts.gpu_check.sections import Section
from tests.gpu.stub.cubins import cubin
from tests.gpu.stub.library import Library
from tests.gpu.stub.programs import KERNELS, SCALE, SHIFT, Kernels, packed, scale_and_shift
from tests.gpu.stub.programs import library as stub_library

X = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)


MACHINE = [Row("device", "machine", "GPU", note="Stub 9000"), Row("device", "machine", "xxhash", note="3.5")]


def floats(values: Any) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


Y = floats([SCALE * x + SHIFT for x in X])


def use(monkeypatch: pytest.MonkeyPatch, driver: Library) -> Library:
    """The stub is this machine's driver."""
    monkeypatch.setattr(cuda_target, "open_library", lambda: driver)
    monkeypatch.setattr(cuda_device, "declare", lambda library: None)
    return driver


PRECISIONS = ("float32", "float16")


CYCLES = (("map", 2000.0), ("reduce", 500.0))


CEILING_KINDS = {"nothing": "a", "products": "ai", "meetings": "ai"}


def library(kernels: Kernels = KERNELS, **arguments: Any) -> Library:
    """A stub that also has the kernels of the ceilings, which do nothing."""
    kernels = {**kernels, **dict.fromkeys(CEILING_KINDS, lambda *_: None)}
    made = stub_library(kernels, **{"total_bytes": 1 << 20, **arguments})
    made.kinds = {**made.kinds, **CEILING_KINDS}
    return made


def ceilings() -> bytes:
    """A program of a launch that does nothing, one for each kind of products, and one of meetings."""
    code, places = packed(*map(cubin, CEILING_KINDS))
    products = [Launch(kernel=1, grid=(4, 1, 1), block=(32, 1, 1), kinds="ai", values=(0, 10))] * 3
    meetings = Launch(kernel=2, grid=(1, 1, 8), block=(32, 1, 1), kinds="ai", values=(0, 10))
    nothing = Launch(kernel=0, grid=(1, 1, 1), block=(32, 1, 1), kinds="a", values=(0,))
    changes: dict[str, Any] = dict.fromkeys(("inputs", "outputs", "input_offsets", "output_offsets"), ())
    entries = tuple(zip(CEILING_KINDS, places, strict=True))
    return write(scale_and_shift(code=code, entries=entries, launches=(nothing, *products, meetings), **changes))


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


def device(monkeypatch: pytest.MonkeyPatch, **arguments: Any) -> cuda_device.Device:
    """A GPU."""
    return cuda_device.find_device(use(monkeypatch, library(**arguments)))


def once(path: Path, act: Any) -> Any:
    """A kernel that does something else the first time that any process runs it."""

    def kernel(values: Any, memory: Any) -> None:
        if not path.exists():
            path.touch()
            act(memory)
        KERNELS["scale"](values, memory)

    return kernel


def tools(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, script: str) -> Path:
    """A tool of NVIDIA's that is a shell script; answers where its output is kept."""
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("OUT", str(folder))
    return folder


def entry(*launches: tuple[str, float]) -> Entry:
    return Entry("program", "0" * 32, launches)


def of_families(tmp_path: Path, *families: Entry, batch: int = 1) -> list[Any]:
    """Prepared programs with these launches."""
    cases = [
        Case(f"{number}, batch {batch}", FORM, "", [], [], {"sm_90 float16": one}, {}, batch)
        for number, one in enumerate(families)
    ]
    return list(Bundle(tmp_path, cases, {}).prepared("sm_90"))


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
