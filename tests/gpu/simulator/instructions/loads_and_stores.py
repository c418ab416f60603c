"""ld and st: all spaces and vectors, and ld.param."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.gpu.simulator.decode import Decoder, Step, instruction, items, types_of
from tests.gpu.simulator.group import Group
from tests.gpu.simulator.spaces import Space
from tests.gpu.simulator.syntax import Address, Instruction, Symbol

GetSpace = Callable[[Group], Space]


def space_of(decoder: Decoder, instruction: Instruction) -> GetSpace:
    """How to find the memory an instruction addresses."""
    if "global" in instruction.parts:
        return lambda group: group.global_space
    if "shared" in instruction.parts:
        return lambda group: group.shared
    if "shared__cluster" in instruction.parts:
        return lambda group: group.shared.cluster
    raise decoder.unknown(instruction, "only global and shared memory are known")


@instruction("ld")
def _load(decoder: Decoder, instruction: Instruction) -> Step:
    (kind,) = types_of(instruction)
    target, address = instruction.operands[:2]
    if "param" in instruction.parts:
        return _load_parameter(decoder, instruction)
    where, space, size = decoder.address(address), space_of(decoder, instruction), kind.size
    puts = [decoder.put_active(item, kind) for item in items(target)]
    is_constant = "nc" in instruction.parts

    def step(group: Group) -> None:
        addresses = where(group)
        if is_constant:
            columns = group.global_space.load_constant(group, addresses, size, len(puts))
        else:
            columns = space(group).load(group, addresses, size, len(puts))
        for put, column in zip(puts, columns, strict=True):
            put(group, column)

    return step


def _load_parameter(decoder: Decoder, instruction: Instruction) -> Step:
    (kind,) = types_of(instruction)
    target, address = instruction.operands
    assert isinstance(address, Address)
    assert isinstance(address.base, Symbol)
    puts = [decoder.put(item, kind) for item in items(target)]
    start = decoder.parameters[address.base.name] + address.offset
    dtype, raw = kind.decode(np.zeros(1, kind.raw)).dtype, kind.raw

    def step(group: Group) -> None:
        for number, put in enumerate(puts):
            place = start + number * kind.size
            put(group, group.parameters[place : place + kind.size].view(raw).view(dtype))

    return step


@instruction("st")
def _store(decoder: Decoder, instruction: Instruction) -> Step:
    (kind,) = types_of(instruction)
    address, source = instruction.operands[:2]
    where, space = decoder.address(address), space_of(decoder, instruction)
    gets = [decoder.get_raw(item, kind) for item in items(source)]

    def step(group: Group) -> None:
        addresses = where(group)
        columns = [group.of_active(get(group)) for get in gets]
        space(group).store(group, addresses, kind.size, columns)

    return step
