"""Statistics of the times of many runs, also in benchmark_model's words."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

MICRO = 1e6
PERCENTILES = (5, 95, 99)


@dataclass(frozen=True)
class Statistics:
    """Times of runs in seconds, in the order of the runs."""

    seconds: tuple[float, ...]

    @property
    def count(self) -> int:
        return len(self.seconds)

    @property
    def first(self) -> float:
        return self.seconds[0] if self.seconds else 0.0

    @property
    def last(self) -> float:
        return self.seconds[-1] if self.seconds else 0.0

    @property
    def average(self) -> float:
        return statistics.fmean(self.seconds) if self.seconds else 0.0

    @property
    def deviation(self) -> float:
        """The standard deviation of the population, as benchmark_model has it."""
        return statistics.pstdev(self.seconds) if self.seconds else 0.0

    @property
    def median(self) -> float:
        return statistics.median(self.seconds) if self.seconds else 0.0

    def percentile(self, percent: float) -> float:
        """Between neighbours, it is interpolated."""
        return percentile(self.seconds, percent)

    @property
    def whole(self) -> Statistics:
        """The same in whole microseconds, which are benchmark_model's clock; rounded down."""
        return Statistics(tuple(float(int(MICRO * each)) for each in self.seconds))

    def to_dict(self) -> dict[str, float]:
        """Count, microseconds, and runs a second, as plain data."""
        return {
            "count": self.count,
            "first_us": MICRO * self.first,
            "last_us": MICRO * self.last,
            "min_us": MICRO * min(self.seconds, default=0.0),
            "max_us": MICRO * max(self.seconds, default=0.0),
            "avg_us": MICRO * self.average,
            "std_us": MICRO * self.deviation,
            "median_us": MICRO * self.median,
            **{f"p{percent}_us": MICRO * self.percentile(percent) for percent in PERCENTILES},
            "runs_per_second": 1 / self.average if self.average else 0.0,
        }

    def line(self) -> str:
        """benchmark_model's line: whole microseconds."""
        whole = self.whole
        if not whole.count:
            return "count=0"
        if len({*whole.seconds}) == 1:
            return f"count={whole.count} curr={whole.last:.0f}" + (" (all same)" if whole.count > 1 else "")
        return (
            f"count={whole.count} first={whole.first:.0f} curr={whole.last:.0f} min={min(whole.seconds):.0f} "
            f"max={max(whole.seconds):.0f} avg={whole.average:g} std={whole.deviation:.0f} "
            f"p5={whole.percentile(5):.0f} median={whole.median:.0f} p95={whole.percentile(95):.0f}"
        )


def percentile(values: Sequence[float], percent: float) -> float:
    """A percentile, interpolated between neighbours; 0 without values."""
    if not values:
        return 0.0
    ordered, position = sorted(values), (len(values) - 1) * percent / 100
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])
