"""python -m jitdelegate.warm MODEL [MODEL ...]: compile models into the cache ahead of their first use.

--target cuda:sm_80,sm_90 (or cuda:all) compiles for GPUs that this machine may lack: the most common one of each
architecture, or with cuda:sm_90:114 one with this number of multiprocessors. --target cpu:x86-64-v3,cpu:aarch64
compiles for other CPUs with Linux. Several targets, with commas between them or each with a --target of its own, go to
one folder.

--output writes the programs to a folder that all users may read, wherever it is copied to: the option `prebuilt`.

--input-shape ids=1x128:mask=1x128 compiles for these sizes of inputs as well; give it once for each set of sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from typing import Any

from jitdelegate.api import announce
from jitdelegate.api.model import Model
from jitdelegate.base.exit_status import FAILED, GOOD, status_of
from jitdelegate.base.options import ANY_PRECISION, FIELDS, TUNINGS, DelegateOptions
from jitdelegate.base.progress import Bar, progress
from jitdelegate.base.tables import complain, print_line
from jitdelegate.base.user_warning import PlainWarnings
from jitdelegate.commands.arguments import TARGETS, Target, add_options_file, directory, new_parser, targets, threads
from jitdelegate.commands.measurement.entry import Shape
from jitdelegate.commands.run_arguments import named_shapes
from jitdelegate.engine.load_path import open_hosted, open_model
from jitdelegate.engine.model_file import ModelFile
from jitdelegate.errors import CacheWarning, DelegateWarning, JitDelegateError
from jitdelegate.runtime.cache.eviction import MOST_STORED
from jitdelegate.runtime.cache.output_folder import open_output
from jitdelegate.runtime.cache.store import Store, counts
from jitdelegate.targets import target_named
from jitdelegate.targets.target import Device

FURTHER = {
    "precision": "in which floats are multiplied (default: float32)",
    "tuning": "measure kernels on this machine's GPU, few or all (default: none)",
    "quantized_execution": "how quantized operators are computed (default: auto)",
    "quantized_rounding": "the kernels of LiteRT to agree with (default: litert)",
    "quantize_inputs": "take float32 for quantized inputs",
    "dequantize_outputs": "return float32 for quantized outputs",
}
"""Options that arguments give besides the parameters of `load`, with their help."""
_UNTUNED = "not tuned, since kernels are measured on this machine's GPU only, with --target cuda"
_UNCHOSEN = "float32 in place of auto, since precisions are measured on this machine only"


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 every model is warm, 1 some model failed, 2 wrong arguments, or a file cannot be opened."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if _token(arguments) is not None and len(arguments.model) > 1:
        parser.error(f"--model-token names one entry, but {len(arguments.model)} models were given; expected one")
    targets = [target for given in arguments.target or [[Target()]] for target in given]
    if arguments.litert_interpreter and any(one.target.is_accelerator for target in targets for one in target.devices):
        parser.error("--litert-interpreter is for CPUs, not for cuda:ARCHITECTURES")
    if len(arguments.input_shape) > MOST_STORED:
        found = f"{len(arguments.input_shape)} shapes"
        parser.error(f"--input-shape gives {found}, but the cache keeps {MOST_STORED} of a model; expected no more")
    with PlainWarnings(CacheWarning, DelegateWarning):
        results = _warm_all(arguments, targets)
    if arguments.json:
        print_line(json.dumps(results, indent=2))
    return max(int(result.get("status", GOOD)) for result in results)


def _warm_all(arguments: argparse.Namespace, targets: Sequence[Target]) -> list[dict[str, Any]]:
    results = []
    named = ((target.name, device) for target in targets for device in target.devices or (None,))
    each = {(target, device.kind if device else ""): (target, device) for target, device in named}.values()
    jobs = [(model, *one) for model in arguments.model for one in each]
    with progress(len(jobs)) as bar:
        for model, target, device in jobs:
            bar.begin(f"{model} {device.kind if device else ''}")
            results.append(warm_for(model, device, arguments) if device else warm(model, arguments, bar, target))
            if not arguments.json:
                _print_result(results[-1])
            bar.done()
    return results


def _parser() -> argparse.ArgumentParser:
    parser = new_parser("jitdelegate.warm", __doc__)
    parser.add_argument("model", nargs="+", metavar="MODEL", help="a .tflite file")
    parser.add_argument(
        "--serialization-dir",
        type=directory,
        metavar="D",
        help="where programs are kept (default: the user's cache)",
    )
    parser.add_argument("--model-token", metavar="T", help="names the entry instead of the model's fingerprint")
    parser.add_argument(
        "--target",
        action="append",
        type=targets,
        metavar="T",
        help=f"{TARGETS}, or for devices that are not here cuda:sm_80,sm_90:114, cuda:all, cpu:aarch64 (default: auto)",
    )
    for name, help in FURTHER.items():
        choices = FIELDS[name].choices
        how: dict[str, Any] = {"choices": choices} if choices else {"action": "store_true", "default": None}
        parser.add_argument(f"--{name.replace('_', '-')}", help=help, **how)
    add_options_file(parser, "further options from JSON or TOML; others win")
    parser.add_argument(
        "--output",
        type=directory,
        metavar="D",
        help="keep programs in a folder to carry away, which all may read",
    )
    parser.add_argument(
        "--litert-interpreter", action="store_true", help="also for LiteRT's own interpreter with a GpuDelegate"
    )
    parser.add_argument(
        "--input-shape",
        action="append",
        default=[],
        type=named_shapes,
        metavar="NAME=1x128:NAME=1x128",
        help="also for these sizes of inputs, by name or number; once for each set of sizes",
    )
    parser.add_argument("--threads", type=threads, metavar="N", help="threads that share one inference")
    parser.add_argument("--json", action="store_true", help="print one JSON list instead of lines")
    return parser


def _token(arguments: argparse.Namespace) -> str | None:
    token: str | None = arguments.model_token
    return arguments.options.get("model_token") if token is None else token


def _further(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options for which `load` has no argument, and the file's, which arguments override."""
    given = {name: getattr(arguments, name) for name in FURTHER}
    return {**arguments.options, **{name: value for name, value in given.items() if value is not None}}


