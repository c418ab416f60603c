"""Run every .tflite file of folders, nested ones too, through jitdelegate and LiteRT's builtin kernels, and compare.

    python -m scripts.check_models FOLDER_OR_FILE ... [--through load|interpreter|litert] [--threads N] [--json]

`--through` says who runs the model: `jitdelegate.load`, `jitdelegate.Interpreter`, or LiteRT's own interpreter with a
`jitdelegate.GpuDelegate`.

Each model runs in a child process, on random input and, where it takes an NHWC RGB float image, on a picture. A model
that neither side can run passes if jitdelegate says so in one clear error. Exit status 1 if a float model that is
wholly compiled exceeds an NRMSE of 1e-5 (1e-4 with fp16 weights), if a model is refused that LiteRT runs, if
`jitdelegate.analyze` says otherwise than `jitdelegate.load` where an operator runs, or if a process crashes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ai_edge_litert.interpreter as litert
import numpy as np

import jitdelegate
from jitdelegate.base.options import DelegateOptions
from jitdelegate.commands.analysis.survey import analyze
from jitdelegate.commands.measurement.difference import nrmse
from jitdelegate.engine.example_values import example_values
from jitdelegate.errors import JitDelegateError
from jitdelegate.tflite.read import read
from scripts.models import models_in

FLOAT_LIMIT = 1e-5
HALF_LIMIT = 1e-4
SECONDS = 300
KINDS = litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES, litert.OpResolverType.AUTO


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 all hold, 1 some do not, 2 wrong arguments, or a path with nothing to check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="+", type=Path)
    parser.add_argument("--through", choices=ROADS, default="load")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.child:
        print(json.dumps(check(arguments.path[0], arguments.through, arguments.threads)), flush=True)
        return 0
    found = {path: models_in(path) for path in arguments.path}
    if empty := [str(path) for path, models in found.items() if not models]:
        parser.error(f"there is nothing to check, no .tflite file: {', '.join(empty)}")
    rows = []
    for model in [model for models in found.values() for model in models]:
        rows.append(_in_child(model, arguments.through, arguments.threads))
        if not arguments.json:
            print(_line(rows[-1]), flush=True)
    if arguments.json:
        print(json.dumps(rows, indent=2))
    return 1 if any(row["verdict"] not in ("ok", "refused by both") for row in rows) else 0


def _in_child(model: Path, through: str, threads: int) -> dict[str, Any]:
    own = [sys.executable, "-m", "scripts.check_models", "--child"]
    command = [*own, "--through", through, "--threads", str(threads), str(model)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"model": model.name, "verdict": f"HANGS for {SECONDS} s"}
    if done.returncode:
        words = done.stderr.strip().splitlines()[-1:] or [""]
        return {"model": model.name, "verdict": f"CRASHES with {done.returncode}: {words[0]}"}
    row: dict[str, Any] = json.loads(done.stdout)
    return row


class Loaded:
    """A model through `jitdelegate.load`."""

    def __init__(self, path: Path, threads: int) -> None:
        self._model = jitdelegate.load(path, serialization_dir=False, num_threads=threads)
        self.report = self._model.report
        self.inputs = [(info.shape, info.dtype) for info in self._model.inputs]

    def run(self, inputs: list[np.ndarray]) -> list[Any]:
        found = self._model(*inputs)
        return list(found) if isinstance(found, tuple) else [found]


class Interpreted:
    """A model through an interpreter with LiteRT's methods."""

    def __init__(self, path: Path, threads: int, make: Any) -> None:
        delegate = jitdelegate.GpuDelegate(serialization_dir=False, num_threads=threads)
        self._interpreter = make(str(path), num_threads=threads, experimental_delegates=[delegate])
        self._interpreter.allocate_tensors()
        self.report = getattr(self._interpreter, "report", delegate.report)
        details = self._interpreter.get_input_details()
        self.inputs = [(tuple(each["shape"].tolist()), _name(each["dtype"])) for each in details]

    def run(self, inputs: list[np.ndarray]) -> list[Any]:
        for detail, value in zip(self._interpreter.get_input_details(), inputs, strict=True):
            self._interpreter.set_tensor(detail["index"], value)
        self._interpreter.invoke()
        return [self._interpreter.get_tensor(each["index"]) for each in self._interpreter.get_output_details()]


def _name(dtype: Any) -> str:
    return "string" if dtype in (np.bytes_, np.object_, np.str_) else np.dtype(dtype).name


ROADS = {
    "load": Loaded,
    "interpreter": lambda path, threads: Interpreted(path, threads, jitdelegate.Interpreter),
    "litert": lambda path, threads: Interpreted(path, threads, litert.Interpreter),
}


