"""Checks that a folder of `warm --output` starts models warm: moved, read-only, for another user, without a home.

    python -m scripts.check_prebuilt MODELS [MODELS ...] [--gpus sm_80,sm_90]

The models, files or folders of them, are compiled for each instruction set of this CPU, and for GPUs where their
compilers are installed. Every model is then opened on each instruction set and run; of GPUs, which are not here, the
programs are looked up. Root starts as user 65534. Prints what missed; the exit status is 1 if anything did.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import warnings
from functools import partial
from pathlib import Path

import numpy as np

import jitdelegate
from jitdelegate.base.options import DelegateOptions
from jitdelegate.base.targets import LEVELS
from jitdelegate.commands import warm
from jitdelegate.engine.load_path import find_key
from jitdelegate.runtime.cache.prebuilt_store import PrebuiltStore
from jitdelegate.runtime.cache.store import counts
from jitdelegate.targets import parse_targets
from jitdelegate.targets.host import levels
from scripts.in_child import Failed, in_child
from scripts.models import models_in

NOBODY = 65534
LONGEST_START = 300
"""Seconds."""


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 every look-up hit, 1 not, 2 wrong arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path, metavar="MODELS")
    parser.add_argument("--gpus", default="sm_80,sm_90", help="architectures (default: %(default)s); '' for none")
    arguments = parser.parse_args(argv)
    models = [model for path in arguments.models for model in models_in(path)]
    if not models:
        parser.error("there is no model")
    offered = [level for level in levels() if LEVELS[level].host and not LEVELS[level].only_for]
    with tempfile.TemporaryDirectory() as folder:
        return _check(Path(folder), models, offered, f"cuda:{arguments.gpus}" if arguments.gpus else "")


def _check(folder: Path, models: list[Path], offered: list[str], gpus: str) -> int:
    made, moved = folder / "made" / "programs", folder / "moved"
    targets = [f"cpu:{','.join(offered)}", *([gpus] if gpus else [])]
    arguments = [argument for target in targets for argument in ("--target", target)]
    if warm.main([*map(str, models), *arguments, "--serialization-dir", str(folder / "own"), "--output", str(made)]):
        return 1
    made.rename(moved)
    moved.chmod(0o555)
    folder.chmod(0o755)
    contents = [model.read_bytes() for model in models]
    _open(contents[0], offered[0], moved)  # imports what others may not read
    jobs = [partial(_start, content, level, moved) for content in contents for level in offered]
    named = [f"{model.name} on {level}" for model in models for level in offered]
    found = dict(zip(named, in_child(jobs, LONGEST_START), strict=True))
    devices = [device for target in parse_targets(gpus) for device in target[1]] if gpus else []
    store = PrebuiltStore([str(moved)], False)
    for model in models:
        for device in devices:
            key = find_key(device, DelegateOptions(target="cuda"), store.fingerprint(model))
            found[f"{model.name} for {device.kind}"] = store.get(key).reason
    bad = {name: answer for name, answer in found.items() if answer}
    for name, answer in bad.items():
        print(f"{name}: {answer.reason if isinstance(answer, Failed) else answer}")
    print(f"{len(found) - len(bad)} of {len(found)} starts hit in all look-ups")
    return int(bool(bad))


def _start(content: bytes, level: str, folder: Path) -> str:
    """What missed in a start of another user without a home; "" for nothing."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    for name in "HOME", "XDG_CACHE_HOME":
        os.environ.pop(name, None)
    counts.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error", jitdelegate.CacheWarning)
        path = _open(content, level, folder)
    where = "" if Path(path).parent == folder else f"from {path}"
    return where or (f"misses {counts.misses}" if counts.misses else "")


def _open(content: bytes, level: str, folder: Path) -> str:
    """Open a model for all its signatures and run it; the path of its program."""
    options = {"cpu_features": level, "target": "cpu"}
    with jitdelegate.load(content, prebuilt=folder, options=options, num_threads=1) as model:
        model.prepare()
        model(*(np.zeros(port.shape, port.dtype) for port in model.inputs))
        return model.report().cache.path


if __name__ == "__main__":
    sys.exit(main())
