"""Converts well-known PyTorch networks to .tflite files, with seeded random weights: nothing is downloaded.

    python -m scripts.convert_networks [NETWORK ...] --into FOLDER [--quantize KIND ...] [--environment FOLDER]

Networks are written in float32 as NETWORK.tflite, and for each `--quantize` a file more, NETWORK.KIND.tflite, by
ai-edge-quantizer: "int8" and "int4" quantize weights alone (int4 with a scale for each block of 32), "static_int8" and
"static_int16" also what operators exchange, whose ranges come from seeded random inputs.

The converter needs packages that the project does not need (REQUIREMENTS). They live in a virtual environment of their
own, which is made in `--environment` where there is none; `--index-url` and `--find-links` go to pip. Each network is
converted in a process of its own; whisper_decoder and smollm_135m need some 12 GB of memory. Existing files are kept.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import venv
from pathlib import Path

from scripts.convert_networks.convert import NETWORKS, convert
from scripts.convert_networks.quantize import KINDS, quantize

REQUIREMENTS = (
    "torch==2.13.0",
    "litert-torch==0.10.0",
    "ai-edge-quantizer==0.10.0",
    "timm==1.0.31",
    "transformers==5.23.0",
)


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 all converted, 1 a conversion failed, 2 wrong arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.convert_networks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("network", nargs="*", help=f"default: all of {', '.join(NETWORKS)}")
    parser.add_argument("--into", type=Path, required=True, help="folder for NETWORK.tflite")
    parser.add_argument("--quantize", action="append", default=[], choices=KINDS, help="may be given several times")
    parser.add_argument("--environment", type=Path, default=Path.home() / ".cache" / "jitdelegate-convert")
    parser.add_argument("--index-url", help="of pip")
    parser.add_argument("--find-links", help="of pip")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    unknown = sorted(set(arguments.network) - set(NETWORKS))
    if unknown:
        parser.error(f"unknown networks {', '.join(unknown)}; known are {', '.join(NETWORKS)}")
    if arguments.child:
        [name], kinds = arguments.network, arguments.quantize
        if kinds:
            quantize(arguments.into / f"{name}.tflite", kinds[0])
        else:
            convert(name, arguments.into)
        return 0
    arguments.into.mkdir(parents=True, exist_ok=True)
    python = environment(arguments)
    failed = 0
    for name in arguments.network or NETWORKS:
        for kind in (None, *arguments.quantize):
            if not _in_child(python, name, kind, arguments.into):
                failed += 1
                break  # a network that was not converted cannot be quantized
    return 1 if failed else 0


def environment(arguments: argparse.Namespace) -> Path:
    """The interpreter of the virtual environment, which is made and filled where it lacks the packages."""
    python: Path = arguments.environment / "bin" / "python"
    if not python.exists():
        venv.create(arguments.environment, with_pip=True)
    sources = [
        f"--{name}={value}"
        for name, value in (("index-url", arguments.index_url), ("find-links", arguments.find_links))
        if value
    ]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *sources, *REQUIREMENTS], check=True)
    return python


def _in_child(python: Path, name: str, kind: str | None, folder: Path) -> bool:
    """Whether the file is there, or could be made: the network itself, or quantized."""
    target = folder / (f"{name}.{kind}.tflite" if kind else f"{name}.tflite")
    if not target.exists():
        command = [python, "-m", "scripts.convert_networks", name, "--into", folder.absolute(), "--child"]
        if kind:
            command += ["--quantize", kind]
        done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
        if done.returncode:
            print(f"{target.name}: failed\n{done.stderr[-4000:]}", flush=True)
            return False
    print(f"{target.name}: {target.stat().st_size} bytes", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
