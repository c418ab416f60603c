"""An entry that others write while a process runs from it: results are right, and the process survives."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.live_model import ROADS, RUNS, model
from tests.child import OPEN_TO_OTHERS
from tests.entries import only_entry

ROOT = Path(__file__).parents[2]
NOBODY = 65534
PATIENCE = 60.0
"""Seconds until a process counts as hanging."""


class Child:
    """A process that runs the model."""

    def __init__(self, road: str, folder: Path, user: int | None = None) -> None:
        self.progress = folder / "progress"
        command = [sys.executable, "-m", "tests.api.live_model", road]
        command += [str(folder / "model.tflite"), str(folder / "cache"), str(self.progress)]
        command += [] if user is None else [str(user)]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, cwd="/", env=environment)
        self.wait_for(0)

    def runs(self) -> int:
        return int(self.progress.read_text() or -1) if self.progress.exists() else -1

    def wait_for(self, runs: int) -> None:
        """Until so many inferences have been right; a process that has ended is an error."""
        deadline = time.monotonic() + PATIENCE
        while self.runs() < runs:
            assert self.process.poll() is None, f"ended with {self.process.returncode} after {self.runs()} runs"
            assert time.monotonic() < deadline, f"hangs after {self.runs()} runs"
            time.sleep(0.002)

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    def end(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(PATIENCE)


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The model and, by road, a cache that has its programs."""
    folder = tmp_path_factory.mktemp("warm")
    (folder / "model.tflite").write_bytes(model())
    for road in ROADS:
        assert Child(road, folder).end() == 0
        (folder / "cache").rename(folder / road)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def folder(warm: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A copy for one test, with a backup of its entries, in a folder that every user may enter."""
    road = request.node.callspec.params.get("road", "load")
    with tempfile.TemporaryDirectory() as name:
        found = Path(name)
        found.chmod(0o755)
        shutil.copy(warm / "model.tflite", found)
        subprocess.run(["cp", "-a", warm / road, found / "cache"], check=True)
        subprocess.run(["cp", "-a", warm / road, found / "backup"], check=True)
        yield found


COPY = "cp {folder}/backup/* {folder}/cache/"
CHANGES = {
    "a backup is copied over it": COPY,
    "a backup is copied over it with its times": "cp -p {folder}/backup/* {folder}/cache/",
    "a backup is copied over it by force": "cp -f {folder}/backup/* {folder}/cache/",
    "a backup is copied over it five times": "; ".join(5 * [COPY]),
    "it is cut to nothing": "truncate -s 0 {entry}",
    "it is cut in the middle": "truncate -s 5000000 {entry}",
    "other bytes are written into its middle": "dd if=/dev/urandom of={entry} bs=1M seek=4 count=3 conv=notrunc",
    "other bytes are written all over it": "dd if=/dev/urandom of={entry} bs=64k count=256 conv=notrunc",
    "it is cut and then copied back": "truncate -s 0 {entry}; cp {folder}/backup/* {folder}/cache/",
    "another file is moved over it": "head -c 9000000 /dev/urandom > {entry}.new; mv {entry}.new {entry}",
    "its directory is removed": "rm -r {folder}/cache",
}


def change(folder: Path, command: str, user: int | None = None) -> int:
    line = command.format(folder=folder, entry=only_entry(folder / "cache"))
    return subprocess.run(["sh", "-c", line], user=user, cwd="/", capture_output=True).returncode


@pytest.mark.parametrize("what", CHANGES)
def test_a_busy_process_answers_rightly_while(folder: Path, what: str) -> None:
    child = Child("load", folder)
    child.say("busy")
    child.wait_for(3 * RUNS)
    assert change(folder, CHANGES[what]) == 0
    child.wait_for(child.runs() + 3 * RUNS)
    assert child.end() == 0


@pytest.mark.parametrize("what", CHANGES)
def test_an_idle_process_answers_rightly_after(folder: Path, what: str) -> None:
    child = Child("load", folder)
    assert change(folder, CHANGES[what]) == 0
    for turn in (1, 2):
        child.say("run")
        child.wait_for(turn * RUNS)
    assert child.end() == 0


@pytest.mark.parametrize("what", ["a backup is copied over it", "it is cut to nothing"])
@pytest.mark.parametrize("road", [road for road in ROADS if road != "load"])
def test_on_every_road_a_busy_process_answers_rightly_while(folder: Path, road: str, what: str) -> None:
    child = Child(road, folder)
    child.say("busy")
    child.wait_for(3 * RUNS)
    assert change(folder, CHANGES[what]) == 0
    child.wait_for(child.runs() + 3 * RUNS)
    assert child.end() == 0


@pytest.mark.skipif(os.geteuid() != 0 or not OPEN_TO_OTHERS, reason="needs root, and a checkout that others may enter")
@pytest.mark.parametrize("mode", ["busy", "run"])
def test_cp_of_the_owner_does_not_reach_an_entry(folder: Path, mode: str) -> None:
    subprocess.run(["chown", "-R", str(NOBODY), str(folder)], check=True)
    entry = only_entry(folder / "cache")
    before, content = entry.stat().st_ino, entry.read_bytes()
    child = Child("load", folder, NOBODY)
    child.say(mode)
    child.wait_for(RUNS)
    assert change(folder, COPY, NOBODY) != 0
    assert entry.read_bytes() == content and entry.stat().st_ino == before
    assert change(folder, CHANGES["a backup is copied over it by force"], NOBODY) == 0
    assert entry.stat().st_ino != before
    runs = child.runs()
    child.say(mode)
    child.wait_for(runs + RUNS)
    assert child.end() == 0
