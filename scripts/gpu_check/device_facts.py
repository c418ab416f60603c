"""The machine: GPU, driver, peak rates, and versions of the software that other sections compare with."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version

from jitdelegate.runtime.cuda.driver import dotted
from scripts.gpu_check import ceilings
from scripts.gpu_check.bundle import Bundle
from scripts.gpu_check.child import tool
from scripts.gpu_check.gpu import gpu
from scripts.gpu_check.row import LEFT_OUT, Row
from scripts.gpu_check.sanitizer import SANITIZER

SECTION = "device"
PACKAGES = ("xxhash", "numpy", "flatbuffers", "llvmlite", "torch", "triton", "ai-edge-litert")
QUERIES = (
    "driver_version",
    "memory.total",
    *("clocks.sm", "clocks.max.sm", "clocks.mem", "clocks.max.mem"),
    *("power.limit", "temperature.gpu", "ecc.mode.current"),
    "mig.mode.current",
)


def rows(bundle: Bundle) -> Iterator[Row]:
    """Facts in words, what was left out of the bundle, and the ceilings."""
    device = gpu()
    yield _fact("GPU", device.name)
    yield _fact("kind", device.kind)
    yield _fact("multiprocessors", str(device.multiprocessors))
    yield _fact("CUDA of the driver", dotted(device.driver.version))
    for query in QUERIES:
        yield _fact(query, _nvidia_smi(query))
    yield _fact("CPUs", str(os.cpu_count()))
    yield _fact("Python", platform.python_version())
    for package in PACKAGES:
        yield _fact(package, _version(package))
    sanitizer = tool(SANITIZER)
    yield _fact(SANITIZER, _said([sanitizer, "--version"]) if sanitizer else "not installed")  # its path names users
    yield _fact("programs for", ", ".join(bundle.kinds))
    for name, reason in bundle.left_out.items():
        yield Row(SECTION, name, LEFT_OUT, note=reason)
    yield from ceilings.rows(SECTION, bundle)


def _fact(quantity: str, text: str) -> Row:
    return Row(SECTION, "machine", quantity, note=text)


def _nvidia_smi(query: str) -> str:
    program = shutil.which("nvidia-smi")
    return _said([program, f"--query-gpu={query}", "--format=csv,noheader"]) if program else "no nvidia-smi"


def _said(command: Sequence[str]) -> str:
    """What a command prints, in one line; of several GPUs, one after another."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return " ".join((done.stdout or done.stderr).split())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
