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
from jitdelegate.errors import JitDelegateError
from jitdelegate.runtime.cache import key, memo
from jitdelegate.runtime.cache.store import counts
from jitdelegate.targets.cpu import target as cpu_target
from jitdelegate.tflite.write import ModelBuilder

WIDTH = 600
"""Of a square of weights: 1.4 MB, enough to be shared with the file."""
CROWD = 1 << 20
FURTHER = "further"
ONLY = ("FULLY_CONNECTED", "TANH")
RIGHT, WRONG, BY_OTHER_CODE = "right", "wrong answer", "right by other code"
ROUNDING = 1e-5
"""Most that other code may be off by: LiteRT's kernels, or those for any CPU, which add in another order."""
OLD = 1_000_000_000
"""Seconds since 1970 of a use that is long ago."""
RUNS_AFTER = 20
"""Inferences after the last thing that happened to an entry."""


def model(*, signatures: bool = False) -> bytes:
    """f32[1,WIDTH] -> FULLY_CONNECTED, TANH, NEG, TANH; NEG is what `ONLY` leaves to LiteRT.

    Args:
        signatures: whether the signature FURTHER, on another subgraph, multiplies by the same weights, and by others.
    """
    made, shape, random = ModelBuilder(), (1, WIDTH), np.random.default_rng(3)
    weights = [random.normal(size=(WIDTH, WIDTH)).astype(np.float32) for _ in range(1 + signatures)]
    graphs = [made, made.subgraph(FURTHER)] if signatures else [made]
    for number, graph in enumerate(graphs):
        start = value = graph.input(shape)
        for each in reversed(weights[: number + 1]):
            value = graph.op("FULLY_CONNECTED", [value, graph.constant(each), None], shape)
            for op in ("TANH", "NEG", "TANH"):
                value = graph.op(op, [value], shape)
        graph.output(value)
        if signatures:
            made.signature(FURTHER if number else "main", {"x": start}, {"y": value}, number)
    return made.finish()


@dataclass(frozen=True, slots=True)
class Start:
    """One way to start.

    Attributes:
        options: of `load`.
        loader: what the program is made for.
        signature: the signature that runs; "" for the model as such.
        fetched: whether the programs come from the remote, once there is one.
        remembered: whether the model counts as so large, and left alone for so long, that its fingerprint is kept.
        prebuilt: whether a filled cache is a prebuilt folder before an empty one.
        crowd: number of other entries, of CROWD bytes each, that lie in the cache and were not used for long.
    """

    options: dict[str, Any]
    loader: str = "flat"
    signature: str = ""
    remembered: bool = False
    prebuilt: bool = False
    crowd: int = 0
    fetched: bool = False


PARTLY = {"partitioning": "all", "only_ops": ONLY}
STARTS = {
    "compiled": Start({"target": "auto"}),
    "compiled, token": Start({"target": "cpu", "model_token": "net"}),
    "compiled, private weights": Start({"target": "cpu", "private_weights": True}),
    "compiled, fingerprint remembered": Start({"target": "cpu", "model_token": "net"}, remembered=True),
    "compiled, limit": Start({"target": "cpu", "cache_max_bytes": 3 * CROWD}, crowd=3),
    "further signature": Start({"target": "cpu"}, signature=FURTHER),
    "further signature, private weights": Start({"target": "cpu", "private_weights": True}, signature=FURTHER),
    "prebuilt": Start({"target": "cpu"}, prebuilt=True),
    "prebuilt, further signature": Start({"target": "cpu"}, signature=FURTHER, prebuilt=True),
    "partly compiled": Start({"target": "cpu", **PARTLY}, loader="partitions"),
    "partly compiled, token": Start({"target": "cpu", "model_token": "net", **PARTLY}, loader="partitions"),
    "partly compiled, inside LiteRT": Start({"target": "cpu", **PARTLY}, loader="delegate"),
}
FETCHED = "further signature, fetched from a remote"
ALL_STARTS = STARTS | {FETCHED: Start({"target": "cpu"}, signature=FURTHER, fetched=True)}