def warm(model: str, arguments: argparse.Namespace, bar: Bar, target: str | None = None) -> dict[str, Any]:
    """Compile one model into the cache; the result as plain data, failures as the entries "error" and "status"."""
    start = time.perf_counter()
    named = {
        "target": target,
        "serialization_dir": arguments.serialization_dir,
        "model_token": arguments.model_token,
        "num_threads": arguments.threads,
    }
    try:
        options = DelegateOptions.from_keywords(named, _further(arguments))
        store = _output(arguments)
        source = ModelFile(model, options, listener=announce, store=store)
        with source.kept(), Model(open_model(source)) as loaded:
            loaded.prepare(progress=bar)
            shapes = [_warm_shape(loaded, one, bar) for one in arguments.input_shape]
            report = loaded.report()
        if arguments.litert_interpreter:
            source = ModelFile(model, options, store=store)
            with source.kept():
                open_hosted(source).prepare(arguments.input_shape)
    except (JitDelegateError, OSError, MemoryError) as error:
        return _failed(model, error, start)
    trouble = report.failure or f"nothing was stored: {report.cache.write_failure or report.cache.reason}"
    return {
        "model": model,
        **_outcome(report.cache.hit, report.cache.path, start),
        "target": _where(report.target, report.features),
        "delegated": report.delegated + sum(one.delegated for one in report.subgraphs),
        "operators": len(report.operators) + sum(len(one.operators) for one in report.subgraphs),
        "path": report.cache.path,
        "notes": list(report.notes),
        "shapes": shapes,
        "subgraphs": [one.to_dict() for one in report.subgraphs],
        **(_trouble(trouble) if report.failure or not _size(report.cache.path) else {}),
    }


def _output(arguments: argparse.Namespace) -> Store | None:
    """The store of the folder that the programs go to; None for the one that the options name.

    Raises:
        CacheError: the folder cannot be used.
    """
    return None if arguments.output is None else open_output(arguments.output)


