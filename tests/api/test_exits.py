"""However a process ends while models are alive: it ends as Python programs do, and nothing is waited for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

import jitdelegate
from jitdelegate.commands.demo_model import mobilenet_v1
from tests.api import ends
from tests.api import partial_models as partial
from tests.child import ROOT

LONGEST = 120
"""Seconds after which a process is taken to hang."""


@pytest.fixture(scope="module")
def arguments(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A model of several threads, and a cache that has its programs."""
    folder = tmp_path_factory.mktemp("exits")
    path = folder / "model.tflite"
    path.write_bytes(mobilenet_v1(64, 0.25))
    jitdelegate.load(path, target="cpu", serialization_dir=folder / "cache").close()
    return [str(path), str(folder / "cache")]


def end(way: Callable[[], None], arguments: list[str]) -> tuple[int, list[str], str]:
    """Exit status, words and complaints of a process, whose own program the ways are."""
    if "litert" in way.__name__:
        partial.skip_without_host()
    command = [sys.executable, "-W", "ignore", "-m", ends.__name__, way.__name__, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST, cwd=ROOT)
    return done.returncode, done.stdout.split(), done.stderr


def name_of(way: Callable[[], None]) -> str:
    return way.__name__


@pytest.mark.parametrize("way", ends.WAYS, ids=name_of)
def test_a_process_ends_and_waits_for_nothing(way: Callable[[], None], arguments: list[str]) -> None:
    expected = ends.WAYS[way]
    status, words, complaints = end(way, arguments)
    assert status == expected, complaints
    assert set(words) == {"end"}
    for sign in ("Exception ignored", "Fatal", "Segmentation", "Error: " if expected != 1 else "Fatal"):
        assert sign not in complaints


@pytest.mark.parametrize("way", ends.CLOSING, ids=name_of)
def test_what_is_closed_before_the_end_ends_its_workers(way: Callable[[], None], arguments: list[str]) -> None:
    status, words, complaints = end(way, arguments)
    assert (status, complaints) == (0, "")
    assert "join" in words and "end" in words


def test_first_uses_in_a_finalizer_work_or_say_so(arguments: list[str]) -> None:
    status, words, complaints = end(ends.first_uses_in_a_finalizer, arguments)
    assert (status, words, complaints) == (0, ["end", *ends.FIRST_USES], "")
