"""Cold compile of models, CPU and CUDA (no GPU needed), in fresh processes that store the program in a cache.

Prints kernels, functions and bytes of code; the size of the programs of all signatures and the process's peak resident
memory as multiples of the model's file; MB of private memory left in the end; CPU seconds of the whole process,
median and range, and of each signature after the first; wall-clock seconds, and those of the first signature's stages.

CUDA is measured three times: with an empty cache of templates, when Numba lowers every kernel; with their NVVM IR, as
for a GPU of another architecture; and with their PTX too, as for another model of the same kinds of layers.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jitdelegate.commands.demo_model import mobilenet_v1
from jitdelegate.commands.measurement.column import Column
from jitdelegate.commands.measurement.own_process import peak_bytes, resident_bytes
from jitdelegate.commands.measurement.process import run_module
from scripts.bench.rounds import child_cpu, medians
from scripts.bench.suite import Row, Suite

if TYPE_CHECKING:
    from jitdelegate.program.program import FileParts, Program

EMPTY, LOWERED, FILLED = "no templates", "NVVM IR", "templates"
"""What the cache of templates holds, in the order in which runs with the same cache fill it."""


def compile_once(arguments: argparse.Namespace) -> dict[str, Any]:
    """The child: compile for a target, keeping the templates in a folder; gives what it took."""
    model, target, precision, folder = arguments.model[0], arguments.target[0], arguments.precision, arguments.child
    from jitdelegate.base.options import DelegateOptions
    from jitdelegate.compiler.entry import compiled
    from jitdelegate.engine.model_file import ModelFile
    from jitdelegate.runtime.cache.key import KeyParts, model_key, this_machine, variant_parts
    from jitdelegate.runtime.cache.store import open_store

    kind, _, features = target.partition(":")
    loader = "cubin" if kind == "cuda" else "flat"
    own = KeyParts(kind, features or "x86-64-v3", loader, this_machine(), toolchain="")
    seconds: dict[str, float] = {}
    options = DelegateOptions(serialization_dir=folder, precision=precision)
    store, source = open_store(folder), ModelFile(model, options)

    def compile_subgraph(number: int, seconds: dict[str, float]) -> tuple[Program, Path]:
        key = model_key("", own, options=(("precision", precision), *variant_parts(number)))

        def parts() -> FileParts:
            sources = store.weight_sources(key)
            return source.make(lambda content: compiled(content, options, key, seconds, sources, source.reading))

        lookup = store.fetch(key, parts)
        assert lookup.path and lookup.program
        return lookup.program, Path(lookup.path)

    program, path = compile_subgraph(0, seconds)
    paths, further = [path], list[float]()
    for number in sorted({signature.graph for signature in program.signatures} - {0}):
        before = time.process_time()
        paths.append(compile_subgraph(number, {})[1])
        further.append(time.process_time() - before)
    memory = resident_bytes()
    sizes = {
        "program": sum(path.stat().st_size for path in paths),
        "kernels": len(program.launches or program.kernels),
        "functions": len({kernel.name for kernel in program.kernels}),
        "code": len(program.code),
        "further": sum(further) / len(further) if further else 0.0,
        "left": memory[0] - memory[1] if memory else 0,
    }
    for path in paths:
        path.unlink()  # the templates stay
    return {"seconds": seconds, "peak": peak_bytes(), **sizes}


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """One per model, target and contents of the cache of templates."""
    for model in arguments.model:
        runs: dict[str, list[dict[str, Any]]] = {}
        for number in range(arguments.rounds):
            for target in arguments.target:
                cache = arguments.folder / f"{model.stem}-{target.replace(':', '-')}-{number}"
                for state in (EMPTY, LOWERED, FILLED) if target.startswith("cuda") else ("",):
                    if state == LOWERED:
                        forget_ptx(cache)
                    name = f"{target}, {state}" if state else target
                    runs.setdefault(name, []).append(_child(model, target, arguments.precision, cache))
        for name, rounds in runs.items():
            yield {"model": model.name, "target": name, **_summary(model.stat().st_size, rounds)}


def forget_ptx(cache: Path) -> None:
    """Leaves only the NVVM IR of templates."""
    for file in cache.glob("*.ptx"):
        file.unlink()


def _child(model: Path, target: str, precision: str, cache: Path) -> dict[str, Any]:
    command = ["compile", str(model), "--target", target, "--precision", precision, "--child", str(cache)]
    before = child_cpu()
    figures, wall = run_module(target, "scripts.bench", command)
    return {"wall": wall, "cpu": child_cpu() - before, **figures}


def _summary(size: int, rounds: list[dict[str, Any]]) -> Row:
    first = rounds[0]
    figures = medians([{key: row[key] for key in ("cpu", "wall", "peak", "left", "further")} for row in rounds])
    stages = medians([row["seconds"] for row in rounds])
    return {
        **{key: first[key] for key in ("kernels", "functions", "code")},
        "program": first["program"] / size,
        "peak": figures["peak"] / size,
        "peak_mb": figures["peak"] / 1e6,
        "left": figures["left"] / 1e6,
        "further": figures["further"],
        **{key: figures[key] for key in ("cpu", "wall")},
        "range": f"{min(row['cpu'] for row in rounds):.2f} to {max(row['cpu'] for row in rounds):.2f}",
        "stages": ", ".join(f"{stage} {value:.2f}" for stage, value in stages.items()),
    }


def options(parser: argparse.ArgumentParser) -> None:
    """What to compile for."""
    parser.add_argument("--target", nargs="+", default=["cpu", "cuda:sm_90"])
    parser.add_argument("--precision", default="float32")


SUITE = Suite(
    columns=(
        *(Column("model", "<32"), Column("target", "<24"), Column("kernels", "7"), Column("functions", "9")),
        *(Column("code", "8"), Column("program", "7.3f"), Column("peak", "6.2f"), Column("peak_mb", "6.0f", "peak MB")),
        *(Column("left", "6.0f", "left MB"), Column("further", "6.2f", "further CPU s")),
        *(Column("cpu", "6.2f", "CPU s"), Column("range", "<14"), Column("wall", "6.2f", "wall s")),
        Column("stages", "<6"),
    ),
    rows=rows,
    make=mobilenet_v1,
    threads=(),
    rounds=5,
    options=options,
    child=compile_once,
)
