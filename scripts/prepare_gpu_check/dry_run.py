"""The check from end to end without a GPU: `scripts/gpu_check.sh --dry-run [--plant FAULT] [arguments of the check]`.

A small bundle is prepared. The driver is a stub, kernels whose outputs are compared run in the PTX simulator, and
NVIDIA's tools are stand-ins. A fault that is planted has to be told with its section, and nothing else may be lost:

    wrong          a launch of softmax gives other values than it should, each time
    unsteady       the same, every other time
    race           compute-sanitizer reports a race
    no sanitizer   compute-sanitizer is not installed
    crash          the section "constants" ends with a signal
    hang           the section "constants" never ends

Results are in $OUT, or else in a folder that is named. Times mean nothing.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import patch

from jitdelegate.ops import OPS
from jitdelegate.ops.case import Case, Weights
from jitdelegate.program.read import read
from jitdelegate.targets.cuda.compile import compile_templates
from scripts.gpu_check.bundle import BATCHES, EXAMPLE, FORM, PRECISIONS, read_bundle
from scripts.prepare_gpu_check.decoder import decoder
from scripts.prepare_gpu_check.families import ARMS, families
from scripts.prepare_gpu_check.folder import Folder
from scripts.prepare_gpu_check.networks import network
from scripts.prepare_gpu_check.quantized import quantized_forms
from scripts.prepare_gpu_check.source import Feed, Source
from tests.api.small_models import convolution
from tests.gpu.stub.processes import FAULT, FAULTS, ROOT, stubbed_environment, write_kernels
from tests.ops.litert import model_of

KIND = "sm_90"
STEPS = 2
"""Of the decoder."""


def main(argv: list[str] | None = None) -> int:
    """The exit status of the check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plant", choices=FAULTS, metavar="FAULT")
    arguments, others = parser.parse_known_args(argv)
    out = os.environ.get("OUT") or tempfile.mkdtemp(prefix="gpu-check-")
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as name:
        folder = Path(name)
        prepare(folder, sources())
        environment = {**machine(folder, folder / "kernels", arguments.plant), "OUT": out}
        command = [sys.executable, "-m", "scripts.gpu_check", str(folder / "bundle"), *others]
        status = subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode
    print(f"results are in {out}")
    return status


def sources() -> Iterator[Source]:
    """The example, which is not the real one, a decoder, and graphs of a few families, quantized and with branches."""
    yield from network(EXAMPLE, convolution(), PRECISIONS, BATCHES)
    yield decoder(("float32",), STEPS)
    image = Case(((1, 6, 6, 8), Weights((8, 3, 3, 8)), Weights((8,))), {"stride_w": 1, "stride_h": 1})
    yield _form("CONV_2D", image)
    yield _form("SOFTMAX", Case(((4, 10),), {"beta": 1.0}))
    yield next(quantized_forms(["FULLY_CONNECTED"]))
    yield from (replace(one, precisions=("float32",)) for one in families() if one.name == ARMS)


def _form(name: str, case: Case) -> Source:
    op = OPS[name]
    expected = list(map(Feed, case.outputs(op)))
    return Source(
        name, FORM, model_of(case.graph(op)), list(map(Feed, case.feeds())), lambda: expected, "numpy", ("float32",)
    )


def prepare(folder: Path, some: Iterable[Source]) -> None:
    """Fill folder/bundle from the sources, and folder/kernels with the PTX of their programs."""
    ptx: dict[str, bytes] = {}
    compile_one = compile_templates.compile_template

    def remember(*arguments: Any) -> Any:
        compiled = compile_one(*arguments)
        ptx[compiled.template.symbol] = compiled.ptx
        return compiled

    with patch.object(compile_templates, "compile_template", remember):
        filled = Folder(folder / "bundle", [KIND], 1 << 24, str(folder / "templates"), repeats=1)
        for source in some:
            filled.add(source)
        filled.finish()
    assert filled.left_out == {}, filled.left_out
    bundle = read_bundle(folder / "bundle")
    programs = chain((one.content for one in bundle.prepared(KIND)), [bundle.ceiling(KIND)])
    kinds = {
        program.entries[launch.kernel][0]: launch.kinds
        for program in map(read, programs)
        for launch in program.launches
    }
    write_kernels(folder / "kernels", ptx, kinds)


def machine(folder: Path, kernels: Path, fault: str | None = None) -> Mapping[str, str]:
    """The environment of a machine with a GPU and NVIDIA's tools.

    Args:
        folder: where its tools are put.
        kernels: as `prepare` has filled it.
    """
    tools, start = folder / "tools", folder / "start"
    for each in (tools, start):
        each.mkdir()
    if fault != "no sanitizer":
        sanitizer = tools / "compute-sanitizer"
        sanitizer.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tests.gpu.stub.sanitizer "$@"\n')
        sanitizer.chmod(0o755)
    found = {**stubbed_environment(start, kernels), FAULT: fault or ""}
    return {**found, "PATH": f"{tools}:{found['PATH']}", "TMPDIR": str(folder)}


if __name__ == "__main__":
    sys.exit(main())
