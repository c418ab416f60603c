"""python -m jitdelegate.warm for folders of models and several targets at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jitdelegate.base.targets import LEVELS
from jitdelegate.commands import warm
from jitdelegate.program.read import read, verify_weights
from jitdelegate.runtime.cache.key import this_cpu
from tests.api import small_models

NAMED = [name for name, row in LEVELS.items() if row.host and not row.only_for]
MAKES = (small_models.convolution, small_models.quantized, small_models.two_signatures, small_models.uncompiled)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Models in a folder and in one below it."""
    below = tmp_path / "models" / "below"
    below.mkdir(parents=True)
    for number, make in enumerate(MAKES):
        (below.parent if number % 2 else below).joinpath(f"{number}.tflite").write_bytes(make())
    return below.parent


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.jitd")}


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    assert warm.main([*map(str, arguments), "--json"]) == 0
    results: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return results


def test_a_folder_means_all_models_below_it(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = run(capsys, folder, "--serialization-dir", tmp_path / "cache")
    assert [one["model"] for one in results] == sorted(map(str, folder.rglob("*.tflite")))
    assert len(results) == len(MAKES)


def test_a_layer_has_the_same_bytes_wherever_it_is_made(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """For CPUs and GPUs together, whatever this machine's CPU offers."""
    pytest.importorskip("numba_cuda")
    arguments = model, "--target", f"cpu:{','.join(NAMED)},cuda:sm_80,sm_90", "--output"
    results = run(capsys, *arguments, tmp_path / "here")
    monkeypatch.setattr("jitdelegate.targets.host.levels", lambda: ("generic",))
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {5})
    run(capsys, *arguments, tmp_path / "there")
    assert files(tmp_path / "there") == files(tmp_path / "here")
    assert len(files(tmp_path / "here")) == len(NAMED) + 2
    for one in results:
        program = read(Path(one["path"]).read_bytes())
        verify_weights(program)
        if "cpu" in one:
            assert program.part("machine").split()[1] == LEVELS[one["cpu"]].host
        else:
            assert (program.features, program.part("machine")) == (one["gpu"], this_cpu())


def test_a_folder_without_models_is_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        warm.main([str(tmp_path)])
    assert exit.value.code == 2 and "the folders have no .tflite file" in capsys.readouterr().err
