"""Every code block of the guides and the README runs, in the order of its page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from skimage.io import imsave

from tests.api.test_next_snippets import install_simulated_gpu
from tests.docs import models
from tests.docs.blocks import ROOT, RUN, blocks_of, run

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
    """The folder that a reader works in, with the files that pages speak of."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(programs))
    monkeypatch.chdir(tmp_path)
    contents = {
        "model": models.classifier(),
        "quantized": models.quantized_classifier(),
        "partial": models.partial(),
        "decoder": models.decoder(),
    }
    (tmp_path / "models").mkdir()
    for name, content in contents.items():
        (tmp_path / f"{name}.tflite").write_bytes(content)
    for name in ("model", "quantized"):
        (tmp_path / "models" / f"{name}.tflite").write_bytes(contents[name])
    (tmp_path / "options.toml").write_text("num_threads = 1\n")
    imsave(tmp_path / "photo.png", np.zeros((32, 32, 3), np.uint8), check_contrast=False)
    return tmp_path


@pytest.mark.parametrize("page", BLOCKS)
def test_the_blocks_of_a_page_run(page: str, folder: Path) -> None:
    run(BLOCKS[page], folder, simulated_gpu)


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
