"""Figures of a row: medians, ratios, differences, and shares of the machine's speed."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from jitdelegate.commands.measurement.machine_speed import multiply_speed, read_speed
from jitdelegate.commands.measurement.sides import OURS
from jitdelegate.commands.measurement.statistics import percentile
from jitdelegate.commands.measurement.timing import quartiles
from jitdelegate.commands.suite.job import CALIBRATION, PROFILE, Job, Measured

QUARTERS = (25, 50, 75)
Row = dict[str, Any]


def row_of(name: str, job: Job, measured: Measured) -> Row:
    """All figures of one model by one number of threads as plain data; a side has a "reason" instead where it failed.

    Args:
        name: the model's, in the folder.
    """
    own = measured.seconds.get(OURS, ())
    others = {side: each for side, each in measured.seconds.items() if own and side not in (OURS, CALIBRATION)}
    better = min(others, key=lambda side: statistics.median(others[side]), default=None)
    ratios = {side: _ratio(each, own) for side, each in others.items()}
    return {
        "model": name,
        "threads": job.threads,
        "target": measured.target,
        "sides": {side: _times(side, measured) | ratios.get(side, {}) for side in job.sides if side != PROFILE},
        "better": better,
        "against_better": ratios[better] if better else None,
        **(_shares_of(measured.kernels, statistics.median(own), job.threads) if own else {}),
        "kernels": [
            {"kind": each["kind"], "number": each["number"], "ms": 1e3 * each["seconds"]}
            | _shares_of([each], each["seconds"], job.threads)
            for each in sorted(measured.kernels, key=lambda each: -each["seconds"])
        ],
        "unprofiled": measured.failed.get(PROFILE),
        "calibration": [*measured.calibration, *measured.seconds.get(CALIBRATION, ())],
        "others": measured.others,
    }


def _ratio(theirs: Sequence[float], ours: Sequence[float]) -> Row:
    low, ratio, high = quartiles(theirs, ours)
    return {"ratio": ratio, "ratio_low": low, "ratio_high": high}


def _times(name: str, measured: Measured) -> Row:
    if name not in measured.seconds:
        return {"reason": measured.failed[name]}
    rounds = [1e3 * each for each in measured.seconds[name]]
    low, median, high = (percentile(rounds, percent) for percent in QUARTERS)
    differences = measured.differences.get(name, [])
    return {"ms": median, "low_ms": low, "high_ms": high, "rounds_ms": rounds, "differences": differences}


def _shares_of(kernels: Sequence[Mapping[str, Any]], seconds: float, threads: int) -> Row:
    """The time that the machine needs at least for the products of kernels, and for their bytes, over `seconds`."""
    if not kernels or not seconds:
        return {}
    work = [each for kernel in kernels for each in kernel["work"].items()]
    multiply = sum(count / (threads * multiply_speed(kind)) for kind, count in work)
    read = sum(kernel["nbytes"] for kernel in kernels) / read_speed(threads)
    return {"peak_share": multiply / seconds, "memory_share": read / seconds}
