"""`warm` on real clusters of Dask and of Ray: nothing is lost, and all programs are as those compiled here."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from jitdelegate.base.targets import LEVELS
from jitdelegate.commands import warm
from jitdelegate.commands.fleet import clusters
from jitdelegate.targets.cpu import target as cpu
from tests.api import small_models
from tests.commands.test_warm_jobs import files, run

NAMED = [name for name, row in LEVELS.items() if row.host and not row.only_for][:2]
TARGETS = "--target", f"cpu:{','.join(NAMED)}"
MODELS = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small models, and one of two programs."""
    folder = tmp_path_factory.mktemp("models")
    for seed in range(MODELS - 1):
        (folder / f"{seed}.tflite").write_bytes(small_models.convolution(seed))
    (folder / "two.tflite").write_bytes(small_models.two_signatures())
    return folder


@pytest.fixture(scope="module")
def expected(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Files that are compiled here."""
    programs = tmp_path_factory.mktemp("programs")
    assert warm.main([str(folder), *TARGETS, "--output", str(programs)]) == 0
    return files(programs)


@pytest.fixture(scope="module")
def dask_client() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def _dask(client: Any) -> tuple[str, str]:
    return "--dask", client.scheduler.address


def _after_the_first(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Let something happen when the first result comes."""
    waiting, real = [happens], warm._stored

    def stored(job: warm.Job, arguments: Any, future: Future[Any]) -> dict[str, Any]:
        if waiting:
            waiting.pop()()
        return real(job, arguments, future)

    monkeypatch.setattr(warm, "_stored", stored)


def test_nothing_is_lost_with_a_worker_of_dask(
    dask_client: Any,
    folder: Path,
    expected: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = dask_client.run(os.getpid)
    _after_the_first(monkeypatch, lambda: os.kill([*before.values()][-1], signal.SIGKILL))
    results = run(capsys, folder, *TARGETS, *_dask(dask_client), "--output", tmp_path)
    assert [(one["model"], one["cpu"]) for one in results] == [
        (str(path), level) for path in sorted(folder.iterdir()) for level in NAMED
    ]
    assert {one["state"] for one in results} == {"compiled"}
    assert files(tmp_path) == expected and len(expected) == len(NAMED) * (MODELS + 1)
    dask_client.wait_for_workers(2)
    assert len({*before.values()} & {*dask_client.run(os.getpid).values()}) == 1  # one was killed


def test_only_what_is_missing_travels(
    dask_client: Any, folder: Path, expected: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *others = expected
    for name in others:
        (tmp_path / name).write_bytes(expected[name])
        (tmp_path / name).chmod(0o400)
    results = run(capsys, folder, *TARGETS, *_dask(dask_client), "--output", tmp_path)
    assert sorted(one["state"] for one in results) == ["compiled", *["hit"] * (len(results) - 1)]
    assert files(tmp_path) == expected and first in files(tmp_path)


def test_a_worker_with_another_compiler_is_refused(
    dask_client: Any,
    model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(cpu, "installed_toolchain", lambda: "llvmlite 99")
    arguments = [model, "--target", f"cpu:{NAMED[0]}", *_dask(dask_client), "--output", str(tmp_path / "programs")]
    assert warm.main([*arguments, "--json"]) == 1
    (result,) = json.loads(capsys.readouterr().out)
    assert "has another version of jitdelegate or of toolchain" in result["error"]
    assert "expected 'llvmlite 99'" in result["error"]


def test_bad_models_are_told_of(dask_client: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad, none = tmp_path / "bad.tflite", tmp_path / "none.tflite"
    bad.write_bytes(b"nonsense")
    arguments = [
        str(bad),
        str(none),
        "--target",
        f"cpu:{NAMED[0]}",
        *_dask(dask_client),
        "--output",
        str(tmp_path / "p"),
    ]
    assert warm.main([*arguments, "--json"]) == 2
    first, second = json.loads(capsys.readouterr().out)
    assert "not a valid Flatbuffer" in first["error"] and "No such file" in second["error"]


def test_a_missing_scheduler_is_a_wrong_argument(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    dask = pytest.importorskip("dask")
    pytest.importorskip("distributed")
    with dask.config.set({"distributed.comm.timeouts.connect": "0.2s"}), pytest.raises(SystemExit) as exit:
        warm.main([model, "--target", f"cpu:{NAMED[0]}", "--dask", "tcp://127.0.0.1:9"])
    assert exit.value.code == 2 and "there is no Dask scheduler at 'tcp://127.0.0.1:9'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["dask", "ray"])
def test_a_missing_package_is_told_of(
    name: str, model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(package: str) -> None:
        raise ImportError(package)

    monkeypatch.setattr(clusters, "import_module", missing)
    with pytest.raises(SystemExit) as exit:
        warm.main([model, "--target", f"cpu:{NAMED[0]}", f"--{name}", "local"])
    assert exit.value.code == 2 and "is not installed: pip install" in capsys.readouterr().err


def test_nothing_is_lost_with_a_worker_of_ray(
    folder: Path,
    expected: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ray, killed = pytest.importorskip("ray"), list[int]()

    def kill() -> None:
        killed.append(ray.get(ray.remote(lambda: os.getpid()).remote()))
        os.kill(killed[0], signal.SIGKILL)  # it has begun the next job

    _after_the_first(monkeypatch, kill)
    results = run(capsys, folder, *TARGETS, "--ray", "--output", tmp_path)
    assert {one["state"] for one in results} == {"compiled"} and killed
    assert files(tmp_path) == expected
