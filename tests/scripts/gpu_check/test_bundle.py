"""The folder that is carried to a GPU machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from jitdelegate.errors import ProgramError
from jitdelegate.program.write import write
from scripts.gpu_check.bundle import EXAMPLE, MODEL, Bundle, Values, batch_of, pack, read_bundle
from tests.gpu.stub.programs import scale_and_shift
from tests.scripts.gpu_check.machine import CYCLES, X, Y, bundle, ceilings, device, floats


def test_a_bundle_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = bundle(tmp_path)
    assert found.left_out == {"large": "no room"} and found.kinds == ["sm_90"]
    first, second = found.prepared("sm_90")
    assert (first.name, second.name) == ("one, float32", "one, float16")
    assert (first.limit, second.limit) == (1e-5, 2e-3)
    assert first.inputs == [floats(X)] and first.outputs == [Y]
    assert [tuple(launch) for launch in first.entry.launches] == list(CYCLES)
    assert first.content == write(scale_and_shift()) and found.ceiling("sm_90") == ceilings()
    assert list(found.prepared("sm_90", MODEL)) == list(found.prepared("sm_80")) == []


def test_a_batch_is_made_of_two_images_in_an_order_without_a_period(tmp_path: Path) -> None:
    assert batch_of(b"abAB", (2,), 8) == b"abABABabABababAB"
    assert batch_of(b"abcABC", (2, 1), 3) == b"abABABcCC"
    assert batch_of(b"abAB", (2,), 1) == b"ab"
    (tmp_path / "values").write_bytes(pack(b"abAB"))
    assert Values("values", (1, 1)).read(tmp_path, 2) == b"aAbB"
    assert Values("values").read(tmp_path, 2) == b"abAB"


def test_a_folder_that_was_not_prepared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="was not prepared"):
        read_bundle(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": 0}')
    with pytest.raises(ProgramError, match="format 0, expected 3"):
        read_bundle(tmp_path)


def test_programs_for_another_gpu_say_how_to_prepare_for_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = bundle(tmp_path)
    assert found.kind(device(monkeypatch)) == "sm_90"
    with pytest.raises(ProgramError, match="for sm_90, the GPU is sm_86: prepare with --architectures sm_86"):
        found.kind(device(monkeypatch, capability=(8, 6)))


@pytest.mark.parametrize(
    ("capability", "multiprocessors", "kind"),
    [
        ((8, 0), 108, "sm_80"),
        ((8, 9), 128, "sm_86"),
        ((9, 0), 132, "sm_90"),
        ((9, 0), 114, "sm_90:114"),
        ((9, 0), 70, "sm_90:60"),
    ],
)
def test_the_newest_programs_that_run_are_taken_of_the_nearest_number_of_multiprocessors(
    capability: tuple[int, int], multiprocessors: int, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = bundle(tmp_path, kinds=("sm_86", "sm_80", "sm_90:60", "sm_90", "sm_90:114"))
    assert found.kind(device(monkeypatch, capability=capability, multiprocessors=multiprocessors)) == kind


def test_an_example_that_was_left_out_says_why(tmp_path: Path) -> None:
    found = Bundle(tmp_path, [], {f"{EXAMPLE}, float32": "no room"})
    with pytest.raises(ProgramError, match="no room"):
        found.example("sm_90", "float32")
    with pytest.raises(ProgramError, match="batch 8 in float32 for sm_90: it was not prepared"):
        found.example("sm_90", "float32", 8)
