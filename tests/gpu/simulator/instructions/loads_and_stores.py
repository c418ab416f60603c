"""ld and st: all spaces, vectors, and ld.param."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.gpu.simulator.decode import Decoder, Step, instruction, items, raw_type, types_of
from tests.gpu.simulator.group import Group
from tests.gpu.simulator.spaces import Space, generic_space
from tests.gpu.simulator.syntax import Address, Instruction, Register, Symbol
from tests.gpu.simulator.types import Array

GetSpace = Callable[[Group, Array], Space]


def space_of(instruction: Instruction) -> GetSpace:
    """How to find the memory an instruction addresses."""
    parts = set(instruction.parts)
    if parts & {"global", "const"}:
        return lambda group, addresses: group.global_space
    if parts & {"shared", "shared__cta"}:
        return lambda group, addresses: group.shared
    if "shared__cluster" in parts:
        return lambda group, addresses: group.shared.cluster
    if "local" in parts:
        return lambda group, addresses: group.local
    return generic_space


@instruction("ld", "ldu")
def _load(decoder: Decoder, instruction: Instruction) -> Step:
    (kind,) = types_of(instruction)
    target, address = instruction.operands[:2]
    if "param" in instruction.parts:
        return _load_parameter(decoder, instruction)
    where, space, size = decoder.address(address), space_of(instruction), kind.size
    puts = [decoder.put_active(item, kind) for item in items(target)]
    is_constant = "nc" in instruction.parts

    def step(group: Group) -> None:
        addresses = where(group)
        if is_constant:
            columns = group.global_space.load_constant(group, addresses, size, len(puts))
        else:
            columns = space(group, addresses).load(group, addresses, size, len(puts))
        for put, column in zip(puts, columns, strict=True):
            put(group, column)

    return step


def _load_parameter(decoder: Decoder, instruction: Instruction) -> Step:
    (kind,) = types_of(instruction)
    target, address = instruction.operands
    assert isinstance(address, Address)
    puts = [decoder.put(item, kind) for item in items(target)]
    if isinstance(address.base, Symbol):
        start = decoder.parameters[address.base.name] + address.offset
        get_start = None
    else:
        assert isinstance(address.base, Register)
        start, get_start = address.offset, decoder.get_raw(address.base, raw_type(8))
    dtype, raw = kind.decode(np.zeros(1, kind.raw)).dtype, kind.raw

    def step(group: Group) -> None:
        first = start if get_start is None else start + int(get_start(group)[0])
        for number, put in enumerate(puts):
            place = first + number * kind.size
            put(group, group.parameters[place : place + kind.size].view(raw).view(dtype))

    return step


@instruction("st")
def _store(decoder: Decoder, instruction: Instruction) -> Step:
    (kind,) = types_of(instruction)
    address, source = instruction.operands[:2]
    if "param" in instruction.parts:
        raise decoder.unknown(instruction)
    where, space = decoder.address(address), space_of(instruction)
    gets = [decoder.get_raw(item, kind) for item in items(source)]

    def step(group: Group) -> None:
        addresses = where(group)
        columns = [group.of_active(get(group)) for get in gets]
        space(group, addresses).store(group, addresses, kind.size, columns)

    return step
