"""Measure the kernels of networks on a GPU machine without a network, and fit the cost model to the times.

    python -m scripts.tune_kernels prepare DIR [--kinds sm_90,sm_90:114] [--precisions ...]   anywhere
    python -m scripts.tune_kernels run DIR [--output OUT] [--seconds S]                      on the GPU
    python -m scripts.tune_kernels fit OUT/sm_90-132-times.json                              anywhere

`prepare` compiles every candidate of the reference networks' problems. `run` measures them, the ones that take longest
first, and writes a table for jitdelegate/targets/cuda/code/tuned/ and all times; results that are already in OUT are
kept and not measured again. `fit` prints the constants of the cost model that fit these times, and its error before and
after. Exit status: 0 success, 1 something could not be done, 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from jitdelegate.base.options import PRECISIONS
from jitdelegate.errors import JitDelegateError
from jitdelegate.runtime.cache.directory import open_cache_directory

SECONDS = 500.0
"""For `run`; a machine that ends commands after ten minutes does not end it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 all is well, 1 something could not be done, 2 wrong arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.tune_kernels", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    preparing = commands.add_parser("prepare")
    preparing.set_defaults(command=prepare)
    preparing.add_argument("folder", type=Path, metavar="DIR")
    preparing.add_argument("--kinds", default="sm_90", metavar="sm_90,sm_90:114")
    preparing.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=["float16", "tf32", "float32"])
    models = os.environ.get("JITDELEGATE_TEST_MODELS", "")
    preparing.add_argument("--models", type=Path, default=Path(models), metavar="FOLDER")
    preparing.add_argument("--only", action="append", metavar="PATTERN", help="of networks' names")
    running = commands.add_parser("run")
    running.set_defaults(command=run)
    running.add_argument("folder", type=Path, metavar="DIR")
    running.add_argument("--output", type=Path, default=Path(os.environ.get("OUT") or "."), metavar="OUT")
    running.add_argument("--seconds", type=float, default=SECONDS, help="(default: %(default)g)")
    fitting = commands.add_parser("fit")
    fitting.set_defaults(command=fit)
    fitting.add_argument("times", nargs="+", type=Path, metavar="JSON")
    arguments = parser.parse_args(argv)
    try:
        return int(arguments.command(arguments))
    except JitDelegateError as error:
        print(error, file=sys.stderr)
        return 1


def prepare(arguments: argparse.Namespace) -> int:
    """Fill a folder."""
    from jitdelegate.targets import target_named
    from jitdelegate.targets.cuda.code.gpu import gpu_of
    from jitdelegate.targets.cuda.compile.template_store import TemplateStore
    from scripts.prepare_gpu_check.__main__ import wanted
    from scripts.prepare_gpu_check.networks import FURTHER, REFERENCE, example, networks
    from scripts.tune_kernels.prepare import prepared
    from scripts.tune_kernels.sweep import write_sweep

    kinds = [device.kind for device in target_named("cuda").devices(arguments.kinds)]
    sources = chain(example(), networks(arguments.models, [*REFERENCE, *FURTHER]))
    chosen = [source for source in sources if wanted(source.name, arguments.only)]
    with tempfile.TemporaryDirectory(prefix="tune-kernels-") as templates:
        store = TemplateStore(open_cache_directory(templates))
        for kind in kinds:
            sweep = prepared(chosen, arguments.precisions, gpu_of(kind), store)
            candidates = sum(len(problem.candidates) for problem in sweep.problems)
            mebibytes = write_sweep(sweep, arguments.folder) / 2**20
            print(f"{sweep.kind}: {len(sweep.problems)} problems, {candidates} candidates, {mebibytes:.1f} MiB")
    return 0


def run(arguments: argparse.Namespace) -> int:
    """Measure what a folder has for this GPU."""
    from scripts.tune_kernels.run import TIMES, measure, now, read_times

    earlier = [read_times(path) for path in sorted(arguments.output.glob(f"*{TIMES}"))]
    found = measure(arguments.folder, arguments.output, arguments.seconds, earlier, now)
    won = sum(min(each, key=lambda name: each[name]) != next(iter(each)) for each in found.seconds.values())
    print(f"{found.device}: {len(found.seconds)} problems measured, in {won} another candidate is the fastest")
    for problem, trouble in found.troubles.items():
        print(f"{problem}: {trouble}", file=sys.stderr)
    return 1 if found.troubles else 0


def fit(arguments: argparse.Namespace) -> int:
    """Print constants by the times."""
    from scripts.tune_kernels.fit import report
    from scripts.tune_kernels.run import read_times

    print("\n".join(report([read_times(path) for path in arguments.times])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
