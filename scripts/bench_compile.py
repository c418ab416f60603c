"""Cold compile of models, CPU and CUDA (no GPU needed), in fresh processes that store the program in a cache.

    python scripts/bench_compile.py [MODEL ...] [--target cpu cuda:sm_90] [--precision float32] [--rounds 5]

Prints CPU and wall seconds of the whole process, its peak resident memory as a multiple of the model's file, the
program's size as a multiple of it, kernels, functions and bytes of code: medians with their range, and the stages.

CUDA is measured three times: with an empty cache of templates, when Numba lowers every kernel; with their NVVM IR, as
for a GPU of another architecture; and with their PTX too, as for another model of the same kinds of layers.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from jitdelegate.commands.demo_model import mobilenet_v1

EMPTY, LOWERED, FILLED = "no templates", "NVVM IR", "templates"
"""What the cache of templates holds, in the order in which runs with the same cache fill it."""


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 measured, 2 wrong arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="*", type=Path, help="default: a MobileNet v1 1.0 224 made here")
    parser.add_argument("--target", nargs="+", default=["cpu", "cuda:sm_90"])
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.child:
        compile_once(arguments.model[0], arguments.target[0], arguments.precision, arguments.child)
        return 0
    with tempfile.TemporaryDirectory(prefix="jitdelegate-bench-") as name:
        if not arguments.model:
            arguments.model = [Path(name) / "mobilenet_v1.tflite"]
            arguments.model[0].write_bytes(mobilenet_v1())
        for model in arguments.model:
            measure(model, arguments, Path(name))
    return 0


def compile_once(model: Path, target: str, precision: str, folder: str) -> None:
    """The child: compile for `target`, keeping program and templates in `folder`; prints what it took as JSON."""
    from jitdelegate.base.options import DelegateOptions
    from jitdelegate.compiler.entry import compiled
    from jitdelegate.runtime.cache.key import KeyParts, model_key, this_machine
    from jitdelegate.runtime.cache.store import open_store

    kind, _, features = target.partition(":")
    loader = "cubin" if kind == "cuda" else "flat"
    own = KeyParts(kind, features or "x86-64-v3", loader, this_machine(), toolchain="")
    key = model_key("", own, options=(("precision", precision),))
    seconds: dict[str, float] = {}
    options = DelegateOptions(serialization_dir=folder, precision=precision)
    lookup = open_store(folder).fetch(key, lambda: compiled(model.read_bytes(), options, key, seconds))
    program = lookup.program
    assert lookup.path and program
    found = {
        "program": Path(lookup.path).stat().st_size,
        "kernels": len(program.launches or program.kernels),
        "functions": len({kernel.name for kernel in program.kernels}),
        "code": len(program.code),
    }
    os.remove(lookup.path)  # the templates stay
    print(json.dumps({"seconds": seconds, "peak": _peak_bytes(), **found}))


def _peak_bytes() -> int:
    """The process's peak resident memory; `ru_maxrss` would include the parent's before it started this program."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def measure(model: Path, arguments: argparse.Namespace, folder: Path) -> None:
    """Every round runs every target once, interleaved."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for number in range(arguments.rounds):
        for target in arguments.target:
            cache = folder / f"{model.stem}-{target.replace(':', '-')}-{number}"
            for state in (EMPTY, LOWERED, FILLED) if target.startswith("cuda") else ("",):
                if state == LOWERED:
                    forget_ptx(cache)
                name = f"{target}, {state}" if state else target
                runs.setdefault(name, []).append(_child(model, target, arguments.precision, cache))
    for name, found in runs.items():
        print("\n".join(_lines(f"{model.stem}, {name}", model.stat().st_size, found)), flush=True)


def forget_ptx(cache: Path) -> None:
    """Leaves only the NVVM IR of templates."""
    for file in cache.glob("*.ptx"):
        file.unlink()


def _child(model: Path, target: str, precision: str, cache: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, str(model), "--target", target, "--precision", precision]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([*command, "--child", str(cache)], check=True, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return {"wall": time.perf_counter() - start, "cpu": cpu, **json.loads(done.stdout)}


def _lines(name: str, size: int, runs: list[dict[str, Any]]) -> list[str]:
    first, peak = runs[0], statistics.median(run["peak"] for run in runs)
    lines = [
        f"{name}: {first['kernels']} kernels, {first['functions']} functions, {first['code']} bytes of code",
        f"    model {size / 1e6:.1f} MB, program {first['program'] / size:.3f} of it, peak {peak / size:.2f} of it"
        f" ({peak / 1e6:.0f} MB)",
    ]
    for quantity in ("cpu", "wall"):
        values = [run[quantity] for run in runs]
        spread = f"({min(values):.2f} to {max(values):.2f})"
        lines.append(f"    {quantity:<5} {statistics.median(values):6.2f} s  {spread}, whole process")
    stages = {stage: statistics.median(run["seconds"][stage] for run in runs) for stage in runs[0]["seconds"]}
    return [*lines, "    " + ", ".join(f"{stage} {value:.2f}" for stage, value in stages.items())]


if __name__ == "__main__":
    sys.exit(main())
