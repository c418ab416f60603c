"""MetricsCollector: what the cache and the batchers of this process have done, for Prometheus. The extra `telemetry`
installs its library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.registry import Collector

from jitdelegate.runtime.cache.store import counts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import CollectorRegistry

    from jitdelegate.api.dynamic_batcher import DynamicBatcher

CACHE = {
    "hits": "programs that came from the cache",
    "remote_hits": "those of them that were fetched from a remote",
    "writes": "programs that were written to the cache",
    "write_failures": "programs that could not be written to the cache",
    "lock_timeouts": "compilations that did not wait for another process any longer",
    "evictions": "programs that were removed: too many, beyond the limit, or outdated",
}
"""Name of a counter of the cache -> what it counts."""


class MetricsCollector(Collector):
    """Reads counters only when Prometheus asks for them, so a run pays nothing.

    The cache: `jitdelegate_cache_hits_total`, `_remote_hits_total`, `_misses_total` by `reason`, `_writes_total`,
    `_write_failures_total`, `_lock_timeouts_total`, `_evictions_total`. Each batcher, by `batcher`:
    `jitdelegate_failed_rows_total`, `jitdelegate_waiting_rows`, and the summaries `jitdelegate_row_seconds`, of rows
    from their calls to their outputs, and `jitdelegate_batch_seconds`, of runs, with their number.

        MetricsCollector({"mobilenet": batcher})
        prometheus_client.start_http_server(9100)
    """

    def __init__(
        self, batchers: Mapping[str, DynamicBatcher] | None = None, registry: CollectorRegistry | None = REGISTRY
    ) -> None:
        """
        Args:
            batchers: by the names that they get in the label `batcher`.
            registry: asks this collector, the only one of a process; None where the caller registers it.
        Raises:
            ValueError: Prometheus' own registry has such a collector already.
        """
        self._batchers = dict(batchers or {})
        if registry is not None:
            registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """All metrics as they are now."""
        for name, what in CACHE.items():
            yield CounterMetricFamily(f"jitdelegate_cache_{name}", what, value=getattr(counts, name))
        misses = CounterMetricFamily(
            "jitdelegate_cache_misses", "programs that were not in the cache", labels=["reason"]
        )
        for reason, number in dict(counts.misses).items():
            misses.add_metric([reason], number)
        yield misses
        yield from self._collect_batchers()

    def _collect_batchers(self) -> Iterator[Metric]:
        labels = ["batcher"]
        batches = SummaryMetricFamily("jitdelegate_batch_seconds", "seconds of a batch's run", labels=labels)
        rows = SummaryMetricFamily("jitdelegate_row_seconds", "seconds from a call to its outputs", labels=labels)
        failed = CounterMetricFamily("jitdelegate_failed_rows", "rows of batches that got an error", labels=labels)
        waiting = GaugeMetricFamily("jitdelegate_waiting_rows", "rows that wait for their batch", labels=labels)
        for name, batcher in self._batchers.items():
            known = batcher.counts
            batches.add_metric([name], count_value=known.batches, sum_value=known.run_seconds)
            rows.add_metric([name], count_value=known.rows, sum_value=known.row_seconds)
            failed.add_metric([name], known.failed_rows)
            waiting.add_metric([name], batcher.waiting)
        yield from (batches, rows, failed, waiting)
