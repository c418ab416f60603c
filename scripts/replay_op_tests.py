"""Replay LiteRT's own op tests and compare the results with the stored ones.

    python -m scripts.replay_op_tests [FOLDER] [--only add 'strided*'] [--reasons] [--json]
    python -m scripts.replay_op_tests [FOLDER] --target simulator [--sample 30] [--seed 0]

Every case of the folder's archives is one of these: equal (delegated, with the right result), refused (it ran on
LiteRT, or LiteRT refuses it too), wrong, crashed. The simulator executes the PTX that a GPU would run. Floats have to
agree within 1e-4, relative or absolute, integers exactly, and quantized values within two steps. Where LiteRT's builtin
kernels disagree with the stored output they are the reference; the last column counts those cases. Cases run in forked
processes: one that kills its process is counted, and the next goes on. Exit status 1 if a case is wrong or crashed.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

import numpy as np

from scripts.in_child import Failed, in_child
from scripts.op_test_archive import OpTest, read_archives
from scripts.op_test_runs import TARGETS, Ran, Run, run_litert

DEFAULT_FOLDER = Path(__file__).resolve().parents[2] / "shared" / "op_tests"
BATCH = 25
SECONDS_EACH = 120
TOLERANCE = 1e-4
ROUNDING = 2.0**-20
"""Of an output's largest value: what sums of such numbers in another order may be off by where they cancel."""
STEPS = 2
"""By how much quantized values may differ."""
KINDS = ("equal", "refused", "wrong", "crashed")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one case.

    Attributes:
        op, number, parameters: the case.
        kind: one of KINDS.
        delegated: whether it ran wholly on the target.
        is_float: whether nothing in it is quantized and its outputs are float32.
        reasons: sentences; why it is not equal.
        litert_differs: whether LiteRT's builtin kernels disagree with the stored output.
    """

    op: str
    number: str
    parameters: str
    kind: str
    delegated: bool
    is_float: bool
    reasons: tuple[str, ...]
    litert_differs: bool


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 no case is wrong or crashed, 1 some case is, 2 wrong arguments."""
    arguments = _arguments(argv)
    found = []
    for verdict in replay(_tests(arguments), TARGETS[arguments.target]):
        found.append(verdict)
        _complain(verdict)
    print(json.dumps([asdict(each) for each in found], indent=2) if arguments.json else table(found))
    if arguments.reasons and not arguments.json:
        for title, floats in (("float cases", True), ("others", False)):
            print("\n".join(["", f"refused {title}:", *reasons([one for one in found if one.is_float == floats])]))
    return 1 if any(each.kind in ("wrong", "crashed") for each in found) else 0


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER)
    parser.add_argument("--target", choices=tuple(TARGETS), default="cpu")
    parser.add_argument("--only", nargs="+", metavar="OP", default=["*"], help="archives by name; * and ? match")
    parser.add_argument("--sample", type=int, help="so many cases, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--reasons", action="store_true", help="why cases are refused, and how many")
    parser.add_argument("--json", action="store_true", help="every case as data instead of the table")
    arguments = parser.parse_args(argv)
    if not any(arguments.folder.glob("*.zip")):
        parser.error(f"there are no archives in {arguments.folder}")
    return arguments


def _tests(arguments: argparse.Namespace) -> list[OpTest]:
    """The cases that were asked for."""
    only, number = arguments.only, arguments.sample
    tests = [test for test in read_archives(arguments.folder) if any(fnmatch(test.op, name) for name in only)]
    if number is None or number >= len(tests):
        return tests
    chosen = random.Random(arguments.seed).sample(range(len(tests)), number)
    return [tests[index] for index in sorted(chosen)]


def _complain(verdict: Verdict) -> None:
    if verdict.kind in ("wrong", "crashed"):
        case = f"{verdict.op} {verdict.number} ({verdict.parameters})"
        print(f"{case}: {verdict.kind}: {'; '.join(verdict.reasons)}", file=sys.stderr, flush=True)


def replay(tests: Sequence[OpTest], run: Run) -> Iterator[Verdict]:
    """One verdict per case, in order."""
    for start in range(0, len(tests), BATCH):
        batch = tests[start : start + BATCH]
        answers = in_child([partial(each, test) for test in batch for each in (run, run_litert)], SECONDS_EACH)
        for test in batch:
            yield judge(test, next(answers), next(answers))