@dataclass(frozen=True, slots=True)
class Scene:
    """Where starts happen: a folder with the model's folder and the cache, and filled caches to copy."""

    folder: Path

    @property
    def models(self) -> Path:
        return self.folder / "model"

    def model(self, start: Start) -> Path:
        """The file that a start opens."""
        return self.models / ("signatures.tflite" if start.signature else "model.tflite")

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    @property
    def prebuilt(self) -> Path:
        """The prebuilt folder, for starts that have one."""
        return self.folder / "prebuilt"

    @property
    def remote(self) -> Path:
        """Where programs are fetched from."""
        return self.folder / "remote"

    @property
    def keys(self) -> Path:
        """The keys of whoever pushes there."""
        return self.folder / "keys"

    def options(self, start: Start) -> dict[str, Any]:
        """The options of a start."""
        is_there = start.fetched and self.remote.exists()
        place = {"remote": str(self.remote), "remote_key": str(self.keys / "public.pem")} if is_there else {}
        return start.options | place

    def filled(self, name: str) -> Path:
        """The filled cache for a start of STARTS."""
        return self.folder / f"filled for {name}"

    @property
    def ready(self) -> Path:
        """There once a process has inferred."""
        return self.folder / "ready"

    @property
    def stop(self) -> Path:
        """There once a process may end."""
        return self.folder / "stop"

    def entries(self, start: Start) -> list[Path]:
        """The entries that a start finds, but those of the crowd."""
        found = (self.prebuilt if start.prebuilt else self.cache).glob("*.jitd")
        return sorted(path for path in found if not path.name.startswith("other-"))

    def set(self, filled_for: str = "") -> None:
        """An empty cache and prebuilt folder, or a copy of what is filled for a start in place of one of them."""
        for folder in self.cache, self.prebuilt:
            shutil.rmtree(folder, ignore_errors=True)
        filled = self.prebuilt if filled_for and STARTS[filled_for].prebuilt else self.cache
        if filled_for:
            shutil.copytree(self.filled(filled_for), filled)
            os.chmod(filled, 0o700)
        self.prebuilt.mkdir(mode=0o755, exist_ok=True)

    def prebuilt_state(self) -> list[tuple[object, ...]]:
        """What a write, a lock or a change of modes in the prebuilt folder would alter."""
        paths = [self.prebuilt, *sorted(self.prebuilt.iterdir())]
        return [(path, *path.stat()[:7], path.stat().st_mtime_ns, path.stat().st_ctime_ns) for path in paths]


def prepare(start: Start, scene: Scene) -> None:
    """Make this process one that starts in this way, and the cache one that it finds; before faults are armed."""
    for number in range(start.crowd):
        scene.cache.mkdir(mode=0o700, exist_ok=True)
        path = scene.cache / f"other-{number}.jitd"
        path.write_bytes(bytes(CROWD))
        os.utime(path, (OLD, OLD))
    warnings.simplefilter("ignore")
    logging.disable()
    cpu_target.IN_LITERT = "nowhere" if start.loader == "partitions" else cpu_target.IN_LITERT
    if start.remembered:
        key.ALWAYS_HASHED, memo._SETTLED_NANOSECONDS = 0, -1


def values() -> np.ndarray:
    """The input."""
    return np.random.default_rng(4).normal(size=(1, WIDTH)).astype(np.float32)


def infer(start: Start, scene: Scene) -> tuple[Any, Any, str]:
    """Two outputs of one start, and what the cache did; raises what the model's user would see."""
    value, before = values(), counts.writes + counts.write_failures
    with opened(start, scene, num_threads=1) as loaded:
        outputs = answer(start, loaded, value), answer(start, loaded, value)
        report = loaded.report()
        str(report)
        if start.prebuilt:  # a damaged folder stays so, and each start misses there and hits in the cache
            return *outputs, "miss" if counts.writes + counts.write_failures > before else "hit"
        outcomes = {report.cache.outcome, *(each.outcome for each in report.subgraphs)}
        return *outputs, "miss" if "miss" in outcomes else report.cache.outcome


def opened(start: Start, scene: Scene, *, num_threads: int) -> jitdelegate.Model:
    """The model of a start; raises what its user would see."""
    prebuilt = [scene.prebuilt] if start.prebuilt else []
    return jitdelegate.load(
        scene.model(start),
        serialization_dir=scene.cache,
        prebuilt=prebuilt,
        num_threads=num_threads,
        options=scene.options(start),
    )


def answer(start: Start, loaded: jitdelegate.Model, value: np.ndarray) -> Any:
    """What the model answers."""
    return loaded.run({"x": value}, signature=start.signature)["y"] if start.signature else loaded(value)


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
        with opened(start, scene, num_threads=2) as loaded:
            left = RUNS_AFTER
            while left:
                if bytes(answer(start, loaded, value)) != expected:
                    return WRONG
                scene.ready.touch()
                left -= scene.stop.exists()
    except JitDelegateError as error:
        return f"error: {type(error).__name__}: {error}"
    except BaseException as error:  # noqa: BLE001  # whatever it is, it would have reached the user
        return f"exception: {type(error).__name__}: {error}"
    return RIGHT
