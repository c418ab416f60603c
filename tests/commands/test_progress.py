"""Progress of what takes long: on a terminal, in a notebook, and told to a caller's object."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import cache_tools.__main__ as cache_tools
import jitdelegate
from jitdelegate.base import progress
from jitdelegate.commands import benchmark, demo, diff, replay, warm
from tests.api import small_models


class Steps:
    def __init__(self) -> None:
        self.told: list[str] = []
        self.total = self.count = 0

    def more(self, steps: int) -> None:
        self.total += steps

    def begin(self, text: str) -> None:
        self.told.append(text)

    def done(self) -> None:
        self.count += 1


def test_prepare_tells_of_every_signature_and_shape(tmp_path: Path) -> None:
    model, steps = jitdelegate.load(small_models.two_signatures(), serialization_dir=str(tmp_path)), Steps()
    model.prepare(progress=steps)
    keys = list(model.signatures)
    assert (steps.total, steps.count) == (len(keys), len(keys)) and len(keys) == 2
    assert all(repr(key) in text for key, text in zip(keys, steps.told, strict=True))


@pytest.fixture
def cells(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the output of a notebook's cell shows, one text after another."""
    shown: list[str] = []
    handle = SimpleNamespace(update=shown.append)
    display = ModuleType("IPython.display")
    vars(display).update(HTML=str, display=lambda content, display_id: shown.append(content) or handle)
    shell = ModuleType("IPython")
    vars(shell).update(get_ipython=lambda: SimpleNamespace(kernel=object()), display=display)
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return shown


def test_a_notebook_shows_one_output_that_vanishes(cells: list[str], tmp_path: Path) -> None:
    model = jitdelegate.load(small_models.two_signatures(), serialization_dir=str(tmp_path))
    model.prepare(progress=True)
    assert '<progress value="0" max="2"></progress> 0/2' in cells[1]
    assert '<progress value="2" max="2"></progress> 2/2' in cells[-2] or "1/2" in cells[-2]
    assert cells[-1] == ""


def test_a_notebook_escapes_what_a_model_says(cells: list[str]) -> None:
    with progress.progress(1) as bar:
        bar.begin("<script>")
    assert "&lt;script&gt;" in cells[1]
    assert not any("<script>" in each for each in cells)


def commands(folder: Path, model: str) -> Iterator[tuple[Callable[[list[str]], int], list[str], str]]:
    runs = ["--num_runs=2", "--min_secs=0", "--warmup_min_secs=0", "--startup_runs=0", "--num_threads=1"]
    yield warm.main, [model, f"--serialization-dir={folder}"], "signature"
    yield cache_tools.main, ["verify", "--dir", str(folder)], ".jitd"
    yield cache_tools.main, ["repair", "--dir", str(folder)], ".jitd"
    yield benchmark.main, [model, *runs], "opening the model"
    yield diff.main, [model, "--num_runs=1"], "opening litert"
    yield demo.main, [model, "--threads=1"], "warm start"
    yield replay.main, [str(folder / "nothing.npz")], "nothing.npz"


def test_commands_that_take_long_say_what_they_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[str] = []
    real = progress.Bar.begin
    monkeypatch.setattr(progress.Bar, "begin", lambda self, text: told.append(text) or real(self, text))
    model = tmp_path / "m.tflite"
    model.write_bytes(small_models.two_signatures())
    for main, arguments, words in commands(tmp_path / "cache", str(model)):
        told.clear()
        main(arguments)
        assert any(words in text for text in told), (arguments, told)
    capsys.readouterr()


def test_bars_of_a_terminal_count_further_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with progress.progress(1) as bar:
        bar.more(2)
        bar.begin("one")
        bar.done()
        assert isinstance(bar, progress._TerminalBar)
        (task,) = bar._progress.tasks
        bar.draw()
        assert (task.total, task.completed, task.description) == (3, 1, "one")
