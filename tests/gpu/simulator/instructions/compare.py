"""setp and selp."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.gpu.simulator.decode import Decoder, Step, instruction, types_of
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
}


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


@instruction("setp")
def _setp(decoder: Decoder, instruction: Instruction) -> Step:
    (kind,) = types_of(instruction)
    target, *compared = instruction.operands
    if len(compared) > 2:
        raise decoder.unknown(instruction)
    a, b = (flush_inputs(decoder.get(operand, kind), instruction, kind) for operand in compared)
    put, compare = decoder.put(target, TYPES["pred"]), _comparison(instruction.parts[1], kind)
    return lambda group: put(group, compare(a(group), b(group)))


@instruction("selp")
def _selp(decoder: Decoder, instruction: Instruction) -> Step:
    (kind,) = types_of(instruction)
    raw = TYPES[f"b{kind.bits}"]
    yes, no = (decoder.get_raw(operand, raw) for operand in instruction.operands[1:3])
    condition, put = decoder.condition(instruction.operands[3]), decoder.put(instruction.operands[0], raw)
    return lambda group: put(group, np.where(condition(group), yes(group), no(group)))
