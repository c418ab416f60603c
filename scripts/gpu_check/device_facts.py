"""The machine: GPU, driver, peak rates, and versions of the software that other sections compare with."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from jitdelegate.runtime.cuda.driver import dotted
from scripts.gpu_check import ceilings
from scripts.gpu_check.bundle import Bundle
from scripts.gpu_check.child import tool
from scripts.gpu_check.gpu import gpu
from scripts.gpu_check.row import LEFT_OUT, Row

SECTION = "device"
PACKAGES = ("xxhash", "numpy", "flatbuffers", "llvmlite", "torch", "triton", "ai-edge-litert")
QUERIES = (
    "driver_version",
    "memory.total",
    *("clocks.sm", "clocks.max.sm", "clocks.mem", "clocks.max.mem"),
    *("power.limit", "temperature.gpu", "ecc.mode.current"),
    "mig.mode.current",
)
TOOLS = ("compute-sanitizer",)


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
    for name in TOOLS:
        yield _fact(name, tool(name) or "not installed")
    yield _fact("programs for", ", ".join(bundle.kinds))
    for name, reason in bundle.left_out.items():
        yield Row(SECTION, name, LEFT_OUT, note=reason)
    yield from ceilings.rows(SECTION, bundle)


def _fact(quantity: str, text: str) -> Row:
    return Row(SECTION, "machine", quantity, note=text)


def _nvidia_smi(query: str) -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        return "no nvidia-smi"
    command = [program, f"--query-gpu={query}", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).strip()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
