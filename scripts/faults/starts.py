"""Starts of a small real model, from the first call of `load` to the report, as faults are injected into them."""

from __future__ import annotations

import logging
import os
import shutil
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import jitdelegate
from jitdelegate.cache import fingerprint
from jitdelegate.errors import JitDelegateError
from jitdelegate.targets.cpu import target as cpu_target
from jitdelegate.tflite.write import ModelBuilder

WIDTH = 600
"""Of a square of weights: 1.4 MB, enough to be shared with the file."""
ONLY = ("FULLY_CONNECTED", "TANH")
RIGHT, WRONG, BY_OTHER_CODE = "right", "wrong answer", "right by other code"
ROUNDING = 1e-5
"""Most that other code may be off by: LiteRT's kernels, or those for any CPU, which add in another order."""
RUNS_AFTER = 20
"""Inferences after the last thing that happened to an entry."""


def model() -> bytes:
    """f32[1,WIDTH] -> FULLY_CONNECTED, TANH, NEG, TANH; NEG is what `ONLY` leaves to LiteRT."""
    made, shape = ModelBuilder(), (1, WIDTH)
    weights = np.random.default_rng(3).normal(size=(WIDTH, WIDTH)).astype(np.float32)
    value = made.op("FULLY_CONNECTED", [made.input(shape), made.constant(weights), None], shape)
    for op in ("TANH", "NEG", "TANH"):
        value = made.op(op, [value], shape)
    made.output(value)
    return made.finish()


@dataclass(frozen=True, slots=True)
class Start:
    """One way to start.

    Attributes:
        options: of `load`.
        loader: what the program is made for.
        remembered: whether the model counts as so large, and left alone for so long, that its fingerprint is kept.
    """

    options: dict[str, Any]
    loader: str = "flat"
    remembered: bool = False


PARTLY = {"partitioning": "all", "only_ops": ONLY}
STARTS = {
    "compiled": Start({"target": "auto"}),
    "compiled, token": Start({"target": "cpu", "model_token": "net"}),
    "compiled, private weights": Start({"target": "cpu", "private_weights": True}),
    "compiled, fingerprint remembered": Start({"target": "cpu", "model_token": "net"}, remembered=True),
    "partly compiled": Start({"target": "cpu", **PARTLY}, loader="partitions"),
    "partly compiled, token": Start({"target": "cpu", "model_token": "net", **PARTLY}, loader="partitions"),
    "partly compiled, inside LiteRT": Start({"target": "cpu", **PARTLY}, loader="delegate"),
}


@dataclass(frozen=True, slots=True)
class Scene:
    """Where starts happen: a folder with the model's folder and the cache, and a filled cache to copy."""

    folder: Path

    @property
    def model(self) -> Path:
        return self.folder / "model" / "model.tflite"

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    @property
    def filled(self) -> Path:
        return self.folder / "filled"

    @property
    def ready(self) -> Path:
        """There once a process has inferred."""
        return self.folder / "ready"

    @property
    def stop(self) -> Path:
        """There once a process may end."""
        return self.folder / "stop"

    @property
    def entry(self) -> Path:
        """The only entry in the cache."""
        (found,) = self.cache.glob("*.jitd")
        return found

    def set(self, *, is_warm: bool) -> None:
        """An empty cache, or a copy of the filled one."""
        shutil.rmtree(self.cache, ignore_errors=True)
        if is_warm:
            shutil.copytree(self.filled, self.cache)
            os.chmod(self.cache, 0o700)


def prepare(start: Start) -> None:
    """Make this process one that starts in this way; before faults are armed."""
    warnings.simplefilter("ignore")
    logging.disable()
    cpu_target.IN_LITERT = "nowhere" if start.loader == "partitions" else cpu_target.IN_LITERT
    if start.remembered:
        fingerprint.ALWAYS_HASHED, fingerprint._SETTLED_NANOSECONDS = 0, -1


def values() -> np.ndarray:
    """The input."""
    return np.random.default_rng(4).normal(size=(1, WIDTH)).astype(np.float32)


def infer(start: Start, scene: Scene) -> tuple[Any, Any, str]:
    """Two outputs of one start, and what the cache did; raises what the model's user would see."""
    value = values()
    with jitdelegate.load(scene.model, serialization_dir=scene.cache, num_threads=1, options=start.options) as loaded:
        outputs = loaded(value), loaded(value)
        report = loaded.report()
        str(report)
        return *outputs, report.cache.outcome


def outcome(start: Start, scene: Scene, expected: bytes, disarm: Callable[[], object] = str) -> str:
    """What came of a start: "hit" or "miss", BY_OTHER_CODE, WRONG, or the error, ours or not.

    Args:
        disarm: ends the faults, before answers are compared.
    """
    try:
        *outputs, how = infer(start, scene)
        disarm()
    except JitDelegateError as error:
        return f"clear error: {type(error).__name__}: {error}"
    except BaseException:  # noqa: BLE001  # whatever it is, it would have reached the user
        disarm()
        return f"exception: {traceback.format_exc()}"
    if all(bytes(output) == expected for output in outputs):
        return how
    error = max(float(np.abs(np.asarray(output) - np.frombuffer(expected, "f4")).max()) for output in outputs)
    return BY_OTHER_CODE if error < ROUNDING else f"{WRONG}: off by {error}"


def live(start: Start, scene: Scene, expected: bytes) -> str:
    """Infer until the file `stop` is there, and some times more; "right", or what else came of it."""
    value = values()
    try:
        with jitdelegate.load(
            scene.model, serialization_dir=scene.cache, num_threads=2, options=start.options
        ) as loaded:
            left = RUNS_AFTER
            while left:
                if bytes(loaded(value)) != expected:
                    return WRONG
                scene.ready.touch()
                left -= scene.stop.exists()
    except JitDelegateError as error:
        return f"error: {type(error).__name__}: {error}"
    except BaseException as error:  # noqa: BLE001  # whatever it is, it would have reached the user
        return f"exception: {type(error).__name__}: {error}"
    return RIGHT