def judge(test: OpTest, ours: Ran | Failed, litert: Ran | Failed) -> Verdict:
    """The verdict on what we and LiteRT made of a case."""
    reference = litert.outputs if isinstance(litert, Ran) and not litert.error else None
    litert_differs = reference is not None and bool(_differences(reference, test.stored, test.steps))
    expected = reference if reference is not None and litert_differs else test.stored
    kind, why = _kind(ours, expected, test.steps, refusable=reference is None)
    delegated = isinstance(ours, Ran) and ours.delegated
    return Verdict(test.op, test.number, test.parameters, kind, delegated, test.is_float, tuple(why), litert_differs)


def _kind(
    ours: Ran | Failed, expected: Sequence[np.ndarray], steps: Sequence[float], *, refusable: bool
) -> tuple[str, Sequence[str]]:
    if isinstance(ours, Failed):
        return "crashed", [ours.reason.strip().splitlines()[-1]]
    if ours.error:
        return ("refused", [f"LiteRT refuses it too: {ours.error}"]) if refusable else ("wrong", [ours.error])
    wrong = _differences(ours.outputs, expected, steps) if ours.outputs else []
    if wrong:
        return "wrong", wrong
    return ("equal", ()) if ours.delegated else ("refused", ours.reasons)


def _differences(found: Sequence[np.ndarray], expected: Sequence[np.ndarray], steps: Sequence[float]) -> list[str]:
    """One sentence per output that is not what was expected."""
    pairs = zip(found, expected, steps, strict=True)
    told = [difference(array, wanted, STEPS * step) for array, wanted, step in pairs]
    return [f"output {number} {sentence}" for number, sentence in enumerate(told) if sentence]


def difference(found: np.ndarray, expected: np.ndarray, limit: float = 0) -> str:
    """How an output differs from what was expected, "" where it does not.

    Args:
        limit: how far what was quantized may be off.
    """
    if found.shape != expected.shape:
        return f"has shape {list(found.shape)}, expected {list(expected.shape)}"
    wide = found.astype(np.float64) if found.dtype.kind == "f" else found
    if found.dtype.kind in "fc":
        largest = float(np.abs(expected[np.isfinite(expected)]).max(initial=0))
        close = np.isclose(wide, expected, TOLERANCE, max(TOLERANCE, ROUNDING * largest, limit), equal_nan=True)
    else:
        close = np.asarray(np.abs(found.astype(np.int64) - expected) <= limit) if limit else found == expected
    if close.all():
        return ""
    place = tuple(int(index) for index in np.argwhere(~close)[0])
    wrong = f"{np.count_nonzero(~close)} of {close.size} values"
    return f"has {wrong} wrong, at {list(place)} {found[place]}, expected {expected[place]}"


def table(found: Sequence[Verdict]) -> str:
    """One line per archive and one for all together."""
    groups: Mapping[str, list[Verdict]] = defaultdict(list)
    for verdict in found:
        groups[verdict.op].append(verdict)
    width = max(map(len, (*groups, "all")))
    titles = ("cases", "delegated", *KINDS, "LiteRT differs")
    lines = [f"{'op':<{width}}" + "".join(f"  {title}" for title in titles)]
    for op, verdicts in [*groups.items(), ("all", list(found))]:
        kinds = Counter(verdict.kind for verdict in verdicts)
        differing = sum(verdict.litert_differs for verdict in verdicts)
        delegated = sum(verdict.delegated for verdict in verdicts)
        counts = (len(verdicts), delegated, *(kinds[kind] for kind in KINDS), differing)
        cells = (f"  {count:>{len(title)}}" for count, title in zip(counts, titles, strict=True))
        lines.append(f"{op:<{width}}" + "".join(cells))
    floats, others = ([each.delegated for each in found if each.is_float == wanted] for wanted in (True, False))
    counted = f"{sum(floats)} of {len(floats)} float cases and {sum(others)} of {len(others)} others delegated"
    return "\n".join([*lines, counted])


def reasons(found: Sequence[Verdict]) -> Iterator[str]:
    """One line per reason for refusing, the most frequent first, with the ops; a case may have several reasons."""
    ops: Mapping[str, list[str]] = defaultdict(list)
    for verdict in found:
        if verdict.kind == "refused":
            for reason in dict.fromkeys(map(_general, verdict.reasons)):
                ops[reason].append(verdict.op)
    for reason, names in sorted(ops.items(), key=lambda item: (-len(item[1]), item[0])):
        counts = ", ".join(f"{op} {count}" for op, count in Counter(names).items())
        yield f"{len(names):>5}  {reason}  ({counts})"


def _general(reason: str) -> str:
    """The reason without the names and sizes of this one model."""
    return re.sub(r"\[[-\d, ]*\]", "[...]", re.sub(r"'[^']*'", "'...'", reason))


if __name__ == "__main__":
    sys.exit(main())
