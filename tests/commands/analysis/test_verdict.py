"""The target that an analysis takes is the one that load takes, with a GPU and without."""

from __future__ import annotations

from pathlib import Path

import pytest

import jitdelegate
from jitdelegate.base.options import DelegateOptions
from jitdelegate.commands.analysis.survey import analyze
from jitdelegate.commands.analysis.verdict import Verdict, verdict
from jitdelegate.errors import DelegationError, DeviceError, JitDelegateError
from tests.api import small_models
from tests.cuda_stub.compiler import Compiler, scale_and_shift_model
from tests.cuda_stub.install import install
from tests.cuda_stub.library import Library
from tests.cuda_stub.programs import library


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "model.tflite"
    file.write_bytes(scale_and_shift_model())
    return str(file)


def of(path: str, target: str) -> Verdict:
    return verdict(path, DelegateOptions(target=target, serialization_dir=False))


def loaded(path: str, target: str) -> tuple[str, list[str]]:
    with jitdelegate.load(path, target=target, serialization_dir=False) as model:
        return model.report().target, list(model.report().notes)


@pytest.mark.parametrize("target", ["auto", "cuda"])
def test_a_gpu_is_taken_where_there_is_one_and_given_back(
    target: str, path: str, compiler: Compiler, gpu: Library
) -> None:
    found = of(path, target)
    (entry,) = found.entries
    assert (entry.target, entry.loader, entry.program.features) == ("cuda", "cubin", "sm_90")
    assert [one.place for one in entry.operators] == ["cuda", "cuda"]
    assert (entry.target, list(found.notes)) == loaded(path, target)
    assert gpu.leaks() == []


def test_what_no_gpu_takes_goes_to_the_cpu(path: str, compiler: Compiler, gpu: Library) -> None:
    compiler.reason = "MUL has its reasons."
    found = of(path, "auto")
    assert (found.entries[0].target, found.notes) == ("cpu", ("not on a GPU: MUL has its reasons.",))
    assert ("cpu", list(found.notes)) == loaded(path, "auto")


def test_a_gpu_that_fails_is_told_of(path: str, compiler: Compiler, gpu: Library) -> None:
    compiler.error = DeviceError("it is Monday.")
    found = of(path, "auto")
    assert (found.entries[0].target, list(found.notes)) == ("cpu", ["not on a GPU: it is Monday."])
    with pytest.raises(DeviceError, match="it is Monday"):
        of(path, "cuda")


def test_a_gpu_that_was_asked_for_and_is_not_there_is_load_s_error(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, library(devices=0))
    with pytest.raises(JitDelegateError) as expected:
        jitdelegate.load(path, target="cuda", serialization_dir=False)
    with pytest.raises(type(expected.value)) as raised:
        of(path, "cuda")
    assert str(raised.value) == str(expected.value)


def test_full_delegation_that_was_required_is_load_s_error(tmp_path: Path) -> None:
    file = tmp_path / "model.tflite"
    file.write_bytes(small_models.uncompiled())
    with pytest.raises(DelegationError, match="full delegation was required"):
        analyze(str(file), DelegateOptions(target="cpu", serialization_dir=False, require_full_delegation=True))


def test_a_model_that_moves_to_litert_is_all_litert_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise DeviceError("memory may not be executed")

    monkeypatch.setattr("jitdelegate.runtime.cpu.session.Session", refuse)
    file = tmp_path / "model.tflite"
    file.write_bytes(small_models.two_outputs())
    (facts,) = analyze(str(file), DelegateOptions(serialization_dir=False)).subgraphs
    assert (facts.target, facts.loader, facts.partitions) == ("litert", "none", ())
    reasons = {node.reason for node in facts.nodes}
    assert reasons == {"the compiled program cannot be loaded: memory may not be executed."}
    assert {node.partition for node in facts.nodes} == {None}
