"""Compare the programs of two commits, or the latency of one inference with each.

    python -m scripts.compare_programs programs COMMIT COMMIT FOLDER_OR_FILE ... [--largest 60]
    python -m scripts.compare_programs latency COMMIT COMMIT FOLDER_OR_FILE ... [--threads 1] [--rounds 40]
    python -m scripts.compare_programs hash FOLDER_OR_FILE ...

"." stands for the working tree. `programs` generates code for every instruction set of the CPU and several GPUs,
without LLVM's and NVIDIA's compilers: it compares LLVM IR, kernel templates, weights, plans of memory and launches of
all models that are compiled as a whole. `latency` runs each commit in a process of its own, in turns; its ratio is the
first commit's time over the second's, so above 1 the second is faster. `hash` prints the hashes that `programs`
compares, for this checkout.

No GPU is needed. Exit status of `programs`: 0 all are equal, 1 some differ.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from pathlib import Path
from unittest.mock import patch

from xxhash import xxh3_64_hexdigest

WORKING_TREE = "."
GPUS = (
    *(("sm_90:132", precision) for precision in ("float32", "tf32", "float16")),
    *(("sm_75", precision) for precision in ("float32", "float16")),
)
"""(kind, precision) pairs."""
Hashes = dict[str, str]
"""Part of a generated program -> hash of its content; or "error" -> its text."""


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 all is well or equal, 1 programs differ, 2 wrong arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)
    for name in ("programs", "latency", "hash", "serve"):
        mode = modes.add_parser(name)
        if name in ("programs", "latency"):
            mode.add_argument("commits", nargs=2, metavar="COMMIT")
        mode.add_argument("paths", nargs="+", type=Path)
        mode.add_argument("--largest", type=float, default=60, help="size of the largest model in MB")
        mode.add_argument("--threads", type=int, default=1)
        mode.add_argument("--rounds", type=int, default=40)
    arguments = parser.parse_args(argv)
    if arguments.mode == "serve":
        return serve(arguments.paths[0], arguments.threads)
    files = [file.resolve() for file in models(arguments.paths, arguments.largest)]
    if arguments.mode == "hash":
        json.dump(hashes(files), sys.stdout, indent=1, sort_keys=True)
        return 0
    with checkout(arguments.commits[0]) as first, checkout(arguments.commits[1]) as second:
        if arguments.mode == "latency":
            return compare_latency((first, second), files, arguments.threads, arguments.rounds)
        before, after = (json.loads(_run(folder, "hash", *map(str, files))) for folder in (first, second))
    return report(before, after)


def models(paths: Sequence[Path], largest: float) -> Iterator[Path]:
    """The .tflite files of folders, at any depth, and files, up to a size in MB."""
    for path in paths:
        for file in sorted(path.rglob("*.tflite")) if path.is_dir() else [path]:
            if file.stat().st_size <= largest * 1e6:
                yield file


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """A folder with the files of a commit, which has this script."""
    if commit == WORKING_TREE:
        yield Path.cwd()
        return
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "checkout"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", folder, commit], check=True)
        try:
            own = folder / "scripts" / Path(__file__).name
            if not own.exists():
                own.write_bytes(Path(__file__).read_bytes())
            yield folder
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", folder], check=True)


def _command(mode: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "scripts.compare_programs", mode, *arguments]


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(folder)}


def _run(folder: Path, mode: str, *arguments: str) -> str:
    command = _command(mode, "--largest=inf", *arguments)
    ran = subprocess.run(command, cwd=folder, env=_environment(folder), check=True, stdout=subprocess.PIPE)
    return ran.stdout.decode()


# --- programs


def hashes(files: Sequence[Path]) -> dict[str, dict[str, Hashes]]:
    """Model -> device -> hashes of the generated program's parts; no devices where it is not compiled as a whole."""
    with ProcessPoolExecutor() as pool:
        return dict(zip(map(str, files), pool.map(_hashes, files), strict=True))


def _hashes(file: Path) -> dict[str, Hashes]:
    from scripts.lowered_models import lowered_models

    try:
        graph = next((graph for _, graph in lowered_models([file])), None)
    except Exception as error:  # noqa: BLE001  # an answer: the other commit should fail alike
        return {"passes": {"error": repr(error)}}
    if graph is None:
        return {}
    return {device: _attempt(generate, graph) for device, generate in _generators().items()}


def _attempt(generate: Callable[..., object], graph: object) -> Hashes:
    texts: dict[str, str] = {}

    def trace(stage: str, make: Callable[[], str]) -> None:
        if stage == "plan":
            texts[stage] = make()

    try:
        made = generate(graph, trace)
    except Exception as error:  # noqa: BLE001  # as above
        return {"error": repr(error)}
    parts = {field.name: getattr(made, field.name) for field in fields(made)} | texts  # type: ignore[arg-type]
    return {name: xxh3_64_hexdigest(_bytes(part)) for name, part in parts.items()}


