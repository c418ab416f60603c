"""Lets many processes share a directory that is too small for their models.

    python -m scripts.stress_cache [--processes N] [--models N] [--limit SIZE] [--seconds N] [--starts N] [--seed N]

Each process opens a model by chance, runs it and closes it, again and again. Every answer has to be right, nothing may
be raised, and the directory may never hold more than its limit and one program.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import jitdelegate
from cache_tools.amounts import short_size, size
from jitdelegate.tflite.write import ModelBuilder
from scripts.faults.child import Child

WIDTHS = (300, 700)
"""Least and most of a square of weights: 0.4 to 2 MB a program."""
ROUNDING = 1e-5
PAUSE = 0.002
"""Seconds between two looks at the directory."""
MANY = 1_000_000


@dataclass(frozen=True, slots=True)
class Model:
    """A model's file, an input and the right answer."""

    path: Path
    value: np.ndarray
    answer: np.ndarray


def make_model(folder: Path, number: int) -> Model:
    """f32[1,w] -> FULLY_CONNECTED, TANH, with weights of its own."""
    chance = np.random.default_rng(number)
    width = int(chance.integers(*WIDTHS))
    weights = chance.normal(size=(width, width)).astype(np.float32) / np.float32(width)
    value = chance.normal(size=(1, width)).astype(np.float32)
    made = ModelBuilder()
    start = made.input((1, width))
    product = made.op("FULLY_CONNECTED", [start, made.constant(weights), None], (1, width))
    made.output(made.op("TANH", [product], (1, width)))
    path = folder / f"{number}.tflite"
    path.write_bytes(made.finish())
    return Model(path, value, np.tanh(value @ weights.T))


def work(models: list[Model], cache: Path, limit: int, until: float, starts: int, seed: int) -> dict[str, int]:
    """Open models and run them; how often which outcome came."""
    chance, found = random.Random(seed), Counter[str]()
    while time.time() < until and sum(found.values()) < starts:
        model = chance.choice(models)
        try:
            options = {"cache_max_bytes": limit}
            with jitdelegate.load(
                model.path, serialization_dir=cache, target="cpu", num_threads=1, options=options
            ) as loaded:
                off = float(np.abs(np.asarray(loaded(model.value)) - model.answer).max())
                found[loaded.report().cache.outcome if off < ROUNDING else "wrong"] += 1
        except Exception as error:  # noqa: BLE001  # whatever it is, it would have reached the user
            found[f"{type(error).__name__}: {error}"] += 1
    return dict(found)


def sizes(cache: Path) -> dict[int, int]:
    """Inode to bytes of each program that lies in the directory."""
    found = {}
    with os.scandir(cache) as entries:
        for entry in entries:
            if entry.name.endswith(".jitd"):
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                found[status.st_ino] = status.st_size
    return found


def settled_sizes(cache: Path) -> dict[int, int]:
    """The sizes at one moment: a list that is being read may hold what was removed before something else came."""
    before, after = sizes(cache), sizes(cache)
    while before.keys() != after.keys():
        before, after = after, sizes(cache)
    return after


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 all is well, 1 not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=32)
    parser.add_argument("--models", type=int, default=20)
    parser.add_argument("--limit", type=size, default=10 << 20)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--starts", type=int, default=MANY, help="of each process at most")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as place:
        cache, until = Path(place) / "cache", time.time() + arguments.seconds
        cache.mkdir(mode=0o700)
        models = [make_model(Path(place), number) for number in range(arguments.models)]
        children = [
            Child(
                lambda seed=seed: work(models, cache, arguments.limit, until, arguments.starts, seed),  # type: ignore[misc]
                patience=int(arguments.seconds) + 120,
            )
            for seed in range(arguments.seed, arguments.seed + arguments.processes)
        ]
        most, largest, looks = 0, 0, 0
        while not all(child.is_over() for child in children):
            now, looks = settled_sizes(cache), looks + 1
            most, largest = max(most, sum(now.values())), max([largest, *now.values()])
            time.sleep(PAUSE)
        ended = [child.end() for child in children]
        left = [path.name for path in cache.iterdir() if path.suffix in (".tmp", ".lock")]
        stats = jitdelegate.cache_stats(cache)
    total = Counter[str]()
    for end in ended:
        total.update(end.answer if isinstance(end.answer, dict) else {end.text: 1})
    bad = {name: count for name, count in total.items() if name not in ("hit", "miss")}
    good = f"{total['hit']} hits, {total['miss']} misses"
    print(f"{sum(total.values())} starts: {good}, {sum(bad.values())} bad {bad or ''}")
    print(
        f"at most {short_size(most)} in {looks} looks; the limit is {short_size(arguments.limit)}, "
        f"the largest program {short_size(largest)}; {stats['bytes']} bytes in the end, left over: {left or 'nothing'}"
    )
    is_within = most <= arguments.limit + largest and stats["bytes"] <= arguments.limit
    return int(bool(bad or left) or not is_within)


if __name__ == "__main__":
    sys.exit(main())