def check(path: Path, through: str, threads: int) -> dict[str, Any]:
    """One model's row, as plain data."""
    warnings.simplefilter("ignore", jitdelegate.DelegateWarning)
    row: dict[str, Any] = {"model": path.name}
    try:
        model = ROADS[through](path, threads)
    except (JitDelegateError, ValueError, RuntimeError) as error:
        refused = not _runs_in_litert(path)
        return {**row, "error": str(error), "verdict": "refused by both" if refused else "REFUSED"}
    report = model.report()
    row |= {"target": report.target, "delegated": report.delegated, "operators": len(report.operators)}
    try:
        row["nrmse"] = _worst(path, model)
    except (JitDelegateError, ValueError, RuntimeError) as error:
        return {
            **row,
            "error": str(error),
            "verdict": "REFUSED" if _answers(path, model, through) else "refused by both",
        }
    row["limit"] = _limit(path) if report.fully_delegated else None
    row["verdict"] = "ok" if row["limit"] is None or row["nrmse"] <= row["limit"] else "TOO FAR OFF"
    if row["verdict"] == "ok" and through == "load" and _analyzed(path, threads) != list(map(_place, report.operators)):
        row["verdict"] = "ANALYZED OTHERWISE"
    return row


def _analyzed(path: Path, threads: int) -> list[tuple[Any, ...]]:
    """What the analyzer says of each operator, without running the model."""
    options = DelegateOptions(serialization_dir=False, num_threads=threads)
    return list(map(_place, analyze(str(path), options).main.nodes))


def _place(node: Any) -> tuple[Any, ...]:
    return node.index, node.op, node.place, node.reason, node.code


def _runs_in_litert(path: Path) -> bool:
    """Whether LiteRT itself would have run it; in a further process, since that may crash."""
    code = (
        "import sys; from ai_edge_litert.interpreter import Interpreter as I;"
        "i = I(sys.argv[1]); i.allocate_tensors(); i.invoke()"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, timeout=SECONDS, check=False)
    return done.returncode == 0


def _answers(path: Path, model: Any, through: str) -> bool:
    """Whether LiteRT answers to the inputs that are tried; its own interpreter takes XNNPACK, and nothing else then."""
    kinds = KINDS[1:] if through == "litert" else KINDS
    try:
        for inputs in _inputs(model):
            _litert(path, inputs, kinds)
    except (ValueError, RuntimeError):
        return False
    return True


def _worst(path: Path, model: Any) -> float:
    """The worst output's NRMSE against LiteRT over all inputs tried."""
    worst = 0.0
    for inputs in _inputs(model):
        found = model.run(inputs)
        expected = _litert(path, inputs)
        worst = max([worst, *(_distance(a, b) for a, b in zip(found, expected, strict=True))])
    return worst


def _inputs(model: Any) -> list[list[np.ndarray]]:
    random = np.random.default_rng(0)
    tried = [[random_values(shape, dtype, random) for shape, dtype in model.inputs]]
    if len(model.inputs) == 1 and _takes_picture(*model.inputs[0]):
        tried.append([picture(model.inputs[0][0])])
    return tried


def random_values(shape: tuple[int, ...], dtype: str, random: np.random.Generator) -> np.ndarray:
    """As `example_values`, with texts too."""
    if dtype == "string":
        return np.full(shape, b"an example")
    return example_values(shape, dtype, random)


def _takes_picture(shape: tuple[int, ...], dtype: str) -> bool:
    return dtype == "float32" and len(shape) == 4 and shape[0] == 1 and shape[3] == 3


def picture(shape: tuple[int, ...]) -> np.ndarray:
    """scikit-image's astronaut as f32[1,H,W,3] from -1 to 1."""
    from skimage.data import astronaut
    from skimage.transform import resize

    image = resize(astronaut(), shape[1:3], anti_aliasing=True)
    return np.asarray(2 * image[None] - 1, np.float32)


def _litert(path: Path, inputs: list[np.ndarray], kinds: Sequence[Any] = KINDS) -> list[np.ndarray]:
    """LiteRT's builtin kernels, or XNNPACK for operators that only XNNPACK has."""
    for kind in kinds:
        interpreter = litert.Interpreter(str(path), experimental_op_resolver_type=kind)
        try:
            interpreter.allocate_tensors()
            break
        except RuntimeError:
            if kind is kinds[-1]:
                raise
    for detail, value in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def _distance(found: Any, expected: np.ndarray) -> float:
    array = np.asarray(found)
    if array.dtype.kind not in "biufc":
        return 0.0 if np.array_equal(array, expected) else np.inf
    return nrmse(array.astype(np.float64), expected.astype(np.float64))


def _limit(path: Path) -> float:
    graph = read(path.read_bytes()).graphs[0]
    half = any(tensor.is_constant and tensor.dtype == "float16" for tensor in graph.tensors)
    return HALF_LIMIT if half else FLOAT_LIMIT


def _line(row: dict[str, Any]) -> str:
    ran = f"{row['target']} {row['delegated']}/{row['operators']}" if "target" in row else "-"
    error = f"{row['nrmse']:.1e}" if "nrmse" in row else "-"
    return f"{row['model']:<64}{ran:<16}{error:>9}  {row['verdict']}  {row.get('error', '')}".rstrip()


if __name__ == "__main__":
    sys.exit(main())
