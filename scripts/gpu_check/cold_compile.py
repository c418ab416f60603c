"""Cold compile of the example network for this GPU, where numba-cuda is installed: CPU seconds of whole processes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from scripts.bench import compile as bench_compile
from scripts.bench.rounds import child_cpu
from scripts.gpu_check.bundle import Bundle
from scripts.gpu_check.child import output_of
from scripts.gpu_check.gpu import gpu
from scripts.gpu_check.row import Row, measured

SECTION = "cold compile"
ROUNDS = 3
PRECISIONS = ("float32", "float16")
LIMITS: Mapping[str, float] = {bench_compile.EMPTY: 5.0, bench_compile.LOWERED: 1.5, bench_compile.FILLED: 1.5}
"""CPU seconds, by what the cache of templates held before."""


def rows(bundle: Bundle) -> Iterator[Row]:
    """Per precision and contents of the cache of templates; one round after another, as time allows."""
    if find_spec("numba_cuda") is None:
        yield Row(SECTION, "numba-cuda", "CPU", note="numba-cuda is not installed")
        return
    from jitdelegate.commands.demo_model import mobilenet_v1

    found: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as name:
        model = Path(name) / "model.tflite"
        model.write_bytes(mobilenet_v1())
        for number in range(ROUNDS):
            for precision in PRECISIONS:
                for state, limit in LIMITS.items():
                    values = found.setdefault((precision, state), [])
                    cache = Path(name) / f"{precision} {number}"
                    if state == bench_compile.LOWERED:
                        bench_compile.forget_ptx(cache)
                    values.append(_compile(model, precision, cache))
                    yield measured(SECTION, precision, f"CPU, {state}", values, limit=limit)


def _compile(model: Path, precision: str, cache: Path) -> float:
    """CPU seconds of a process that compiles the model.

    Raises:
        DeviceError: it failed, for instance since numba-cuda is not of a version that it knows.
    """
    command = ["-m", "scripts.bench", "compile", str(model), "--target", f"cuda:{gpu().architecture}"]
    before = child_cpu()
    output_of([*command, "--precision", precision, "--child", str(cache)])
    return child_cpu() - before
