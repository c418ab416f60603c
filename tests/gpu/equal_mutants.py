"""Proves that a comparison may be one off: what follows selects the same values then, in any order of its operands.

What a basic block makes of a comparison by further comparisons, logic and selections depends on the order of their
operands only, so that it is tried for all orders of so many small numbers, NaN among them. Zeros of both signs count as
equal.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

MOST_OPERANDS = 6
_INSTRUCTION = re.compile(r"(@!?%\w+\s+)?([a-z][\w.:]*)\s+([^;]*);")
_COMMENT = re.compile("//.*")
_BORDER = re.compile(r"\$\w+:|\bbra\b|\bret\b|\bbar\b")
_WITHOUT_TARGET = ("st.", "red.", "cp.", "stmatrix.")
_ORDERED = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal}
_LOGIC = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor, "not": np.logical_not}
_LEAST = {"min": np.fmin, "max": np.fmax}
Values = Mapping[str, np.ndarray]


class Instruction(NamedTuple):
    """One that computes `target` of `operands`; `compute` is None where only the order of numbers does not tell it."""

    name: str
    target: str
    operands: tuple[str, ...]
    compute: Callable[..., np.ndarray] | None


def proof(text: str, place: re.Match[str], mutant: str) -> str:
    """The reason why the comparison at a place has no effect on what the mutant computes; "" where it may have one."""
    text, mutant = (_COMMENT.sub(lambda match: " " * len(match.group()), one) for one in (text, mutant))
    start = max((border.end() for border in _BORDER.finditer(text, 0, place.start())), default=0)
    end = min((border.start() for border in _BORDER.finditer(text, place.end())), default=len(text))
    before, after = (list(_instructions(text[slice(*part)])) for part in ((start, place.start()), (place.end(), end)))
    right, wrong = _read(place.group()), _read(mutant[place.start() : place.end() + len(mutant) - len(text)])
    block, dependent = [*before, right, *after], _dependent(right, after)
    for count in range(1, len(dependent) + 1):
        steps = _with_needed([right, *dependent[:count]], block)
        written = Counter(one.target for one in block[block.index(steps[0]) :])
        names = {name for step in steps for name in step.operands}
        is_written_once = all(written[name] == (name in _targets(steps)) for name in (*names, *_targets(steps)))
        if is_written_once and (operands := _hide(steps, right, wrong, text)):
            return f"for all orders of {operands} operands"
    return ""


def _targets(steps: Sequence[Instruction]) -> set[str]:
    return {step.target for step in steps}


def _hide(steps: Sequence[Instruction], right: Instruction, wrong: Instruction, text: str) -> int:
    """The number of operands of `steps` if they compute the same with `wrong` in the place of `right`, as far as it is
    used elsewhere; 0 if not."""
    free = sorted({name for step in steps for name in step.operands} - _targets(steps))
    kinds = {step.name.split(".")[2][0] for step in steps if step.name.startswith("setp.")}
    is_read_first = any(set(step.operands) & _targets(steps[at:]) for at, step in enumerate(steps))
    if len(free) > MOST_OPERANDS or {"s", "u"} <= kinds or is_read_first:
        return 0
    numbers = [*range(sum(not name.startswith("%p") for name in free)), np.nan]
    ranges = [(False, True) if name.startswith("%p") else numbers for name in free]
    given = dict(zip(free, np.meshgrid(*ranges, indexing="ij"), strict=True))
    found, other = (_computed(chosen, given) for chosen in (steps, [wrong if one is right else one for one in steps]))
    changed = {name for name in _targets(steps) if not np.array_equal(found[name], other[name], equal_nan=True)}
    own = {step[:3] for step in steps}
    is_used = any(changed & set(one.operands) and one[:3] not in own for one in _instructions(text))
    return 0 if is_used else len(free)


def _instructions(text: str) -> Iterator[Instruction]:
    for match in _INSTRUCTION.finditer(text):
        yield _read(match.group())


def _read(text: str) -> Instruction:
    match = _INSTRUCTION.match(text)
    assert match
    guard, name, operands = match.groups()
    target, *rest = re.findall(r"[%\w.+-]+", operands) or [""]
    if guard or name.startswith(_WITHOUT_TARGET):
        return Instruction(name, "", (*re.findall(r"%\w+", guard or ""), target, *rest), None)
    return Instruction(name, target, tuple(rest), _meaning(name))


def _meaning(name: str) -> Callable[..., np.ndarray] | None:
    first, *parts = name.split(".")
    if first == "setp" and parts[0] in _ORDERED:
        return _ORDERED[parts[0]]
    if first == "setp" and parts[0] == "ne":
        return lambda a, b: (a < b) | (a > b)
    if first in _LOGIC and parts == ["pred"]:
        return _LOGIC[first]
    if first in _LEAST and parts[0][0] in "suf":
        return _LEAST[first]
    if first == "selp":
        return lambda a, b, chosen: np.where(chosen, a, b)
    return None


def _dependent(right: Instruction, after: Sequence[Instruction]) -> list[Instruction]:
    """The instructions of the block that depend on the comparison, as far as they compute by order only."""
    known, steps = {right.target}, []
    for one in after:
        if known & set(one.operands) and one.compute:
            known.add(one.target)
            steps.append(one)
    return steps


def _with_needed(steps: Sequence[Instruction], block: Sequence[Instruction]) -> list[Instruction]:
    """The steps and what computes their truth values, in order."""
    wanted, found = {name for step in steps for name in step.operands}, []
    for one in reversed(block):
        if one in steps or (one.target in wanted and one.target.startswith("%p") and one.compute):
            found.insert(0, one)
            wanted |= set(one.operands)
    return found


def _computed(steps: Sequence[Instruction], given: Values) -> Values:
    values = dict(given)
    for step in steps:
        assert step.compute
        values[step.target] = step.compute(*(values[one] for one in step.operands))
    return values
