"""The machine instructions of a cubin, as NVIDIA's disassembler shows them."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import nvidia
import pytest

INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_.]+)", re.MULTILINE)
ACCESS = re.compile(r"\b(?:ld|st|red|atom)\.(?:[\w:]+\.)*global\S*|\bcp\.async\.c[ag]\.shared\.global")
LOCAL = ("LDL", "STL")
"""Loads and stores of local memory, which is slow: registers did not suffice."""
GLOBAL = ("LDG", "STG", "LDGSTS", "LD", "ST", "ATOMG", "RED", "REDG")
WAIT = "ACQBULK"
TENSOR_CORE = ("HMMA", "HGMMA", "IMMA")


def disassembler() -> Path:
    """nvdisasm of the package nvidia-cuda-nvdisasm; skips the test where it is not installed."""
    found = [path for folder in nvidia.__path__ for path in Path(folder).glob("*/bin/nvdisasm")]
    if not found:
        pytest.skip("needs nvdisasm, the package nvidia-cuda-nvdisasm")
    return found[0]


def instructions(image: bytes) -> Counter[str]:
    """How often each instruction stands in a cubin, without its modifiers."""
    return Counter(in_order(image))


def early_accesses(image: bytes) -> int:
    """How many accesses to device memory come before the wait for the launches before."""
    names = in_order(image)
    return sum(name in GLOBAL for name in names[: names.index(WAIT)])


def written_early(ptx: str) -> list[str]:
    """The accesses to device memory that a kernel's PTX has before that wait."""
    before, wait, _ = ptx.partition("griddepcontrol.wait;")
    assert wait
    return ACCESS.findall(before)


def in_order(image: bytes) -> list[str]:
    """The instructions of a cubin, without their modifiers."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(image)
        file.flush()
        shown = subprocess.run([disassembler(), "-c", file.name], capture_output=True, text=True, check=True).stdout
    return [name.partition(".")[0] for name in INSTRUCTION.findall(shown)]
