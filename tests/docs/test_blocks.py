"""Every code block of the guides and the README runs, in the order of its page."""

from __future__ import annotations

import sys
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from skimage import data
from skimage.io import imread

from jitdelegate.commands import demo
from tests.docs import devices
from tests.docs.blocks import ROOT, RUN, Block, blocks_of, run
from tests.gpu.stub.install import install_simulated_gpu

PAGES = {path.name: path for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]}
BLOCKS = {name: blocks for name, path in PAGES.items() if (blocks := blocks_of(path))}
BLOCKS["README.md"] = [block for block in BLOCKS["README.md"] if block.language == "python"]  # guides run its commands
MOST_NOT_RUN = 8


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all pages: each of their models is compiled once."""
    return tmp_path_factory.mktemp("programs")


@pytest.fixture
def folder(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that a reader works in, with the models that `python -m jitdelegate.demo --models .` makes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(programs))
    monkeypatch.chdir(tmp_path)
    assert demo.main(["--models", str(tmp_path)]) == 0
    monkeypatch.setitem(sys.modules, "cv2", devices.camera(imread(tmp_path / "photo.png")))
    monkeypatch.setitem(sys.modules, "sounddevice", devices.microphone(np.zeros(0, np.float32)))
    return tmp_path


@pytest.mark.parametrize("page", BLOCKS)
def test_the_blocks_of_a_page_run(page: str, folder: Path) -> None:
    run(BLOCKS[page], folder, simulated_gpu)


def test_the_guides_find_what_is_there(
    models: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With real models, a picture of a face and spoken words."""
    for name, real in (("faces", "face_detection_short_range"), ("keywords", "kws_ref_model")):
        (folder / f"{name}.tflite").write_bytes(next(models.rglob(f"{real}.tflite")).read_bytes())
    monkeypatch.setitem(sys.modules, "cv2", devices.camera(data.astronaut()))
    run(_of_python("camera.md"), folder, simulated_gpu)
    told = capsys.readouterr().out
    assert told.count("at 226, 127, 93 by 93 pixels") == 10 and told.count("1 faces") == 9

    with wave.open(str(ROOT / "examples" / "words.wav")) as file:
        sound = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768
    monkeypatch.setitem(sys.modules, "sounddevice", devices.microphone(sound))
    blocks = _of_python("microphone.md")
    longer = [block._replace(code=block.code.replace("range(12)", "range(30)")) for block in blocks]
    run(longer, folder, simulated_gpu)
    assert capsys.readouterr().out.splitlines()[-4:] == ["yes", "left", "right", "go"]


def _of_python(page: str) -> list[Block]:
    return [block for block in BLOCKS[page] if block.language == "python"]


@contextmanager
def simulated_gpu() -> Iterator[None]:
    """A GPU of simulated kernels, which are compiled in this process: none may come from the pages' cache."""
    with TemporaryDirectory() as programs, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", programs)
        install_simulated_gpu(patch)
        patch.setattr("jitdelegate.runtime.cuda.context._held", {})  # the last one's are gone
        yield


def test_few_blocks_do_not_run_and_each_has_a_reason() -> None:
    fences = sum(path.read_text().count("\n```") for path in PAGES.values())
    found = [block for path in PAGES.values() for block in blocks_of(path)]
    assert fences == 2 * len(found)  # none without a language, which would not be found
    skipped = [block for block in found if block.reason and block.language in RUN]
    assert len(skipped) <= MOST_NOT_RUN
    assert all(len(block.reason.split()) > 2 for block in skipped)
