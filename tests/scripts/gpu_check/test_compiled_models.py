"""CompiledModel on prepared programs; its runs are tested in test_run.py."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from scripts.gpu_check import compiled_models
from scripts.gpu_check.bundle import MODEL
from tests.scripts.gpu_check.machine import bundle, library, use


@pytest.mark.parametrize(("target", "outcome"), [("cuda", "hit"), ("cuda", "miss"), ("cpu", "hit")])
def test_outputs_of_other_code_than_what_was_prepared_do_not_count(
    target: str, outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, library())
    found = bundle(tmp_path, group=MODEL)
    report = SimpleNamespace(target=target, cache=SimpleNamespace(outcome=outcome))
    opened = SimpleNamespace(create=lambda *_, **options: nullcontext(SimpleNamespace(report=lambda: report)))
    monkeypatch.setattr(compiled_models, "CompiledModel", opened)
    monkeypatch.setattr(compiled_models, "filled_cache", lambda *_: (tmp_path, tmp_path))
    monkeypatch.setattr(compiled_models, "_worst", lambda *_, **options: 0.0)
    rows = list(compiled_models.rows(replace(found, cases=[replace(found.cases[0], model="model")])))
    is_prepared = (target, outcome) == ("cuda", "hit")
    assert rows and {row.holds for row in rows} == {is_prepared}
    assert {row.note for row in rows} == {"" if is_prepared else f"it ran on {target}, the cache answered '{outcome}'"}
