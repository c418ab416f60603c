"""setp, set, selp, slct, testp."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.gpu.simulator.decode import Decoder, Get, Step, instruction, items, types_of
from tests.gpu.simulator.group import Group
from tests.gpu.simulator.rounding import flush_inputs
from tests.gpu.simulator.syntax import Instruction
from tests.gpu.simulator.types import TYPES, Array, Type

COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}
COMBINATIONS = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
PRED = TYPES["pred"]


def _comparison(name: str, kind: Type) -> Callable[[Array, Array], Array]:
    if name == "num":
        return lambda a, b: ~(np.isnan(a) | np.isnan(b))
    if name == "nan":
        return lambda a, b: np.isnan(a) | np.isnan(b)
    if kind.is_float and name == "ne":
        return lambda a, b: (a != b) & ~(np.isnan(a) | np.isnan(b))
    if kind.is_float and name.endswith("u"):
        ordered = COMPARISONS[name[:-1]]
        return lambda a, b: ordered(a, b) | np.isnan(a) | np.isnan(b)
    return COMPARISONS[name]


def _compared(decoder: Decoder, instruction: Instruction, kind: Type) -> Get:
    """Reads the outcome of the plain comparison."""
    a, b = (flush_inputs(decoder.get(operand, kind), instruction, kind) for operand in instruction.operands[1:3])
    compare = _comparison(instruction.parts[1], kind)
    return lambda group: compare(a(group), b(group))


def _combined(decoder: Decoder, instruction: Instruction) -> Callable[[Group, Array], Array]:
    """Combines an outcome with the further predicate of `setp.lt.and`, where there is one."""
    if len(instruction.operands) == 3:
        return lambda group, outcome: outcome
    combine, other = COMBINATIONS[instruction.parts[2]], decoder.condition(instruction.operands[3])
    return lambda group, outcome: combine(outcome, other(group))


@instruction("setp")
def _setp(decoder: Decoder, instruction: Instruction) -> Step:
    (kind,) = types_of(instruction)
    if kind.name.endswith("x2"):
        raise decoder.unknown(instruction)
    outcome, combine = _compared(decoder, instruction, kind), _combined(decoder, instruction)
    puts = [decoder.put(target, PRED) for target in items(instruction.operands[0])]
    if len(puts) == 1:
        (put,) = puts
        return lambda group: put(group, combine(group, outcome(group)))

    def both(group: Group) -> None:
        result = outcome(group)
        first, second = combine(group, result), combine(group, ~result)
        puts[0](group, first)
        puts[1](group, second)

    return both


@instruction("set")
def _set(decoder: Decoder, instruction: Instruction) -> Step:
    target, source = types_of(instruction)
    if source.name.endswith("x2"):
        return _set_pair(decoder, instruction, target, source)
    outcome, combine = _compared(decoder, instruction, source), _combined(decoder, instruction)
    put = decoder.put(instruction.operands[0], target)
    true = np.float32(1) if target.is_float else target.decode(np.array([(1 << target.bits) - 1], target.raw))[0]
    return lambda group: put(group, np.where(combine(group, outcome(group)), true, type(true)(0)))


def _set_pair(decoder: Decoder, instruction: Instruction, target: Type, source: Type) -> Step:
    outcome = _compared(decoder, instruction, source)
    if target.is_float:
        put = decoder.put(instruction.operands[0], target)
        return lambda group: put(group, outcome(group).astype(np.float32))
    put = decoder.put(instruction.operands[0], TYPES["b32"])
    return lambda group: put(group, np.where(outcome(group), 0xFFFF, 0).astype(np.uint16).view(np.uint32).reshape(-1))


@instruction("selp")
def _selp(decoder: Decoder, instruction: Instruction) -> Step:
    (kind,) = types_of(instruction)
    raw = TYPES[f"b{kind.bits}"]
    yes, no = (decoder.get_raw(operand, raw) for operand in instruction.operands[1:3])
    condition, put = decoder.condition(instruction.operands[3]), decoder.put(instruction.operands[0], raw)
    return lambda group: put(group, np.where(condition(group), yes(group), no(group)))


@instruction("slct")
def _slct(decoder: Decoder, instruction: Instruction) -> Step:
    kind, switch = types_of(instruction)
    raw = TYPES[f"b{kind.bits}"]
    yes, no = (decoder.get_raw(operand, raw) for operand in instruction.operands[1:3])
    value, put = decoder.get(instruction.operands[3], switch), decoder.put(instruction.operands[0], raw)
    return lambda group: put(group, np.where(value(group) >= 0, yes(group), no(group)))


@instruction("testp")
def _testp(decoder: Decoder, instruction: Instruction) -> Step:
    (kind,) = types_of(instruction)
    smallest = np.finfo(np.float32 if kind.size == 4 else np.float64).tiny
    tests: dict[str, Callable[[Array], Array]] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda x: ~np.isnan(x),
        "notanumber": np.isnan,
        "normal": lambda x: np.isfinite(x) & (np.abs(x) >= smallest),
        "subnormal": lambda x: (x != 0) & (np.abs(x) < smallest),
    }
    test = tests[instruction.parts[1]]
    value, put = decoder.get(instruction.operands[1], kind), decoder.put(instruction.operands[0], PRED)
    return lambda group: put(group, test(value(group)))
