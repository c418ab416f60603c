"""Compiles the programs that `scripts/gpu_check.sh` runs on a GPU machine. This needs no GPU.

    python -m scripts.prepare_gpu_check --output DIR [--bundle NAME] [--architectures sm_90,...] [--only PATTERN ...]

DIR receives programs, inputs, the outputs that LiteRT or numpy computed, and a manifest. Bundles are

    first      graphs for the first cases of every operator and some larger ones, also quantized; an example MobileNet
               v1, and a decoder with a cache
    networks   reference models, each for 1, 8 and 32 images where it can be resized; quantized ones
    further    more of them: attention, many small launches, detection

The models are found in FOLDER (default: JITDELEGATE_TEST_MODELS, or shared/models beside the checkout), the smallest
first, as far as there is room. Their weights are in the bundle once, and put into the programs on the machine with the
GPU. Exit status: 0 the bundle is complete, 1 something had to be left out, 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path

from jitdelegate.errors import OptionError
from jitdelegate.targets import target_named
from scripts.prepare_gpu_check.decoder import decoder
from scripts.prepare_gpu_check.families import families
from scripts.prepare_gpu_check.folder import Folder
from scripts.prepare_gpu_check.forms import forms
from scripts.prepare_gpu_check.networks import FURTHER, REFERENCE, USUAL, example, missing, networks, small_example
from scripts.prepare_gpu_check.quantized import quantized_forms
from scripts.prepare_gpu_check.source import Source

DEFAULT_MODELS = Path(__file__).resolve().parents[3] / "shared" / "models"
MEBIBYTES = 56.0
"""Of the whole folder; a GPU machine that takes a folder along, with the sources, may take no more than 64."""
BUNDLES: Mapping[str, tuple[Sequence[str], Callable[[], Iterable[Source]]]] = {
    "first": ((), lambda: chain(example(), [decoder(USUAL), small_example()], families(), forms(), quantized_forms())),
    "networks": (REFERENCE, lambda: ()),
    "further": (FURTHER, lambda: ()),
}
"""By name, the reference models in it, and its other sources."""


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 all is there, 1 something was left out, 2 wrong arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.prepare_gpu_check",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--bundle", choices=list(BUNDLES), default="first", help="(default: %(default)s)")
    parser.add_argument("--architectures", default="sm_90", metavar="sm_90,...")
    parser.add_argument(
        "--models", type=Path, default=Path(os.environ.get("JITDELEGATE_TEST_MODELS", DEFAULT_MODELS)), metavar="FOLDER"
    )
    parser.add_argument("--only", action="append", metavar="PATTERN", help="of names; several are added up")
    parser.add_argument("--mebibytes", type=float, default=MEBIBYTES, help="most of the folder (default: %(default)g)")
    arguments = parser.parse_args(argv)
    try:
        gpus = tuple(device.kind for device in target_named("cuda").devices(arguments.architectures))
    except OptionError as error:
        parser.error(str(error))
    with tempfile.TemporaryDirectory(prefix="gpu-check-templates-") as templates:
        return fill(Folder(arguments.output, gpus, int(arguments.mebibytes * 2**20), templates), arguments)


def fill(folder: Folder, arguments: argparse.Namespace) -> int:
    """Exit status as for `main`."""
    names, others = BUNDLES[arguments.bundle]
    for source in chain(others(), networks(arguments.models, names)):
        if wanted(source.name, arguments.only):
            folder.add(source)
    for name in missing(arguments.models, names):
        if wanted(name, arguments.only):
            folder.left_out[name] = f"it is not in {arguments.models.name}"
    folder.finish()
    print(f"{len(folder.cases)} cases, {folder.nbytes / 2**20:.1f} MiB")
    for name, reason in folder.left_out.items():
        print(f"left out: {name}: {reason}", file=sys.stderr)
    return 1 if folder.left_out else 0


def wanted(name: str, patterns: Sequence[str] | None) -> bool:
    """Whether one of the shell's patterns fits the name; all are wanted where there are no patterns."""
    return patterns is None or any(fnmatchcase(name, pattern) for pattern in patterns)


if __name__ == "__main__":
    sys.exit(main())
