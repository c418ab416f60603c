"""How far the outputs of two sides are apart, over several runs, and whether that is too far."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field

import numpy as np

from jitdelegate.commands.measurement.entry import Interface


def nrmse(found: np.ndarray, expected: np.ndarray) -> float:
    """rms(found - expected) / rms(expected); infinite where shapes or positions of NaN differ."""
    if found.shape != expected.shape or not np.array_equal(np.isnan(found), np.isnan(expected)):
        return math.inf
    difference = np.sqrt(np.nanmean(_apart(found, expected) ** 2)) if found.size else 0.0
    scale = np.sqrt(np.nanmean(np.where(np.isinf(expected), 0, expected) ** 2)) if found.size else 1.0
    return float(difference / scale) if scale else float(difference)


def _apart(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Absolute differences; 0 between equal infinities."""
    with np.errstate(invalid="ignore"):
        return np.where(found == expected, 0.0, np.abs(found - expected))


@dataclass(frozen=True)
class Tolerance:
    """What two sides may differ by; None asks nothing.

    Attributes:
        nrmse: rms(difference) / rms(expected), of outputs of floats.
        steps: of outputs of quantized numbers, in their last bits (LSB).
        differing: share of the elements that differ, of all other outputs: indices, truths and texts.
        maximum, mean: absolute differences of raw values, of any output.
    """

    nrmse: float | None = 1e-4
    steps: float | None = 1.0
    differing: float | None = 0.0
    maximum: float | None = None
    mean: float | None = None


@dataclass
class Difference:
    """One output on two sides; a run at a time is added.

    Attributes:
        maximum: the largest absolute difference of raw values, of all runs.
        means: the mean absolute difference of each run.
        nrmse: the largest of all runs.
        differing, elements: how many elements differ, and how many there are, in all runs.
        nans: how many numbers are NaN, in all runs: found, and expected.
        mismatch: a sentence about shapes or types that differ; "" for none.
    """

    interface: Interface
    maximum: float = 0.0
    means: list[float] = field(default_factory=list)
    nrmse: float = 0.0
    differing: int = 0
    elements: int = 0
    nans: tuple[int, int] = (0, 0)
    mismatch: str = ""

    def add(self, found: np.ndarray, expected: np.ndarray) -> None:
        """One run's values."""
        self.elements += expected.size
        if found.shape != expected.shape or found.dtype != expected.dtype:
            self.mismatch = f"{found.dtype}{list(found.shape)} instead of {expected.dtype}{list(expected.shape)}"
            return
        if expected.dtype.kind in "OSU":
            self.differing += int(np.sum(found != expected))
            self.means.append(0.0)
            return
        self._add_numbers(_numbers(found), _numbers(expected))

    def _add_numbers(self, found: np.ndarray, expected: np.ndarray) -> None:
        absent = np.isnan(found), np.isnan(expected)
        self.nans = self.nans[0] + int(absent[0].sum()), self.nans[1] + int(absent[1].sum())
        apart = _apart(found, expected)
        known = apart[~np.isnan(apart)]
        self.maximum = max(self.maximum, float(known.max(initial=0.0)))
        self.means.append(float(known.mean()) if known.size else 0.0)
        self.differing += int(np.sum((apart != 0) & ~(absent[0] & absent[1])))
        self.nrmse = max(self.nrmse, nrmse(found, expected))

    @property
    def mean(self) -> float:
        """The average over the runs of the mean absolute difference."""
        return statistics.fmean(self.means) if self.means else 0.0

    @property
    def deviation(self) -> float:
        """The standard deviation over the runs of the mean absolute difference."""
        return statistics.pstdev(self.means) if self.means else 0.0

    @property
    def steps(self) -> float | None:
        """The largest difference of a quantized output in last bits (LSB); None of other outputs."""
        return self.maximum if self.interface.is_quantized else None

    def departure(self, tolerance: Tolerance) -> str:
        """Why this is too far, in words; "" if it is not."""
        if self.mismatch:
            return self.mismatch
        if self.nans[0] != self.nans[1]:
            return f"{self.nans[0]} numbers are NaN, expected {self.nans[1]}"
        kind = self.interface.dtype
        limits = [("max", self.maximum, tolerance.maximum), ("mean", self.mean, tolerance.mean)]
        if self.interface.is_quantized:
            limits.append(("LSB", self.maximum, tolerance.steps))
        elif kind.startswith(("float", "bfloat", "complex")):
            limits.append(("NRMSE", self.nrmse, tolerance.nrmse))
        else:
            limits.append(("differing", self.differing / max(self.elements, 1), tolerance.differing))
        over = [
            f"{name} {value:.3g} > {limit:g}" for name, value, limit in limits if limit is not None and value > limit
        ]
        return ", ".join(over)

    def to_dict(self, tolerance: Tolerance) -> dict[str, object]:
        """The same as plain data; infinities, which JSON lacks, as None."""
        return {
            "name": self.interface.name,
            "tensor": self.interface.tensor,
            "type": self.interface.dtype,
            "max": _finite(self.maximum),
            "mean": _finite(self.mean),
            "std_dev": _finite(self.deviation),
            "nrmse": _finite(self.nrmse),
            "lsb": self.steps,
            "differing": self.differing,
            "elements": self.elements,
            "nan": {"found": self.nans[0], "expected": self.nans[1]},
            "departure": self.departure(tolerance),
        }


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _numbers(array: np.ndarray) -> np.ndarray:
    """The elements as float64, complex ones as pairs."""
    if array.dtype.kind == "c":
        array = array.view(array.real.dtype)
    return array.astype(np.float64)
