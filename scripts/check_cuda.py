"""Compile every model of some folders for CUDA and look at every kernel: spills, local memory, tensor cores.

    python -m scripts.check_cuda FOLDER_OR_FILE ... [--architectures sm_80 sm_90] [--precision float32 float16]

No GPU is needed. Models that do not run wholly on the CPU target are left out. Exit status 1 if a kernel spills, uses
local memory, lacks the tensor core instructions that it was meant to have, accesses memory before it waits for other
launches where its PTX does not, or does not compile.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from jitdelegate.errors import CompileError
from jitdelegate.ir.graph import Graph
from jitdelegate.targets.cuda.code.gpu import GPUS
from jitdelegate.targets.cuda.code.template import Template
from jitdelegate.targets.cuda.compile import back_end
from jitdelegate.targets.cuda.plan.plan import plan
from scripts.lowered_models import lowered_models
from tests.targets.cuda_execute import text_of
from tests.targets.sass import LOCAL, TENSOR_CORE, early_accesses, instructions, written_early


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 all is well, 1 some kernel is not, 2 wrong arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="+", type=Path)
    parser.add_argument("--architectures", nargs="+", choices=back_end.ARCHITECTURES,
                        default=list(back_end.ARCHITECTURES))  # fmt: skip
    parser.add_argument("--precision", nargs="+", default=["float32", "float16"])
    arguments = parser.parse_args(argv)
    checked: dict[tuple[str, Template], str] = {}
    for path, graph in lowered_models(arguments.path):
        found = sorted(set(_kernels(graph, arguments.architectures, arguments.precision)), key=repr)
        for kernel in found:
            if kernel not in checked:
                checked[kernel] = _trouble(*kernel)
        bad = [f"{architecture} {template}: {checked[architecture, template]}" for architecture, template in found
               if checked[architecture, template]]  # fmt: skip
        print(f"{path.name:<48} {len(found):4} kernels  {'ok' if not bad else 'BAD'}", *bad, sep="\n    ", flush=True)
    bad_ones = sum(map(bool, checked.values()))
    print(f"{len(checked)} distinct kernels, {bad_ones} bad")
    return int(bad_ones > 0)


def _kernels(graph: Graph, architectures: list[str], precisions: list[str]) -> Iterator[tuple[str, Template]]:
    for architecture in architectures:
        gpu = GPUS[architecture]
        for precision in precisions:
            if gpu.has_async_copy or precision in ("float32", "float16"):
                yield from ((architecture, launch.template) for launch in plan(graph, gpu, precision).launches)


def _trouble(architecture: str, template: Template) -> str:
    """What is wrong with the kernel's code, "" if nothing is."""
    try:
        code = back_end.ptx(text_of(template), architecture)
        cubin = back_end.cubin(code, architecture)
    except CompileError as error:
        return str(error)
    if cubin.spill_bytes or cubin.stack_bytes:
        return f"{cubin.registers} registers, {cubin.spill_bytes} bytes spilled, {cubin.stack_bytes} bytes of stack"
    if GPUS[architecture].has_dependent_launch:
        early, written = early_accesses(cubin.image), len(written_early(code.decode()))
        if early > written:
            return f"{early} accesses come before the wait for other launches, {written} are written there"
    if not template.uses_tensor_cores and b"mma" not in code:
        return ""  # without a stack frame there is no local memory, so nothing is left to look for in the machine code
    counts = instructions(cubin.image)
    if any(counts[one] for one in LOCAL):
        return "it uses local memory"
    if any(counts[one] for one in TENSOR_CORE) != template.uses_tensor_cores:
        return f"tensor cores: {not template.uses_tensor_cores}, expected {template.uses_tensor_cores}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
