"""python -m jitdelegate.warm MODEL [MODEL ...]: compile models into the cache ahead of their first use.

Of a folder, all .tflite files below it are compiled.

--target cuda:sm_80,sm_90 (or cuda:all) compiles for GPUs that this machine may lack: the most common one of each
architecture, or with cuda:sm_90:114 one with this number of multiprocessors. --target cpu:x86-64-v3,cpu:aarch64
compiles for other CPUs with Linux. Several targets, with commas between them or each with a --target of its own, go to
one folder.

--output writes the programs to a folder that all users may read, wherever it is copied to: the option `prebuilt`.

--input-shape ids=1x128:mask=1x128 compiles for these sizes of inputs as well; give it once for each set of sizes.

--jobs N compiles in N processes, each a model for a target; fewer where memory is short. --dask and --ray compile on a
cluster, for targets that are named: models travel there, and programs come back. What a process or a machine does not
finish is begun once more elsewhere.

--check compiles and writes nothing. It says whether each program is there, with every byte checked, or why not.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jitdelegate.api import announce
from jitdelegate.api.model import Model
from jitdelegate.base.exit_status import FAILED, GOOD, status_of
from jitdelegate.base.options import ANY_PRECISION, FIELDS, LONGEST_NUMBER, TUNINGS, DelegateOptions
from jitdelegate.base.progress import Bar, progress
from jitdelegate.base.tables import complain, print_line
from jitdelegate.base.user_warning import PlainWarnings
from jitdelegate.commands.arguments import TARGETS, Target, add_options_file, directory, new_parser, targets, threads
from jitdelegate.commands.fleet.clusters import LOCAL, ClusterError, dask_workers, ray_workers
from jitdelegate.commands.fleet.jobs import run_jobs, told
from jitdelegate.commands.fleet.memory import allowed_workers
from jitdelegate.commands.fleet.parcel import Order, Parcel, fill_order, order_for, unpack
from jitdelegate.commands.fleet.processes import Processes, usable_cpus
from jitdelegate.commands.measurement.entry import Shape
from jitdelegate.commands.run_arguments import named_shapes
from jitdelegate.engine.load_path import open_hosted, open_model
from jitdelegate.engine.model_file import ModelFile
from jitdelegate.errors import CacheWarning, DelegateWarning, JitDelegateError
from jitdelegate.runtime.cache.eviction import MOST_STORED
from jitdelegate.runtime.cache.key import fingerprint
from jitdelegate.runtime.cache.output_folder import open_output
from jitdelegate.runtime.cache.store import Store, counts, open_store
from jitdelegate.targets import target_named
from jitdelegate.targets.target import Device

if TYPE_CHECKING:
    from jitdelegate.engine.precompile import Precompiled

FURTHER = {
    "precision": "in which floats are multiplied (default: float32)",
    "tuning": "measure kernels on this machine's GPU, few or all (default: none)",
    "quantized_execution": "how quantized operators are computed (default: auto)",
    "quantized_rounding": "the kernels of LiteRT to agree with (default: litert)",
    "quantize_inputs": "take float32 for quantized inputs",
    "dequantize_outputs": "return float32 for quantized outputs",
}
"""Options that arguments give besides the parameters of `load`, with their help."""
MISS = "miss"
"""The state of a program that --check does not find."""
_UNTUNED = "not tuned, since kernels are measured on this machine's GPU only, with --target cuda"
_UNCHOSEN = "float32 in place of auto, since precisions are measured on this machine only"


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 every model is warm, 1 some model failed or --check found a miss, 2 wrong arguments, or a file
    cannot be opened."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    arguments.model = [model for given in arguments.model for model in _models(given)]
    if not arguments.model:
        parser.error("the folders have no .tflite file")
    targets = [target for given in arguments.target or [[Target()]] for target in given]
    if _is_on_cluster(arguments) and not all(target.devices for target in targets):
        parser.error("--dask and --ray compile for --target cuda:ARCHITECTURES or cpu:INSTRUCTION_SETS only")
    if _is_on_cluster(arguments) and arguments.check:
        parser.error("--check reads the cache here, not with --dask or --ray")
    if arguments.litert_interpreter and any(one.target.is_accelerator for target in targets for one in target.devices):
        parser.error("--litert-interpreter is for CPUs, not for cuda:ARCHITECTURES")
    if len(arguments.input_shape) > MOST_STORED:
        found = f"{len(arguments.input_shape)} shapes"
        parser.error(f"--input-shape gives {found}, but the cache keeps {MOST_STORED} of a model; expected no more")
    with PlainWarnings(CacheWarning, DelegateWarning):
        try:
            results = _warm_all(arguments, targets)
        except ClusterError as error:
            parser.error(str(error))
    return max(int(result.get("status", GOOD)) for result in results)


class Job(NamedTuple):
    """One model for one target. Without a device, it is compiled for one of this machine."""

    model: str
    target: str | None
    device: Device | None

    @property
    def kind(self) -> dict[str, str]:
        """The device, for results."""
        return {"gpu" if self.device.target.is_accelerator else "cpu": self.device.kind} if self.device else {}

    @property
    def title(self) -> str:
        """For progress."""
        return f"{self.model} {' '.join(self.kind.values())}"


def _models(given: str) -> list[str]:
    return sorted(map(str, Path(given).rglob("*.tflite"))) if os.path.isdir(given) else [given]


def _is_on_cluster(arguments: argparse.Namespace) -> bool:
    return arguments.dask is not None or arguments.ray is not None


def _warm_all(arguments: argparse.Namespace, targets: Sequence[Target]) -> list[dict[str, Any]]:
    named = ((target.name, device) for target in targets for device in target.devices or (None,))
    each = {(target, device.kind if device else ""): (target, device) for target, device in named}.values()
    jobs, results = [Job(model, *one) for model in arguments.model for one in each], dict[int, dict[str, Any]]()
    try:
        with progress(len(jobs)) as bar:
            for position, result in _results(jobs, arguments, bar):
                results[position] = result
                if not arguments.json:
                    _print_result(result)
                bar.done()
    finally:  # what was done before Ctrl-C is told
        done = [results[position] for position in sorted(results)]
        if arguments.json:
            print_line(json.dumps(done, indent=2))
        if 0 < len(done) < len(jobs):
            complain(f"{len(done)} of {len(jobs)} jobs were done")
    return done


def _results(jobs: Sequence[Job], arguments: argparse.Namespace, bar: Bar) -> Iterator[tuple[int, dict[str, Any]]]:
    """The position and the result of each job as it ends."""
    if _is_on_cluster(arguments):
        yield from _on_cluster(jobs, arguments, bar)
    elif arguments.jobs == 1:
        for position, job in enumerate(jobs):
            bar.begin(job.title)
            yield position, _run(job, arguments, bar)
    else:
        asked = min(arguments.jobs or usable_cpus(), len(jobs))
        count = min(asked, allowed_workers(arguments.model))
        if count < asked:
            complain(f"{count} of {asked} processes compile, since the memory allows no more")
        with Processes(count) as workers:
            for position, future in run_jobs(workers, _run, ((at, (job, arguments)) for at, job in enumerate(jobs))):
                bar.begin(jobs[position].title)
                yield position, _result(jobs[position], future)


def _on_cluster(jobs: Sequence[Job], arguments: argparse.Namespace, bar: Bar) -> Iterator[tuple[int, dict[str, Any]]]:
    """Only what the cache lacks travels."""
    open_workers = dask_workers(arguments.dask) if arguments.ray is None else ray_workers(arguments.ray)
    only_json = redirect_stdout(sys.stderr) if arguments.json else nullcontext()  # Ray prints of workers that die
    with only_json, open_workers as workers:
        lacking = list[int]()
        for position, job in enumerate(jobs):
            result = check(job, arguments)
            if result.get("state") == MISS:
                lacking.append(position)
            else:
                yield position, result
        orders = ((position, (_order(jobs[position], arguments),)) for position in lacking)
        for position, future in run_jobs(workers, fill_order, orders):
            bar.begin(jobs[position].title)
            yield position, _stored(jobs[position], arguments, future)


def _run(job: Job, arguments: argparse.Namespace, bar: Bar | None = None) -> dict[str, Any]:
    """The result of one job, in this process."""
    with PlainWarnings(CacheWarning, DelegateWarning):
        if arguments.check:
            return check(job, arguments)
        if job.device:
            return warm_for(job.model, job.device, arguments)
        return warm(job.model, arguments, bar or Bar(0), job.target)


def _result(job: Job, future: Future[dict[str, Any]]) -> dict[str, Any]:
    try:
        return future.result()
    except Exception as error:  # noqa: BLE001  whatever became of the worker
        return {"model": job.model, **job.kind, **_trouble(told(error))}


def _order(job: Job, arguments: argparse.Namespace) -> Order:
    assert job.device is not None
    keywords = {**_further(arguments), "target": job.target, "model_token": _token(arguments)}
    return order_for(job.model, job.device, keywords, arguments.input_shape, hosted=arguments.litert_interpreter)


def _stored(job: Job, arguments: argparse.Namespace, future: Future[Parcel]) -> dict[str, Any]:
    """The result of a job whose programs come from a worker of a cluster, once they are in the cache."""
    try:
        parcel, options = future.result(), _named_options(job.target, arguments)
        store = _output(arguments) or open_store(options.serialization_dir, most_bytes=options.cache_max_bytes)
        unpack(parcel, store)
        store.remember_model(fingerprint(job.model), os.path.abspath(job.model))
    except Exception as error:  # noqa: BLE001  whatever became of the worker
        return {"model": job.model, **job.kind, **_trouble(told(error))}
    result = check(job, arguments)
    if "error" in result:
        return result
    compiled = _state(hit=False)
    shapes = [{**each, "state": compiled} for each in result["shapes"]]
    return {**result, "state": compiled, "seconds": parcel.seconds, "shapes": shapes}


def _parser() -> argparse.ArgumentParser:
    parser = new_parser("jitdelegate.warm", __doc__)
    parser.add_argument("model", nargs="+", metavar="MODEL", help="a .tflite file, or a folder of them")
    parser.add_argument(
        "--serialization-dir",
        type=directory,
        metavar="D",
        help="where programs are kept (default: the user's cache)",
    )
    parser.add_argument("--model-token", metavar="T", help="begins the names of the entries")
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
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--jobs", type=_jobs, default=1, metavar="N", help="processes that compile; auto: one for each CPU (default: 1)"
    )
    where.add_argument("--dask", metavar="ADDRESS", help=f"compile on a Dask cluster; {LOCAL}: of this machine's CPUs")
    where.add_argument(
        "--ray", nargs="?", const="", metavar="ADDRESS", help="compile on a Ray cluster (default: RAY_ADDRESS, or here)"
    )
    parser.add_argument("--check", action="store_true", help="compile nothing; fail where a program is missing or bad")
    parser.add_argument("--json", action="store_true", help="print one JSON list instead of lines")
    return parser


def _jobs(text: str) -> int:
    """The value of --jobs; 0 for one for each CPU."""
    if text == "auto":
        return 0
    if not text.isdecimal() or len(text) > LONGEST_NUMBER:
        raise argparse.ArgumentTypeError(f"it is {text[:20]!r}, expected a number of processes or auto")
    return int(text)


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
    try:
        options = _named_options(target, arguments, num_threads=arguments.threads)
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
    options = _named_options(device.target.name, arguments)
    kind = Job(model, device.target.name, device).kind
    try:
        hosted = arguments.litert_interpreter
        precompiled = precompile(model, device, options, _output(arguments), arguments.input_shape, hosted=hosted)
    except (JitDelegateError, OSError, MemoryError) as error:
        return {**_failed(model, error, start), **kind}
    return {
        "model": model,
        **kind,
        **_precompiled(precompiled, arguments, start),
        "target": f"{precompiled.program.target}:{device.kind}",
        "notes": _unmeasured(options, device),
        **({} if precompiled.path else _trouble(f"nothing was stored: {precompiled.trouble}")),
    }


def check(job: Job, arguments: argparse.Namespace) -> dict[str, Any]:
    """As `warm_for` and `warm`, for programs that are in the cache; the state MISS, which is a failure, for others."""
    from jitdelegate.engine.verified import MissError, verified

    start = time.perf_counter()
    own = {"model": job.model, **job.kind}
    shapes, hosted = arguments.input_shape, arguments.litert_interpreter
    try:
        options = _named_options(job.target, arguments)
        found = verified(job.model, job.device, options, arguments.output, shapes, hosted=hosted)
    except MissError as error:
        return {**own, "state": MISS, "seconds": time.perf_counter() - start, **_trouble(f"{MISS}: {error}")}
    except (JitDelegateError, OSError, MemoryError) as error:
        return {**_failed(job.model, error, start), **job.kind}
    where = {"target": f"{found.program.target}:{job.device.kind}"} if job.device else {}
    return {**own, **_precompiled(found, arguments, start), **where, "notes": []}


def _named_options(target: str | None, arguments: argparse.Namespace, **further: Any) -> DelegateOptions:
    """The options of a job for a target."""
    named = {
        "target": target,
        "serialization_dir": arguments.serialization_dir,
        "model_token": arguments.model_token,
        **further,
    }
    return DelegateOptions.from_keywords(named, _further(arguments))


def _precompiled(precompiled: Precompiled, arguments: argparse.Namespace, start: float) -> dict[str, Any]:
    programs = (precompiled.program, *precompiled.further)
    shapes = zip(arguments.input_shape, precompiled.shapes, strict=True)
    return {
        **_outcome(precompiled.hit, precompiled.path, start),
        "target": _where(precompiled.program.target, precompiled.program.features),
        "delegated": sum(program.delegated for program in programs),
        "operators": sum(len(program.operators) for program in programs),
        "path": precompiled.path,
        "shapes": [{"inputs": sizes, "state": _state(hit)} for sizes, hit in shapes],
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
        device = result.get("gpu") or result.get("cpu")
        complain(f"{result['model']}{f' for {device}' if device else ''}: {result['error']}")
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
