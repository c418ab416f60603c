"""Starts that find a filled cache."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from scripts.gpu_check import bundle as bundle_module
from scripts.gpu_check import first_output, warm_start
from scripts.gpu_check.bundle import EXAMPLE, MODEL, pack
from scripts.gpu_check.filled_cache import filled_cache
from tests.gpu.stub.install import install
from tests.scripts.gpu_check.machine import PRECISIONS, X, Y, bundle, floats, library, use


def test_a_warm_start_hits_the_entry_that_was_filled_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    driver = install(monkeypatch, use(monkeypatch, library()))
    found = bundle(tmp_path, names=(EXAMPLE,), group=MODEL)
    (tmp_path / "model.tflite.z").write_bytes(pack(b"any content"))
    found = replace(found, cases=[replace(case, model="model.tflite.z") for case in found.cases])
    monkeypatch.setattr(bundle_module, "restored", lambda kept, *_: kept)
    for precision in PRECISIONS:
        model, cache = filled_cache(found.example("sm_90", precision), tmp_path)
        output = tmp_path / "output"
        source = tmp_path / "input"
        source.write_bytes(floats(X))
        assert first_output.main([str(model), str(cache), precision, str(source), str(output)]) == 0
        outcome, *stages = capsys.readouterr().out.split()
        assert outcome == "hit" and len(list(map(float, stages))) == len(warm_start.STAGES)
        assert output.read_bytes() == Y
    assert driver.calls["cuGraphLaunch"] == 2
