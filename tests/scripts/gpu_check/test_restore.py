"""Weights that are put back into programs."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from xxhash import xxh3_128_hexdigest

from jitdelegate.errors import CacheError
from jitdelegate.program.read import read
from jitdelegate.program.write import write
from scripts.gpu_check import restore
from scripts.gpu_check.bundle import MODEL, Bundle, Case, Entry, pack
from scripts.gpu_check.row import Row
from scripts.gpu_check.weights import CACHE, plan_of, restored
from tests.api.small_models import convolution
from tests.gpu.stub.programs import scale_and_shift


def test_weights_are_put_back_into_programs_and_compared_with_those_that_were_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    content = convolution()
    (tmp_path / "model").write_bytes(pack(content))
    weights = plan_of(content, (), "sm_90", "float32").writer.weights.content
    kept = write(scale_and_shift(weights=bytes(len(weights))))
    (tmp_path / "kept").write_bytes(pack(kept))

    def row_of(weights_hash: str) -> list[Row]:
        programs = {"sm_90 float32": Entry("kept", weights_hash)}
        return list(restore.rows(Bundle(tmp_path, [Case("net", MODEL, "", [], [], programs, {}, model="model")], {})))

    right = {row.quantity: row.value for row in row_of(xxh3_128_hexdigest(weights))}
    assert (right["restored"], right["others than prepared"]) == (1.0, 0.0)
    other, _, count, _ = row_of("0" * 32)
    assert "numpy lays out other weights here" in other.note and count.value == 1.0 and count.holds is False
    programs = {"sm_90 float32": Entry("kept", "")}
    (prepared,) = Bundle(tmp_path, [Case("net", MODEL, "", [], [], programs, {}, model="model")], {}).prepared("sm_90")
    assert bytes(read(prepared.content).weights) == weights


def test_weights_that_have_no_place_in_their_program_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    for name, content in (("model", convolution()), ("kept", write(scale_and_shift()))):
        (tmp_path / name).write_bytes(pack(content))
    cases = [Case("net", MODEL, "", [], [], {"sm_90 float32": Entry("kept", "")}, {}, model="model")]
    first, *_ = restore.rows(Bundle(tmp_path, cases, {}))
    assert (first.subject, first.quantity) == ("net, float32", "weights")
    assert "bytes, expected 1004" in first.note


def test_programs_that_others_may_write_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    folder = tmp_path / f"{CACHE}-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(CacheError, match="mode 0777"):
        restored(b"kept", tmp_path / "model", (), "sm_90", "float32")
