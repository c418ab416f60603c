"""Telemetry: spans of OpenTelemetry and counters for Prometheus say what ran."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("opentelemetry.sdk", reason="needs opentelemetry-sdk")
pytest.importorskip("prometheus_client", reason="needs the extra 'telemetry'")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest

import jitdelegate
from jitdelegate import DynamicBatcher, TensorError
from jitdelegate.telemetry import JitDelegateInstrumentor, MetricsCollector
from tests.api import small_models

ROW = {"image": np.ones((8, 8, 3), np.float32)}


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrumentor = JitDelegateInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    yield exporter
    instrumentor.uninstrument()


def _attributes(exporter: InMemorySpanExporter, name: str) -> list[dict[str, Any]]:
    return [dict(span.attributes or {}) for span in exporter.get_finished_spans() if span.name == f"jitdelegate.{name}"]


async def _ask(batcher: DynamicBatcher, count: int) -> None:
    async with batcher:
        await asyncio.gather(*(batcher(ROW) for _ in range(count)))


def _load(folder: Path) -> jitdelegate.Model:
    return jitdelegate.load(small_models.convolution(open_batch=True), serialization_dir=folder, target="cpu")


def test_spans_say_what_the_cache_did_and_what_ran(spans: InMemorySpanExporter, tmp_path: Path) -> None:
    for _ in range(2):
        _load(tmp_path)(np.ones((1, 8, 8, 3), np.float32))
    cold, warm = _attributes(spans, "fetch")[0], _attributes(spans, "fetch")[-1]
    assert (cold["jitdelegate.cache.hit"], warm["jitdelegate.cache.hit"]) == (False, True)
    assert cold["jitdelegate.cache.reason"] == "there is no entry for it yet"
    assert "jitdelegate.cache.reason" not in warm
    assert cold["jitdelegate.target"] == "cpu"
    assert cold["jitdelegate.delegated"] == cold["jitdelegate.operators"] > 0
    assert warm["jitdelegate.seconds.cache"] > 0
    assert len(_attributes(spans, "run")) == 2


def test_spans_of_requests_and_their_batch(spans: InMemorySpanExporter, tmp_path: Path) -> None:
    asyncio.run(_ask(DynamicBatcher(_load(tmp_path), max_batch_size=3), 3))
    assert len(_attributes(spans, "request")) == 3
    assert _attributes(spans, "batch") == [{"jitdelegate.rows": 3}]


def test_an_error_is_in_the_span(spans: InMemorySpanExporter, tmp_path: Path) -> None:
    model = _load(tmp_path)
    with pytest.raises(TensorError):
        model.run({"no such input": 1})
    (span,) = (span for span in spans.get_finished_spans() if span.name == "jitdelegate.run")
    assert not span.status.is_ok
    assert [event.name for event in span.events] == ["exception"]


def test_after_uninstrument_there_are_no_spans(spans: InMemorySpanExporter, tmp_path: Path) -> None:
    JitDelegateInstrumentor().uninstrument()
    asyncio.run(_ask(DynamicBatcher(_load(tmp_path)), 1))
    assert not spans.get_finished_spans()
    JitDelegateInstrumentor().instrument()  # what the fixture ends


def test_metrics_of_cache_and_batchers(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    _load(tmp_path).close()
    batcher = DynamicBatcher(_load(tmp_path), max_batch_size=2, max_delay=60)
    MetricsCollector({"small": batcher}, registry)
    before = _read(registry)
    asyncio.run(_ask(batcher, 4))
    found = _read(registry)
    assert found["jitdelegate_cache_hits_total"] >= 1
    assert found['jitdelegate_cache_misses_total{reason="absent"}'] >= 1
    labels = '{batcher="small"}'
    assert before[f"jitdelegate_batch_seconds_count{labels}"] == 0
    assert found[f"jitdelegate_batch_seconds_count{labels}"] == 2
    assert found[f"jitdelegate_row_seconds_count{labels}"] == 4
    assert found[f"jitdelegate_row_seconds_sum{labels}"] >= found[f"jitdelegate_batch_seconds_sum{labels}"] > 0
    assert found[f"jitdelegate_failed_rows_total{labels}"] == found[f"jitdelegate_waiting_rows{labels}"] == 0


def test_metrics_count_rows_that_wait_and_those_that_fail(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    model = _load(tmp_path)
    batcher = DynamicBatcher(model, max_batch_size=2, max_delay=60)
    MetricsCollector({"small": batcher}, registry)

    async def fail() -> None:
        first = asyncio.ensure_future(batcher(ROW))
        await asyncio.sleep(0)
        assert _read(registry)['jitdelegate_waiting_rows{batcher="small"}'] == 1
        model.close()
        results = await asyncio.gather(first, batcher(ROW), return_exceptions=True)
        assert all(isinstance(result, jitdelegate.DeviceError) for result in results)

    asyncio.run(fail())
    assert _read(registry)['jitdelegate_failed_rows_total{batcher="small"}'] == 2


def _read(registry: CollectorRegistry) -> dict[str, float]:
    lines = generate_latest(registry).decode().splitlines()
    return {name: float(value) for line in lines if line[0] != "#" for name, _, value in [line.rpartition(" ")]}
