"""Plants bugs in the PTX of all families of CUDA kernels, and says which of them no test could see.

    python -m scripts.mutate_kernels RESULTS [--only TEXT] [--most 6] [--seed 0] [--seconds S]

RESULTS is a file with a line of JSON for each mutant. Mutants that are there are not tried again: a run that ended
early goes on, and after a change of kernels only those of changed PTX are tried.

Of each kind of bug (tests/gpu/mutate.py), each family gets up to `--most` mutants, in templates for GPUs with and
without asynchronous copies and dependent launches. Each runs in several graphs (scripts/kernel_uses.py). It is
- killed, where the simulator objects, in lockstep or with warps that take turns at random, or results differ by more
  than tests allow;
- equal, where its text proves that it computes the same (tests/gpu/equal_mutants.py);
- idle, where it makes no difference in any of its graphs: a comparison that always has the same answer, a guard that
  always holds, a place that no thread comes to. A kernel that traps there shows it, for these graphs: another one may
  kill the mutant;
- alive otherwise. Equal and idle ones do not count.

Exit status: 0 at least 95 % were killed, 1 fewer were, 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count, product
from pathlib import Path
from re import Match
from typing import Any

import numpy as np
from xxhash import xxh3_64_hexdigest

from jitdelegate.targets.cuda.code.template import Template
from scripts.kernel_uses import RUNS, TOLERANCES, Run, Setting, families
from tests.gpu.equal_mutants import proof
from tests.gpu.mutate import BOUND, MUTATIONS, Mutation, witness
from tests.gpu.simulator import SimulationError
from tests.targets import cuda_execute

LEAST_KILLED = 0.95
IDLE_RUNS = 2
"""Of `RUNS`, which show whether a mutant is idle: the order of warps does not matter for that."""


@dataclass(eq=False)
class Subject:
    """A template and some graphs that have it."""

    architecture: str
    template: Template
    settings: Sequence[Setting]
    known: dict[tuple[Setting, Run], Sequence[np.ndarray]] = field(default_factory=dict)

    @cached_property
    def text(self) -> str:
        """The PTX without a bug."""
        return cuda_execute.ptx_of(self.template, self.architecture)

    def right(self, setting: Setting, run: Run) -> Sequence[np.ndarray]:
        """What a graph gives without a bug."""
        if (setting, run) not in self.known:
            self.known[setting, run] = setting.run(run, {})
        return self.known[setting, run]

    def killed_by(self, mutant: str) -> str:
        """What the simulator objects to, or "wrong"; "" where nothing shows the bug."""
        for run, setting in product(RUNS, self.settings):
            right, near = self.right(setting, run), TOLERANCES[setting.precision]
            try:
                found = setting.run(run, {self.template: mutant})
            except SimulationError as error:
                return error.kind
            if not all(_are_near(one, other, near) for one, other in zip(found, right, strict=True)):
                return "wrong"
        return ""

    def is_idle(self, trap: str) -> bool:
        """Whether no graph comes to a trap."""
        try:
            for run, setting in product(RUNS[:IDLE_RUNS], self.settings):
                setting.run(run, {self.template: trap})
        except SimulationError:
            return False
        return True

    def outcome(self, kind: str, place: Match[str]) -> dict[str, str]:
        """What becomes of a bug, with its reason."""
        mutant = MUTATIONS[kind].planted(self.text, place)
        if by := self.killed_by(mutant):
            return {"outcome": "killed", "by": by}
        if reason := kind == BOUND and proof(self.text, place, mutant):
            return {"outcome": "equal", "by": reason}
        return {"outcome": "idle" if self.is_idle(witness(self.text, place, mutant)) else "alive", "by": ""}


def _are_near(one: np.ndarray, other: np.ndarray, near: float) -> bool:
    if one.dtype.kind != "f":
        return np.array_equal(one, other)
    return np.allclose(one, other, rtol=near, atol=near, equal_nan=True)


def sampled(
    family: str, known: Mapping[tuple[str, Template], list[Setting]], most: int, seed: int
) -> Iterator[tuple[str, Subject, Match[str]]]:
    """(kind, template, place) of at most `most` mutants of each kind in a family, the same ones first for any `most`.
    Templates of several graphs come first, of one architecture and then of another, with clusters and without."""
    draw = random.Random(f"{seed} {family}")
    subjects = [Subject(*key, settings) for key, settings in known.items()]
    draw.shuffle(subjects)
    subjects.sort(key=lambda one: -len(one.settings))
    turns = defaultdict[tuple[str, bool], Iterator[int]](count)
    subjects = sorted(subjects, key=lambda one: next(turns[one.architecture, one.template.cluster > 1]))
    for kind, mutation in MUTATIONS.items():
        for subject, place in _places(subjects, mutation, most, random.Random(f"{seed} {family} {kind}")):
            yield kind, subject, place


def _places(
    subjects: Sequence[Subject], mutation: Mutation, most: int, draw: random.Random
) -> list[tuple[Subject, Match[str]]]:
    """A place in each of the first templates that have one."""
    found = []
    for subject in subjects[: 4 * most]:
        if len(found) < most and (places := mutation.places(subject.text)):
            found.append((subject, draw.choice(places)))
    return found


def line_of(text: str, place: Match[str]) -> str:
    """The instruction of a place."""
    end = text.find("\n", place.end())
    return " ".join(text[place.start() : end].split())


def tables(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Markdown: killed of those that count, and equal and idle ones, by kind and by family."""
    for key in ("kind", "family"):
        yield f"| {key} | killed | of | equal | idle |\n| --- | ---: | ---: | ---: | ---: |"
        for name in [*dict.fromkeys(one[key] for one in results), ""]:
            counts = Counter(one["outcome"] for one in results if not name or one[key] == name)
            numbers = counts["killed"], counts["killed"] + counts["alive"], counts["equal"], counts["idle"]
            yield f"| {name or 'all'} | {' | '.join(map(str, numbers))} |"
        yield ""


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: see above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, metavar="RESULTS", help="a file of JSON lines, made or gone on with")
    parser.add_argument("--only", default="", metavar="TEXT", help="a part of the families' names")
    parser.add_argument("--most", type=int, default=6, help="mutants of each kind in each family (default: 6)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample of templates and places")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="plant no further bug after this time")
    arguments = parser.parse_args(argv)
    end = time.monotonic() + arguments.seconds
    old = arguments.results.read_text().splitlines() if arguments.results.exists() else []
    known = {one["mutant"]: one for one in map(json.loads, old)}
    results = []
    with arguments.results.open("a") as file:
        for family, used in families(arguments.only).items():
            for kind, subject, place in sampled(family, used, arguments.most, arguments.seed):
                text = MUTATIONS[kind].planted(subject.text, place)
                mutant = xxh3_64_hexdigest(f"{subject.architecture} {text}".encode())
                if mutant not in known:
                    if time.monotonic() > end:
                        continue
                    begun = time.process_time()
                    known[mutant] = {
                        "family": family,
                        "kind": kind,
                        **subject.outcome(kind, place),
                        "template": subject.template.symbol,
                        "architecture": subject.architecture,
                        "line": text.count("\n", 0, place.start()) + 1,
                        "place": line_of(subject.text, place),
                        "mutant": mutant,
                        "seconds": round(time.process_time() - begun, 2),
                    }
                    print(json.dumps(known[mutant]), file=file, flush=True)
                results.append(known[mutant])
            cuda_execute._module.cache_clear()
    print(*tables(results), sep="\n")
    for one in results:
        if one["outcome"] == "alive":
            print("alive: {family} {architecture} {kind}: {template}:{line}: {place}".format(**one))
    killed, alive = (sum(one["outcome"] == outcome for one in results) for outcome in ("killed", "alive"))
    return 0 if killed and killed >= LEAST_KILLED * (killed + alive) else 1


if __name__ == "__main__":
    sys.exit(main())
