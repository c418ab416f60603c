"""Inner loops of generated code for Arm: their multiply-adds and spills, and their cycles by llvm-mca, which computes
them for a core that need not be there.

A loop is a list of instructions of machine code as text. Code without a loop that multiplies counts as one.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from unittest.mock import patch

from jitdelegate import passes
from jitdelegate.base.targets import EXACT
from jitdelegate.passes.specialize_subgraph import specialize_subgraph
from jitdelegate.targets.cpu import generate as cpu
from jitdelegate.tflite.read import read

LEAST_VERSION, MOST_VERSION = 16, 30
"""Versions of llvm-mca with the cores' models."""
ITERATIONS = 200
LABEL, FUNCTION = re.compile(r"(\.L\w+):"), re.compile(r"([A-Za-z_]\w*):")
JUMP = re.compile(r"\s(?:b\.\w+|cbn?z\s+\w+,|tbn?z\s+\w+,\s*#\d+,)\s*(\.L\w+)")
MULTIPLY = re.compile(r"\s(fmla|fmul|mla|[su]ml[as]l2?|[su]mull2?|[su]+dot|u?smmla|bfdot)\s+v\d+\.(\d+)([bhsd])")
KEPT = re.compile(r"\s(?:stp|ldp|str|ldr)\s+(?:(?:d(?:[89]|1[0-5])|x(?:19|2\d|30)),\s*)+\[sp")
"""Saves and restores registers of the caller: the lower halves of v8 to v15, x19 to x30."""
LANES = {"bfdot": 2, "dot": 4, "mmla": 8}
"""End of an instruction -> products that each lane of its result adds up."""


@dataclass(frozen=True)
class Loop:
    """An inner loop.

    Attributes:
        function: that it is in.
        lines: its instructions.
    """

    function: str
    lines: tuple[str, ...]

    @property
    def products(self) -> int:
        """Multiply-adds of one turn."""
        found = (MULTIPLY.match(line) for line in self.lines)
        return sum(int(one[2]) * _added(one[1]) for one in found if one)

    @property
    def spills(self) -> int:
        """Accesses to the stack, but for registers that every function has to keep."""
        return sum("[sp" in line and not KEPT.match(line) for line in self.lines)


def _added(instruction: str) -> int:
    return next((count for end, count in LANES.items() if instruction.endswith(end)), 1)


def assembly_of(content: bytes, features: str, precision: str = EXACT) -> str:
    """The machine code of a model for a level, as text; convolutions of it are computed directly."""
    graph = specialize_subgraph(read(content)).graphs[0]
    graph = passes.run(passes.run(graph, passes=passes.FOLD), passes=passes.REWRITE)
    texts: dict[str, str] = {}

    def trace(stage: str, make: object) -> None:
        if stage == "assembly" and callable(make):
            texts[stage] = make()

    with patch.object(cpu, "_machine_code", lambda ir, features, names: (b"", tuple((name, 0) for name in names))):
        cpu.generate(graph, features, trace, precision=precision, saves_memory=True)
    return texts["assembly"]


def inner_loops(assembly: str, prefix: str) -> list[Loop]:
    """The loops without a loop in them that multiply, in functions whose names begin so; the largest first."""
    loops = [
        loop
        for name, lines in _functions(assembly)
        if name.startswith(prefix)
        for loop in _loops(name, lines)
        if loop.products
    ]
    return sorted(loops, key=lambda loop: -loop.products)


def _functions(assembly: str) -> Iterator[tuple[str, list[str]]]:
    """(name, labels and instructions) of each."""
    name, lines = "", list[str]()
    for line in assembly.splitlines():
        code = line.split("//")[0].rstrip()
        if found := FUNCTION.match(code):
            yield name, lines
            name, lines = found[1], []
        elif LABEL.match(code) or (code.startswith("\t") and not code.startswith("\t.")):
            lines.append(code)
    yield name, lines


def _loops(name: str, lines: Sequence[str]) -> Iterator[Loop]:
    places = {found[1]: at for at, line in enumerate(lines) if (found := LABEL.match(line))}
    inner = []
    for at, line in enumerate(lines):
        found = JUMP.match(line)
        start = places.get(found[1], at) if found else at
        body = lines[start + 1 : at + 1]
        if start < at and not any(LABEL.match(each) for each in body):
            inner.append(Loop(name, tuple(body)))
    whole = Loop(name, tuple(line for line in lines if not LABEL.match(line)))
    yield from inner if any(loop.products for loop in inner) else [whole]


def llvm_mca() -> str:
    """The path of the program; "" where none of LEAST_VERSION or later is installed."""
    names = ["llvm-mca", *(f"llvm-mca-{version}" for version in range(MOST_VERSION, LEAST_VERSION - 1, -1))]
    return next((path for name in names if (path := shutil.which(name)) and _version(path) >= LEAST_VERSION), "")


def _version(path: str) -> int:
    text = subprocess.run([path, "--version"], stdout=subprocess.PIPE, text=True, check=False).stdout
    found = re.search(r"LLVM version (\d+)", text)
    return int(found[1]) if found else 0


def cycles(loops: Sequence[Loop], core: str) -> list[float]:
    """The cycles of one turn of each loop on a core, by LLVM's name, if all its data are in the first cache."""
    regions = [f"# LLVM-MCA-BEGIN {number}\n{_text(loop)}\n# LLVM-MCA-END" for number, loop in enumerate(loops)]
    command = [llvm_mca(), "-mtriple=aarch64", f"-mcpu={core}", f"-iterations={ITERATIONS}", "-json"]
    ran = subprocess.run(command, input="\n".join(regions), stdout=subprocess.PIPE, text=True, check=True)
    return [region["SummaryView"]["TotalCycles"] / ITERATIONS for region in json.loads(ran.stdout)["CodeRegions"]]


def _text(loop: Loop) -> str:
    """The loop's instructions, without the labels that they jump to or call."""
    return "\n".join(line for line in loop.lines if not re.match(r"\s(b|bl|b\.\w+|ret)\b", line))
