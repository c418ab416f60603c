"""mov with its packing forms, cvta and trap."""

from __future__ import annotations

import numpy as np

from tests.gpu.simulator.decode import Decoder, Get, Put, Step, instruction, raw_type, types_of
from tests.gpu.simulator.errors import Fault
from tests.gpu.simulator.group import Group
from tests.gpu.simulator.syntax import Instruction, Vector
from tests.gpu.simulator.types import TYPES, UNSIGNED

U64 = TYPES["u64"]


@instruction("mov")
def _mov(decoder: Decoder, instruction: Instruction) -> Step:
    (kind,) = types_of(instruction)
    target, source = instruction.operands
    if isinstance(target, Vector):
        piece = raw_type(kind.size // len(target.items))
        puts = [decoder.put(item, piece) for item in target.items]
        return _unpack(decoder.get_raw(source, kind), puts, piece.size)
    if isinstance(source, Vector):
        piece = raw_type(kind.size // len(source.items))
        gets = [decoder.get_raw(item, piece) for item in source.items]
        return _pack(gets, decoder.put(target, raw_type(kind.size)), kind.size)
    if kind.name == "pred":
        get, put = decoder.condition(source), decoder.put(target, kind)
    else:
        get, put = decoder.get_raw(source, kind), decoder.put(target, raw_type(kind.size))
    return lambda group: put(group, get(group))


def _unpack(get: Get, puts: list[Put], size: int) -> Step:
    def step(group: Group) -> None:
        pieces = np.ascontiguousarray(get(group)).view(UNSIGNED[size]).reshape(-1, len(puts))
        for number, put in enumerate(puts):
            put(group, np.ascontiguousarray(pieces[:, number]))

    return step


def _pack(gets: list[Get], put: Put, size: int) -> Step:
    def step(group: Group) -> None:
        pieces = np.broadcast_arrays(*(get(group) for get in gets))
        put(group, np.stack(pieces, axis=1).view(UNSIGNED[size]).reshape(-1))

    return step


@instruction("cvta")
def _cvta(decoder: Decoder, instruction: Instruction) -> Step:
    if instruction.parts[1:3] != ("to", "global"):
        raise decoder.unknown(instruction)
    get, put = decoder.get_raw(instruction.operands[1], U64), decoder.put(instruction.operands[0], U64)
    return lambda group: put(group, get(group))


@instruction("trap")
def _trap(decoder: Decoder, instruction: Instruction) -> Step:
    def step(group: Group) -> None:
        raise Fault("trap", "the kernel stops itself", group.active.lanes[0])

    return step