def _warm_shape(loaded: Model, sizes: dict[str, Shape], bar: Bar) -> dict[str, Any]:
    """Compile a model for these sizes of inputs into the cache; the result as plain data."""
    start, written = time.perf_counter(), counts.writes
    loaded.prepare([sizes], progress=bar)
    return {"inputs": sizes, "state": _state(counts.writes == written), "seconds": time.perf_counter() - start}


def warm_for(model: str, device: Device, arguments: argparse.Namespace) -> dict[str, Any]:
    """As `warm`, for a device that this machine may lack."""
    from jitdelegate.engine.precompile import precompile

    start = time.perf_counter()
    named = {
        "target": device.target.name,
        "serialization_dir": arguments.serialization_dir,
        "model_token": arguments.model_token,
    }
    options = DelegateOptions.from_keywords(named, _further(arguments))
    kind = {"gpu" if device.target.is_accelerator else "cpu": device.kind}
    try:
        hosted = arguments.litert_interpreter
        precompiled = precompile(model, device, options, _output(arguments), arguments.input_shape, hosted=hosted)
    except (JitDelegateError, OSError, MemoryError) as error:
        return {**_failed(model, error, start), **kind}
    programs = (precompiled.program, *precompiled.further)
    return {
        "model": model,
        **kind,
        **_outcome(precompiled.hit, precompiled.path, start),
        "target": f"{precompiled.program.target}:{device.kind}",
        "delegated": sum(program.delegated for program in programs),
        "operators": sum(len(program.operators) for program in programs),
        "path": precompiled.path,
        "notes": _unmeasured(options, device),
        "shapes": [
            {"inputs": sizes, "state": _state(hit)}
            for sizes, hit in zip(arguments.input_shape, precompiled.shapes, strict=True)
        ],
        **({} if precompiled.path else _trouble(f"nothing was stored: {precompiled.trouble}")),
    }


def _outcome(hit: bool, path: str, start: float) -> dict[str, Any]:
    return {"state": _state(hit), "seconds": time.perf_counter() - start, "bytes": _size(path)}


def _state(hit: bool) -> str:
    return "hit" if hit else "compiled"


def _unmeasured(options: DelegateOptions, device: Device) -> list[str]:
    """What is not measured for a device that this machine may lack."""
    noted = [device.note] if device.note else []
    untuned = device.target.is_accelerator and options.tuning != TUNINGS[0]
    unchosen = options.precision == ANY_PRECISION
    return noted + [_UNTUNED] * untuned + [_UNCHOSEN] * unchosen


def _where(target: str, features: str) -> str:
    """Name of a program's device, as --target takes it."""
    return f"{target}:{features}" if target_named(target).is_accelerator else target


def _failed(model: str, error: BaseException, start: float) -> dict[str, Any]:
    told = _trouble(str(error) or type(error).__name__, status_of(error))
    return {"model": model, **told, "seconds": time.perf_counter() - start}


def _trouble(error: str, status: int = FAILED) -> dict[str, Any]:
    return {"error": error, "status": status}


def _size(path: str) -> int:
    """Bytes of the entry; 0 where there is none."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _print_result(result: dict[str, Any]) -> None:
    if "error" in result:
        complain(f"{result['model']}: {result['error']}")
        return
    print_line(
        f"{result['model']}: {result['state']}, {result['seconds']:.3f} s, {result['bytes']} bytes, "
        f"{result['delegated']} of {result['operators']} operators delegated, runs on {result['target']}"
    )
    for shape in result["shapes"]:
        sizes = " and ".join(f"{name} of {list(each)}" for name, each in shape["inputs"].items())
        taken = f", {shape['seconds']:.3f} s" if "seconds" in shape else ""
        print_line(f"{result['model']}: for {sizes}: {shape['state']}{taken}")
    for note in () if "subgraphs" in result else result["notes"]:  # this machine's are those of a report
        complain(f"{result['model']}: {note}")
