"""The service of `examples/docker` starts from the programs that its Containerfile compiles, without any compiler.

`scripts/check_container.sh` builds the image itself.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from jitdelegate.base.targets import LEVELS
from jitdelegate.commands import warm
from jitdelegate.targets.host import levels
from tests.api import small_models
from tests.docs.blocks import ROOT

FOLDER = ROOT / "examples" / "docker"
MODELS = ("convolution", "quantized")


def _install(packages: list[str], folder: Path) -> None:
    """Links in a folder to these packages and their libraries, as if no others were installed."""
    folder.mkdir()
    for name in packages:
        found = find_spec(name)
        assert found is not None and found.origin is not None
        package = Path(found.origin).parent
        for each in (package, package.with_name(f"{name}.libs")):
            if each.is_dir():
                (folder / each.name).symlink_to(each)


def test_the_service_starts_warm(tmp_path: Path) -> None:
    text = (FOLDER / "Containerfile").read_text()
    (packages,), (targets,) = re.findall(r"/runtime --no-deps (.*)", text), re.findall(r"ENV LEVELS=(.*)", text)
    named = targets.replace("cpu:", "").split(",")
    assert len(named) == 3 and set(named) <= LEVELS.keys()
    offered = [level for level in levels() if level in named]
    if not offered:
        pytest.skip("this machine has none of the levels of the image")
    (tmp_path / "models").mkdir()
    for name in MODELS:
        (tmp_path / "models" / f"{name}.tflite").write_bytes(getattr(small_models, name)())
    programs = tmp_path / "programs"
    assert warm.main([str(tmp_path / "models"), "--target", targets, "--output", str(programs)]) == 0
    programs.chmod(0o555)
    _install(packages.split(), tmp_path / "runtime")
    command = [sys.executable, "-S", str(FOLDER / "service.py")]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "runtime")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "".join(f"{name}.tflite: warm, for {offered[-1]}\n" for name in MODELS)
