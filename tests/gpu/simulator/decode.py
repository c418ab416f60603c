"""Instructions become Python functions once, before anything runs."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from tests.gpu.simulator.errors import SimulationError
from tests.gpu.simulator.group import Group
from tests.gpu.simulator.syntax import (
    Address,
    Function,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)
from tests.gpu.simulator.types import REGISTER_DTYPES, SIGNED, TYPES, UNSIGNED, Array, Type

Step = Callable[[Group], None]
Get = Callable[[Group], Array]
Put = Callable[[Group, Array], None]
Builder = Callable[["Decoder", Instruction], Step]

BUILDERS: dict[str, Builder] = {}


def instruction(*names: str) -> Callable[[Builder], Builder]:
    """Registers what builds the steps of these instructions."""

    def register(builder: Builder) -> Builder:
        BUILDERS.update(dict.fromkeys(names, builder))
        return builder

    return register


def types_of(instruction: Instruction) -> list[Type]:
    """The types named in the instruction, in order: `cvt.rn.f16.f32` -> f16, f32."""
    return [TYPES[part] for part in instruction.parts[1:] if part in TYPES]


class Decoder:
    """What the steps of one kernel are built from: its registers, and the addresses of all symbols."""

    def __init__(self, function: Function, addresses: dict[str, int], parameters: dict[str, int]) -> None:
        self.function, self.addresses = function, addresses
        self.parameters = parameters  # name -> byte offset in the parameter buffer

    def unknown(self, instruction: Instruction, why: str = "the simulator does not know it") -> SimulationError:
        """The error for what is not supported."""
        return SimulationError(
            "unknown instruction", why, kernel=self.function.name, line=instruction.line, instruction=instruction.text
        )

    def step(self, instruction: Instruction) -> Step:
        """The function that executes the instruction; one that raises for an unknown instruction."""
        try:
            builder = BUILDERS.get(instruction.name)
            if builder is None:
                raise self.unknown(instruction)
            step = builder(self, instruction)
        except SimulationError as error:
            return _raiser(error)
        except (KeyError, IndexError, StopIteration, AssertionError, ValueError, TypeError) as error:
            return _raiser(self.unknown(instruction, f"the simulator cannot read this form of it ({error!r})"))
        if instruction.predicate is None:
            return step
        return _predicated(step, self.condition(instruction.predicate))

    # ------------------------------------------------------------------ operands
    def raw_dtype(self, register: Register) -> np.dtype[np.generic]:
        """How the bits of a register are stored."""
        return REGISTER_DTYPES[self.function.registers[register.slot]]

    def condition(self, operand: Operand) -> Get:
        """Reads a predicate, `!%p` too."""
        if isinstance(operand, Negated):
            slot = operand.operand.slot
            return lambda group: ~group.registers[slot]
        if isinstance(operand, Immediate):
            constant = np.array([int(operand.text, 0) != 0])
            return lambda group: constant
        assert isinstance(operand, Register)
        slot = operand.slot
        return lambda group: group.registers[slot]

    def get(self, operand: Operand, kind: Type) -> Get:
        """Reads an operand as numbers of a type: one a lane, or one for all."""
        if kind.name == "pred":
            return self.condition(operand)
        raw, decode = self.get_raw(operand, kind), kind.decode
        if kind.name[0] in "ub" and "f" not in kind.name:
            return raw
        if isinstance(operand, Immediate | Symbol):
            constant = decode(raw(None))  # type: ignore[arg-type]
            return lambda group: constant
        return lambda group: decode(raw(group))

    def get_raw(self, operand: Operand, kind: Type) -> Get:
        """Reads an operand as bits of the width of a type."""
        if isinstance(operand, Register):
            return self._get_register(operand, kind)
        if isinstance(operand, Special):
            return _special(operand.name, kind)
        constant = self._constant(operand, kind)
        return lambda group: constant

    def _get_register(self, register: Register, kind: Type) -> Get:
        slot, dtype = register.slot, kind.raw
        if self.raw_dtype(register) == dtype:
            return lambda group: group.registers[slot]
        return lambda group: group.registers[slot].astype(dtype)

    def _constant(self, operand: Operand, kind: Type) -> Array:
        if isinstance(operand, Symbol):
            value = self.addresses[operand.name] + operand.offset
            return np.array([value & ((1 << kind.bits) - 1)], kind.raw)
        assert isinstance(operand, Immediate)
        return immediate(operand.text, kind)

    def address(self, operand: Operand) -> Get:
        """Reads `[base + offset]` as int64, one per active lane."""
        assert isinstance(operand, Address)
        offset = np.int64(operand.offset)
        if isinstance(operand.base, Register):
            slot = operand.base.slot
            if not offset:
                return lambda group: group.of_active(group.registers[slot]).astype(np.int64)
            return lambda group: group.of_active(group.registers[slot]).astype(np.int64) + offset
        if isinstance(operand.base, Immediate):
            constant = np.array([int(operand.base.text, 0) + offset], np.int64)
        else:
            assert isinstance(operand.base, Symbol)
            constant = np.array([self.addresses[operand.base.name] + operand.base.offset + offset], np.int64)
        return lambda group: group.of_active(constant)

    def put(self, operand: Operand, kind: Type) -> Put:
        """Writes numbers of a type to a register of the active lanes, sign or zero extended."""
        if isinstance(operand, Sink):
            return lambda group, values: None
        assert isinstance(operand, Register), operand
        slot, widen = operand.slot, self.widen(operand, kind)
        encode = kind.encode
        if widen is None:
            return lambda group, values: group.put(slot, encode(values))
        return lambda group, values: group.put(slot, widen(encode(values)))

    def widen(self, register: Register, kind: Type) -> Callable[[Array], Array] | None:
        """How raw bits of a type become the bits of a register: None where they fit as they are."""
        target = self.raw_dtype(register)
        if target == kind.raw:
            return None
        assert target.itemsize > kind.size, "the register is narrower than the result"
        if kind.is_signed:
            narrow, wide = SIGNED[kind.size], SIGNED[target.itemsize]
            return lambda raw: raw.view(narrow).astype(wide).view(target)
        return lambda raw: raw.astype(target)

    def put_active(self, operand: Operand, kind: Type) -> Put:
        """Writes raw bits, one per active lane, to a register, sign or zero extended."""
        if isinstance(operand, Sink):
            return lambda group, values: None
        assert isinstance(operand, Register), operand
        slot, widen = operand.slot, self.widen(operand, kind)
        if widen is None:
            return lambda group, values: group.put_active(slot, values)
        return lambda group, values: group.put_active(slot, widen(values))


def items(operand: Operand) -> tuple[Operand, ...]:
    """The members of `{a, b}`, or the operand alone."""
    return operand.items if isinstance(operand, Vector) else (operand,)


def immediate(text: str, kind: Type) -> Array:
    """A number in the text as raw bits, one element."""
    if re.match(r"0[fF]", text):
        single = np.array([int(text[2:], 16)], np.uint32)
        return single if kind.size == 4 else kind.encode(single.view(np.float32))
    if re.match(r"0[dD]", text):
        double = np.array([int(text[2:], 16)], np.uint64)
        return double if kind.size == 8 else kind.encode(double.view(np.float64))
    if "." in text:
        return kind.encode(np.array([float(text)]))
    number = int(text.rstrip("U"), 0)
    if kind.name == "pred":
        return np.array([number != 0])
    return np.array([number & ((1 << kind.bits) - 1)], kind.raw)


def _special(name: str, kind: Type) -> Get:
    base, _, axis = name.partition(".")
    axis_number = "xyz".index(axis) if axis else 0
    dtype = kind.raw
    by_name: dict[str, Get] = {
        "tid": lambda group: group.placement.thread_index[axis_number],
        "ctaid": lambda group: group.placement.block_index[axis_number],
        "nctaid": lambda group: np.array([group.placement.grid[axis_number]]),
    }
    read = by_name[base]
    return lambda group: read(group).astype(dtype)


def _raiser(error: SimulationError) -> Step:
    def step(group: Group) -> None:
        raise error

    return step


def _predicated(step: Step, condition: Get) -> Step:
    def guarded(group: Group) -> None:
        outer = group.active
        inside, _ = outer.split(condition(group))
        if inside is outer:
            step(group)
        elif inside is not None:
            group.active = inside
            try:
                step(group)
            finally:
                if group.active is inside:
                    group.active = outer

    return guarded


def raw_type(size: int) -> Type:
    """The untyped bits of a width in bytes."""
    assert size in UNSIGNED
    return TYPES[f"b{8 * size}"]
