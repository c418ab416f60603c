"""python -m jitdelegate.demo [MODEL]: start a model cold, then warm, then with LiteRT, and compare.

--models DIR only writes the small models, with random weights, that the guides use.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from jitdelegate.base.exit_status import FAILED, GOOD, status_of
from jitdelegate.base.options import DelegateOptions
from jitdelegate.base.progress import progress
from jitdelegate.base.tables import complain
from jitdelegate.commands.arguments import directory, new_parser, threads
from jitdelegate.commands.demo_model import mobilenet_v1
from jitdelegate.commands.guide_models import write
from jitdelegate.commands.measurement.difference import nrmse
from jitdelegate.commands.measurement.process import run_module
from jitdelegate.engine.example_values import example_values
from jitdelegate.engine.model_file import ModelFile, default_threads
from jitdelegate.errors import JitDelegateError
from jitdelegate.ir.graph import Tensor
from jitdelegate.tflite.read import read

RUNS = 20
BAR = 32
"""Characters of the longest bar."""
ROADS = (("cold", "jitdelegate"), ("warm", "jitdelegate"), ("LiteRT", "litert"))


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 all three ran, or the models are written, 1 something failed, 2 wrong arguments, or a file that
    cannot be opened."""
    parser = new_parser("jitdelegate.demo", __doc__)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("model", nargs="?", metavar="MODEL", help="a .tflite file (default: a MobileNet v1 made here)")
    what.add_argument("--models", type=directory, metavar="DIR", help="only write the models of the guides to DIR")
    parser.add_argument("--threads", type=threads, default=default_threads(), metavar="N")
    arguments = parser.parse_args(argv)
    if arguments.models:
        return _write_models(Path(arguments.models))
    try:
        with tempfile.TemporaryDirectory(prefix="jitdelegate-demo-") as folder:
            print("\n".join(demonstrate(arguments.model, Path(folder), arguments.threads)))
    except JitDelegateError as error:
        complain(str(error))
        return status_of(error)
    return GOOD


def _write_models(folder: Path) -> int:
    try:
        print("\n".join(map(str, write(folder))))
    except OSError as error:
        complain(f"could not write {str(error.filename)!r}: {error.strerror}")
        return FAILED
    return GOOD


def demonstrate(model: str | None, folder: Path, threads: int) -> list[str]:
    """The lines to print.

    Raises:
        JitDelegateError: the model cannot be read, or one of the three processes failed.
    """
    if model is None:
        path, title = folder / "mobilenet_v1.tflite", "MobileNet v1 1.0 224, random weights"
        path.write_bytes(mobilenet_v1())
    else:
        path, title = Path(model), model
    inputs = write_inputs(path, folder)
    trials = {}
    with progress(len(ROADS), still=True) as bar:
        for name, road in ROADS:
            bar.begin(f"{name} start")
            trials[name] = run_trial(road, path, folder, name, threads)
            bar.done()
    report = trials["warm"]["report"]
    return [
        title,
        f"inputs      {', '.join(f'{tensor.dtype}{list(tensor.shape)}' for tensor in inputs)}",
        f"runs on     {_where(report)}",
        "",
        "start-up to the first output, each in a fresh process (ms, process by wall clock, the rest inside it)",
        *_startup(trials),
        f"a warm start takes {_ratio(trials, 'cold')} of a cold one's time, {_ratio(trials, 'LiteRT')} of LiteRT's",
        "",
        f"latency (ms, median of {RUNS} runs, {threads} threads)",
        *_bars({name: trials[name]["latency"] for name in ("warm", "LiteRT")}),
        "",
        f"agreement with LiteRT: {_agreement(trials)}",
    ]


def write_inputs(path: Path, folder: Path) -> list[Tensor]:
    """Write one `input-K.bin` per input of the model, the same in every process, and return the inputs.

    Raises:
        ModelError: the file cannot be opened or is not a model.
    """
    graph = read(ModelFile(path, DelegateOptions()).content()).graphs[0]
    random = np.random.default_rng(0)
    inputs = [graph.tensors[index] for index in graph.inputs]
    for position, tensor in enumerate(inputs):
        if tensor.dtype != "string":
            (folder / f"input-{position}.bin").write_bytes(example_values(tensor.shape, tensor.dtype, random).tobytes())
    return inputs


def run_trial(road: str, path: Path, folder: Path, name: str, threads: int, runs: int = RUNS) -> dict[str, Any]:
    """Start the model in a fresh process; its result, with the bytes of its outputs and the process's seconds.

    Raises:
        ModelError: the process failed; the message has its last line.
    """
    arguments = [road, str(path), str(folder / "cache"), str(folder), str(threads), str(runs)]
    result, seconds = run_module(name, "jitdelegate.commands.timed_start", arguments)
    if result["latency"] is not None:
        inside = sum(result["seconds"].values()) + runs * result["latency"]
        result["seconds"]["rest of process"] = max(0.0, seconds - inside)
    result["bytes"] = [(folder / f"output-{position}.bin").read_bytes() for position in range(len(result["outputs"]))]
    return result


def _where(report: dict[str, Any]) -> str:
    if report["target"] == "litert":
        reasons = dict.fromkeys(operator["reason"] for operator in report["operators"] if operator["reason"])
        return f"LiteRT, because: {' '.join(list(reasons)[:3])}"
    return f"{report['target']} {report['features']}, {report['delegated']} of {len(report['operators'])} operators"


def _startup(trials: dict[str, dict[str, Any]]) -> list[str]:
    stages = {name: _stages(trial) for name, trial in trials.items()}
    totals = {name: sum(seconds.values()) for name, seconds in stages.items()}
    lines = []
    for name, bar in zip(totals, _bars(totals), strict=True):
        shown = ", ".join(f"{stage} {1e3 * seconds:.1f}" for stage, seconds in stages[name].items() if seconds >= 5e-5)
        lines += [bar, f"            {shown}"]
    return lines


def _ratio(trials: dict[str, dict[str, Any]], other: str) -> str:
    warm, compared = (sum(_stages(trials[name]).values()) for name in ("warm", other))
    return f"{warm / compared:.2f}"


def _stages(trial: dict[str, Any]) -> dict[str, float]:
    """Seconds of the process by stage, with "open" split into the report's stages."""
    stages: dict[str, float] = {}
    for name, seconds in trial["seconds"].items():
        if name == "inputs":
            continue
        if name == "open":
            stages |= trial["report"]["seconds"]
        else:
            stages[name] = seconds
    return stages


def _bars(seconds: dict[str, float]) -> list[str]:
    longest = max(seconds.values()) or 1.0
    return [
        f"{name:<8}{1e3 * value:>10.2f}  {'█' * max(1, round(BAR * value / longest))}"
        for name, value in seconds.items()
    ]


def _agreement(trials: dict[str, dict[str, Any]]) -> str:
    ours, theirs = trials["warm"], trials["LiteRT"]
    pairs = list(zip(ours["outputs"], ours["bytes"], theirs["bytes"], strict=True))
    if all(mine == other for _, mine, other in pairs):
        return "every byte of every output is the same"
    if any(_is_text(info) and mine != other for info, mine, other in pairs):
        return "texts differ"
    worst = max(nrmse(_values(info, mine), _values(info, other)) for info, mine, other in pairs if not _is_text(info))
    return f"NRMSE {worst:.2e} (worst output)"


def _is_text(info: dict[str, Any]) -> bool:
    return np.dtype(info["dtype"]).kind in "OS"


def _values(info: dict[str, Any], content: bytes) -> np.ndarray:
    return np.frombuffer(content, info["dtype"]).astype(np.float64)
