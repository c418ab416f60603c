"""Fits the constants of the cost model to measured times: least squares of the logarithms of predicted over measured.

The models contain many maxima and whole numbers of waves, so they have no useful derivatives. Each constant in turn is
made larger and smaller by a factor; a change that helps is kept, and the factor shrinks when none does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from jitdelegate.targets.cuda.code.gpu import Gpu, gpu_of
from scripts.tune_kernels.models import MODELS, Constant, Line, Model, line_of
from scripts.tune_kernels.run import Times

FIRST_STEP, LAST_STEP = 0.5, 0.01
"""By how much of itself a constant is changed, at first and in the end."""
MOST_CHANGE = 10.0
"""Factor by which a constant may differ from what it was."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A candidate that was measured.

    Attributes:
        group: the problem and the GPU that it was measured on.
        clock: cycles a second.
        launch: seconds from a launch that does nothing to the next one.
        seconds: measured.
    """

    group: tuple[str, str]
    line: Line
    gpu: Gpu
    clock: float
    launch: float
    seconds: float

    def predicted(self, model: Model) -> float:
        """Seconds by the cost model."""
        return model.cycles(self.line, self.gpu) / self.clock + self.launch


@dataclass(frozen=True, slots=True)
class Errors:
    """How far a model is off.

    Attributes:
        factor: exp of the root of the mean square of log(predicted / measured).
        lost: what the model's choices take over what the fastest candidates take, the geometric mean over problems.
    """

    factor: float
    lost: float


def samples_of(times: Sequence[Times], model: Model) -> list[Sample]:
    """The times of a model's families."""
    found = []
    for one in times:
        gpu = gpu_of(one.kind)
        for problem, seconds in one.seconds.items():
            if problem.split()[0] in model.families:
                for name, each in seconds.items():
                    line = line_of(problem, name, one.moved.get(problem, {}).get(name, ()))
                    found.append(Sample((one.device, problem), line, gpu, one.clock, one.launch, each))
    return found


def errors(samples: Sequence[Sample], model: Model) -> Errors:
    """How far a model is off by its constants as they are."""
    groups: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for sample in samples:
        groups.setdefault(sample.group, []).append((sample.predicted(model), sample.seconds))
    squares = [math.log(predicted / seconds) ** 2 for each in groups.values() for predicted, seconds in each]
    lost = [math.log(min(each)[1] / min(seconds for _, seconds in each)) for each in groups.values()]
    return Errors(math.exp(math.sqrt(_mean(squares))), math.exp(_mean(lost)))


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)


def fitted(samples: Sequence[Sample], model: Model) -> dict[Constant, float]:
    """The constants by which a model is off the least; the modules' own stay as they are."""
    with _restored(model.constants):
        first = {constant: float(getattr(*constant)) for constant in model.constants}
        values, best, step = dict(first), errors(samples, model).factor, FIRST_STEP
        while step >= LAST_STEP:
            before = best
            for constant in model.constants:
                for changed in (values[constant] * (1 + step), values[constant] / (1 + step)):
                    if not first[constant] / MOST_CHANGE <= changed <= first[constant] * MOST_CHANGE:
                        continue
                    setattr(*constant, changed)
                    found = errors(samples, model).factor
                    if found < best:
                        values[constant], best = changed, found
                    setattr(*constant, values[constant])
            if best >= before * (1 - 1e-6):
                step /= 2
        return values


@contextmanager
def _restored(constants: Sequence[Constant]) -> Iterator[None]:
    before = [(constant, getattr(*constant)) for constant in constants]
    try:
        yield
    finally:
        for constant, value in before:
            setattr(*constant, value)


@contextmanager
def _set(values: dict[Constant, float]) -> Iterator[None]:
    with _restored([*values]):
        for constant, value in values.items():
            setattr(*constant, value)
        yield


def report(times: Sequence[Times]) -> Iterator[str]:
    """What `fit` prints: by model how far it is off before and after, and its constants."""
    for model in MODELS:
        samples = samples_of(times, model)
        if not samples:
            yield f"{' and '.join(model.families)}: not measured"
            continue
        before, values = errors(samples, model), fitted(samples, model)
        with _set(values):
            after = errors(samples, model)
        yield (
            f"{' and '.join(model.families)}: {len(samples)} times, off by a factor of {before.factor:.2f}, fitted"
            f" {after.factor:.2f}; its choices take {before.lost:.3f} of the fastest, fitted {after.lost:.3f}"
        )
        for (module, name), value in values.items():
            yield f"    {module.__name__.rpartition('.')[2]}.{name}: {getattr(module, name):g} -> {value:.4g}"
