"""Starts of a model in fresh processes, with their time and memory: ours cold and warm, and LiteRT's."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jitdelegate.base.options import DelegateOptions
from jitdelegate.commands.measurement.entry import Entry
from jitdelegate.commands.measurement.process import run_module
from jitdelegate.errors import ModelError

COLD, WARM, LITERT = "cold", "warm", "litert"
_SIDES = {COLD: "jitdelegate", WARM: "jitdelegate", LITERT: "litert"}


@dataclass(frozen=True)
class Start:
    """Starts of one kind, with medians over the rounds.

    Attributes:
        kind: COLD compiles, WARM finds its program in the cache, LITERT is LiteRT's interpreter.
        process: seconds from before the process until its end, with one run.
        seconds: those of its stages: numpy, import, open, first run.
        peak_bytes: the most memory that the process had.
        cache: what the cache answered: "hit" or "miss"; "" of LiteRT.
    """

    kind: str
    process: float
    seconds: dict[str, float]
    peak_bytes: int
    cache: str

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return {"process_s": self.process, "stages_s": self.seconds, "peak_bytes": self.peak_bytes, "cache": self.cache}


def measure_starts(
    entry: Entry,
    values: Sequence[np.ndarray],
    options: DelegateOptions,
    threads: int,
    *,
    rounds: int,
    litert: bool,
    shown: Callable[[str], object] = lambda kind: None,
) -> list[Start]:
    """Cold, warm and, if asked for, LiteRT's starts by turns, each cold one with an empty cache.

    Args:
        shown: called before each start with its kind.
    Raises:
        ModelError: a process failed; the message has its last line. Also for inputs of text.
    """
    if any(port.dtype == "string" for port in entry.inputs):
        raise ModelError("starts are not measured of models that read text")
    kinds = [COLD, WARM, *[LITERT] * litert]
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory(prefix="jitdelegate-starts-") as folder:
        told = _describe(entry, values, threads, folder)
        for number in range(rounds):
            cache = os.path.join(folder, f"cache-{number}")
            told["options"] = _write_json(folder, "options.json", _plain(options, cache))
            for kind in kinds:
                shown(kind)
                file = _write_json(folder, "start.json", told | {"side": _SIDES[kind]})
                found[kind].append(_start(file, kind))
    return [_summary(kind, each) for kind, each in found.items()]


def _describe(entry: Entry, values: Sequence[np.ndarray], threads: int, folder: str) -> dict[str, Any]:
    """All but the side, with the model and the inputs in files."""
    tensors, inputs = entry.graph.tensors, []
    for position, (port, value) in enumerate(zip(entry.inputs, values, strict=True)):
        file = os.path.join(folder, f"input-{position}.bin")
        value.tofile(file)
        known = {"name": port.name, "index": port.index, "type": port.dtype, "shape": value.shape, "file": file}
        inputs.append(known | {"resized": value.shape != tensors[port.index].shape})
    model = entry.source
    if isinstance(model, bytes):
        content, model = model, os.path.join(folder, "model.tflite")
        with open(model, "wb") as out:
            out.write(content)
    return {"model": model, "threads": threads, "signature": entry.signature, "inputs": inputs}


def _plain(options: DelegateOptions, cache: str) -> dict[str, Any]:
    """The options that differ from their defaults, for a file, with a cache of their own."""
    changed = {name: getattr(options, name) for name in options.changed}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in changed.items()} | {
        "serialization_dir": cache,
        "prebuilt": [],
        "remote": False,
    }


def _write_json(folder: str, name: str, content: object) -> str:
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file)
    return path


def _start(file: str, kind: str) -> dict[str, Any]:
    result, seconds = run_module(f"{kind} start", "jitdelegate.commands.measurement.timed_side", [file])
    return result | {"process": seconds}


def _summary(kind: str, starts: Sequence[dict[str, Any]]) -> Start:
    stages = {name: statistics.median(start["seconds"][name] for start in starts) for name in starts[0]["seconds"]}
    return Start(
        kind=kind,
        process=statistics.median(start["process"] for start in starts),
        seconds=stages,
        peak_bytes=int(statistics.median(start["peak_bytes"] for start in starts)),
        cache=starts[-1]["cache"],
    )
