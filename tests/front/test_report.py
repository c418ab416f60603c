"""The report: what it knows, as a table and as plain data."""

from __future__ import annotations

import json
from pathlib import Path

import jitdelegate
from tests.front import small_models


def test_a_compiled_model_is_fully_delegated(tmp_path: Path) -> None:
    report = jitdelegate.load(small_models.convolution(), serialization_dir=tmp_path, num_threads=2).report()
    assert report.fully_delegated
    assert [(one.index, one.op, one.place, one.reason) for one in report.operators] == [(0, "CONV_2D", "cpu", "")]
    assert (report.target, report.threads, report.delegated) == ("cpu", 2, 1)
    assert report.kernels >= 1


def test_the_reasons_for_litert_are_per_operator() -> None:
    report = jitdelegate.load(small_models.integers(), serialization_dir=False).report()
    assert not report.fully_delegated
    assert report.delegated == 0
    (operator,) = report.operators
    assert (operator.op, operator.place) == ("ADD", "litert")
    assert "int32" in operator.reason


def test_the_stages_are_timed_and_the_cache_counted(tmp_path: Path) -> None:
    cold = jitdelegate.load(small_models.convolution(), serialization_dir=tmp_path / "cache").report()
    assert {"fingerprint", "read", "passes", "generate", "write", "cache", "open"} <= set(cold.seconds)
    warm = jitdelegate.load(small_models.convolution(), serialization_dir=tmp_path / "cache").report()
    assert list(warm.seconds) == ["fingerprint", "cache", "open"]
    assert warm.cache.counters["hits"] == cold.cache.counters["hits"] + 1
    assert warm.cache.path == cold.cache.path
    assert Path(warm.cache.path).is_file()


def test_the_plain_data_go_through_json(tmp_path: Path) -> None:
    report = jitdelegate.load(small_models.convolution(), serialization_dir=tmp_path).report()
    data = json.loads(json.dumps(report.to_dict()))
    assert data["fully_delegated"] is True
    assert data["operators"] == [{"index": 0, "op": "CONV_2D", "place": "cpu", "reason": ""}]
    assert data["cache"]["outcome"] == "miss"


def test_printing_gives_a_table_with_target_cache_stages_and_reasons() -> None:
    text = str(jitdelegate.load(small_models.integers(), serialization_dir=False).report())
    assert "litert" in text
    assert "0 of 1 delegated" in text
    assert "off" in text
    assert "fingerprint" in text
    assert "int32" in text