def _bytes(part: object) -> bytes:
    return bytes(part) if isinstance(part, bytes | bytearray) else repr(part).encode()


def _generators() -> Mapping[str, Callable[..., object]]:
    """Device -> a function from a lowered graph and a trace to generated code, whose text was not compiled."""
    from jitdelegate.base.targets import EXACT, LEVELS
    from jitdelegate.targets.cpu import generate as cpu
    from jitdelegate.targets.cuda import generate as cuda
    from jitdelegate.targets.cuda.compile.back_end import Cubin
    from jitdelegate.targets.cuda.compile.compile_templates import Compiled

    def ir(text: str, features: str, names: tuple[str, ...]) -> tuple[bytes, tuple[tuple[str, int], ...]]:
        return text.encode(), tuple((name, 0) for name in names)

    def templates(wanted: Sequence[object], *_: object) -> list[Compiled]:
        return [Compiled(one, b"", Cubin(repr(one).encode(), 0, 0, 0, 0)) for one in wanted]

    def for_cpu(features: str, precision: str) -> Callable[..., object]:
        def generate(graph: object, trace: object) -> object:
            with patch.object(cpu, "_machine_code", ir):
                return cpu.generate(graph, features, trace, precision=precision)

        return generate

    def for_gpu(kind: str, precision: str) -> Callable[..., object]:
        def generate(graph: object, trace: object) -> object:
            with patch.object(cuda, "compile_templates", templates):
                return cuda.generate(graph, kind, precision, None, trace, None)

        return generate

    return {f"cpu:{name}": for_cpu(name, level.only_for or EXACT) for name, level in LEVELS.items()} | {
        f"cuda:{kind} {precision}": for_gpu(kind, precision) for kind, precision in GPUS
    }


def report(before: Mapping[str, Mapping[str, Hashes]], after: Mapping[str, Mapping[str, Hashes]]) -> int:
    """Print which parts differ; 1 if some do."""
    count, different = 0, Counter[str]()
    for model, devices in before.items():
        for device in {**devices, **after[model]}:
            count += 1
            old, new = devices.get(device, {}), after[model].get(device, {})
            parts = sorted(part for part in {**old, **new} if old.get(part) != new.get(part))
            if parts:
                different[device] += 1
                print(f"{Path(model).name} {device}: {', '.join(parts)}", old.get("error", ""), new.get("error", ""))
    failed = sum("error" in parts for devices in after.values() for parts in devices.values())
    whole = sum(bool(devices) for devices in after.values())
    print(f"{whole} of {len(before)} models, {count} programs, {failed} failed, {different.total()} differ")
    return int(bool(different))


# --- latency


def serve(model: Path, threads: int) -> int:
    """Answer each line on stdin, a number of inferences, with the seconds that one of them took."""
    import jitdelegate
    from scripts.models import ready

    delegate = jitdelegate.GpuDelegate(serialization_dir=False, target="cpu")
    interpreter = ready(jitdelegate.Interpreter(str(model), num_threads=threads, experimental_delegates=[delegate]))
    for line in sys.stdin:
        count = int(line)
        start = time.perf_counter()
        for _ in range(count):
            interpreter.invoke()
        print((time.perf_counter() - start) / count, flush=True)
    return 0


@contextmanager
def _served(folder: Path, model: Path, threads: int) -> Iterator[Callable[[int], float]]:
    command = _command("serve", str(model), f"--threads={threads}")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=folder, env=_environment(folder), text=True, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def seconds(count: int) -> float:
            print(count, file=process.stdin, flush=True)
            return float(process.stdout.readline())

        yield seconds
        process.stdin.close()


def compare_latency(folders: Sequence[Path], files: Sequence[Path], threads: int, rounds: int) -> int:
    """Print each model's medians and the median ratio of its rounds; each round lasts some 20 ms a side."""
    ratios = []
    for model in files:
        with ExitStack() as stack:
            first, second = (stack.enter_context(_served(folder, model, threads)) for folder in folders)
            count = max(1, round(0.02 / max(first(5), second(5))))
            rows = [_turn(first, second, count, number) for number in range(rounds)]
        low, middle, high = statistics.quantiles((old / new for old, new in rows), n=4)
        ratios.append(middle)
        times = [1e3 * statistics.median(side) for side in zip(*rows, strict=True)]
        print(f"{model.name:<45} {times[0]:9.4f} ms {times[1]:9.4f} ms  {middle:.3f} ({low:.3f} to {high:.3f})")
    if len(ratios) > 1:
        print(f"geometric mean {statistics.geometric_mean(ratios):.3f}, least {min(ratios):.3f}")
    return 0


def _turn(
    first: Callable[[int], float], second: Callable[[int], float], count: int, number: int
) -> tuple[float, float]:
    """Seconds of both sides; who begins alternates."""
    if number % 2:
        late = second(count)
        return first(count), late
    return first(count), second(count)


if __name__ == "__main__":
    sys.exit(main())
