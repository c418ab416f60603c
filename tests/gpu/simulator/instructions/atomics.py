"""atom and red: one lane after another, in lane order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.gpu.simulator.decode import Decoder, Step, instruction, types_of
from tests.gpu.simulator.group import Group
from tests.gpu.simulator.instructions.loads_and_stores import space_of
from tests.gpu.simulator.syntax import Instruction
from tests.gpu.simulator.types import Array, Type

OPERATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "exch": lambda old, new: new,
    "inc": lambda old, limit: np.where(old >= limit, 0, old + 1),
    "dec": lambda old, limit: np.where((old == 0) | (old > limit), limit, old - 1),
}


@instruction("atom", "red")
def _atomic(decoder: Decoder, instruction: Instruction) -> Step:
    kind = types_of(instruction)[-1]
    operands = instruction.operands if instruction.name == "red" else instruction.operands[1:]
    if "cas" in instruction.parts:
        wanted, value = (decoder.get_raw(operand, kind) for operand in operands[1:3])
    else:
        wanted, value = None, decoder.get_raw(operands[1], kind)
    put = decoder.put_active(instruction.operands[0], kind) if instruction.name == "atom" else None
    where, space, change = decoder.address(operands[0]), space_of(instruction), _change(instruction, kind)

    def step(group: Group) -> None:
        addresses = where(group)
        memory, places = space(group, addresses).update(group, addresses, kind.size)
        expected = None if wanted is None else group.of_active(wanted(group))
        old = _exchange(memory, places, group.of_active(value(group)), expected, change)
        if put:
            put(group, old)

    return step


def _change(instruction: Instruction, kind: Type) -> Callable[[Array, Array], Array]:
    """(old bits, operand bits) -> new bits."""
    if "cas" in instruction.parts:
        return lambda old, new: new
    operation = OPERATIONS[next(part for part in instruction.parts if part in OPERATIONS)]
    return lambda old, new: kind.encode(np.asarray(operation(kind.decode(old), kind.decode(new))))


def _exchange(
    memory: Array, places: Array, new: Array, wanted: Array | None, change: Callable[[Array, Array], Array]
) -> Array:
    """Updates memory lane by lane, where it holds what is wanted; what each lane found there."""
    if wanted is None and np.unique(places).size == places.size:
        old = memory[places]
        memory[places] = change(old, new)
        return old
    found = np.empty_like(new)
    for lane in range(places.size):
        place, one = places[lane], slice(lane, lane + 1)
        found[lane] = memory[place]
        if wanted is None or found[lane] == wanted[lane]:
            memory[place] = change(found[one], new[one])[0]
    return found
