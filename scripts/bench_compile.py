"""Cold compile of one model, CPU and CUDA (no GPU needed), in fresh processes: CPU seconds of the whole process.

    python scripts/bench_compile.py [MODEL] [--target cpu cuda:sm_90] [--precision float32] [--rounds 5]

CUDA is measured twice: with an empty cache of templates, when Numba lowers every kernel, and with a filled one, as for
a second GPU or another model of the same kinds of layers. Prints medians with their range, and the stages.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from jitdelegate.commands.demo_model import mobilenet_v1

EMPTY, FILLED = "no templates", "templates"


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 measured, 2 wrong arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path, help="default: a MobileNet v1 1.0 224 made here")
    parser.add_argument("--target", nargs="+", default=["cpu", "cuda:sm_90"])
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.child:
        compile_once(arguments.model, arguments.target[0], arguments.precision, arguments.child)
        return 0
    with tempfile.TemporaryDirectory(prefix="jitdelegate-bench-") as name:
        measure(arguments, Path(name))
    return 0


def compile_once(model: Path, target: str, precision: str, folder: str) -> None:
    """The child: compile for `target`, keeping templates in `folder`; prints seconds by stage as JSON."""
    from jitdelegate.cache.key import KeyParts, model_key, this_machine
    from jitdelegate.compiler.compile import compile_model
    from jitdelegate.options import Options

    kind, _, features = target.partition(":")
    loader = "cubin" if kind == "cuda" else "flat"
    own = KeyParts(kind, features or "x86-64-v3", loader, this_machine(), toolchain="")
    key = model_key("", own, options=(("precision", precision),))
    seconds: dict[str, float] = {}
    content = compile_model(model.read_bytes(), Options(serialization_dir=folder, precision=precision), key, seconds)
    print(json.dumps({"seconds": seconds, "bytes": len(content)}))


def measure(arguments: argparse.Namespace, folder: Path) -> None:
    """Every round runs every target once, interleaved."""
    model = arguments.model or folder / "mobilenet_v1.tflite"
    if arguments.model is None:
        model.write_bytes(mobilenet_v1())
    runs: dict[str, list[dict[str, Any]]] = {}
    for number in range(arguments.rounds):
        for target in arguments.target:
            cache = folder / f"{target.replace(':', '-')}-{number}"
            for state in (EMPTY, FILLED) if target.startswith("cuda") else ("",):
                name = f"{target}, {state}" if state else target
                runs.setdefault(name, []).append(_child(model, target, arguments.precision, cache))
    for name, found in runs.items():
        print("\n".join(_lines(name, found)))


def _child(model: Path, target: str, precision: str, cache: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, str(model), "--target", target, "--precision", precision]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([*command, "--child", str(cache)], check=True, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return {"wall": time.perf_counter() - start, "cpu": cpu, **json.loads(done.stdout)}


def _lines(name: str, runs: list[dict[str, Any]]) -> list[str]:
    lines = [f"{name}: {runs[0]['bytes']} bytes"]
    for quantity in ("cpu", "wall"):
        values = [run[quantity] for run in runs]
        spread = f"({min(values):.2f} to {max(values):.2f})"
        lines.append(f"    {quantity:<5} {statistics.median(values):6.2f} s  {spread}, whole process")
    stages = {stage: statistics.median(run["seconds"][stage] for run in runs) for stage in runs[0]["seconds"]}
    return [*lines, "    " + ", ".join(f"{stage} {value:.2f}" for stage, value in stages.items())]


if __name__ == "__main__":
    sys.exit(main())
