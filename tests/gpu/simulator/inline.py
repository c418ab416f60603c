"""Calls of device functions are replaced by the function's body; what passes through `.param` becomes registers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.gpu.simulator.syntax import (
    Address,
    Function,
    Instruction,
    Negated,
    Operand,
    Register,
    Symbol,
    Vector,
)
from tests.gpu.simulator.types import TYPES

Place = tuple[int, str]  # a `.param` variable of a caller: the scope that declares it, its name


def inline_calls(kernel: Function, functions: dict[str, Function]) -> Function:
    """The kernel without calls, as far as the functions it calls are in the module; other calls stay as they are."""
    if not any(one.name == "call" for one in kernel.instructions):
        return kernel
    whole = replace(kernel, registers=list(kernel.registers), instructions=[], labels={}, variables={})
    _Inliner(whole, functions).add(kernel, _Frame(0, {}, None))
    return whole


@dataclass
class _Frame:
    """One inlined function: how its registers and scopes are renumbered, and what its parameters are."""

    first_register: int
    passed: dict[str, Place]
    end: str | None
    first_scope: int = 0
    depth: int = 0


class _Inliner:
    def __init__(self, whole: Function, functions: dict[str, Function]) -> None:
        self.whole, self.functions = whole, functions
        self.slots: dict[tuple[Place, int], int] = {}
        self.calls = 0

    def add(self, function: Function, frame: _Frame) -> None:
        """Appends a function's instructions and labels to the whole."""
        names: dict[int, list[tuple[int, str]]] = {}
        for (scope, name), place in function.labels.items():
            names.setdefault(place, []).append((scope + frame.first_scope, name))
        self.whole.variables.update(function.variables)
        self.whole.branch_targets.update(function.branch_targets)
        for place, one in enumerate(function.instructions):
            self._label(names.get(place, ()))
            self._add_instruction(function, frame, _renumbered(one, frame))
        self._label(names.get(len(function.instructions), ()))

    def _label(self, names: list[tuple[int, str]] | tuple[()]) -> None:
        self.whole.labels.update(dict.fromkeys(names, len(self.whole.instructions)))

    def _add_instruction(self, function: Function, frame: _Frame, one: Instruction) -> None:
        if one.name == "call" and one.predicate is None and self._callee(one):
            self._add_call(frame, one)
        elif one.name == "ret" and frame.end:
            scopes = (frame.first_scope,)
            jump = replace(one, parts=("bra",), operands=(Symbol(frame.end),), scopes=scopes)
            self.whole.instructions.append(jump)
        elif one.name in ("ld", "st") and "param" in one.parts and (place := self._place(function, frame, one)):
            self.whole.instructions.extend(self._moves(one, place))
        else:
            self.whole.instructions.append(one)

    def _place(self, function: Function, frame: _Frame, one: Instruction) -> Place | None:
        """The passed variable that an ld.param or st.param names; None for a parameter of the kernel."""
        address = one.operands[0 if one.name == "st" else 1]
        assert isinstance(address, Address)
        if not isinstance(address.base, Symbol):
            return None
        name = address.base.name
        if name in frame.passed:
            return frame.passed[name]
        return (one.scopes[-1], name) if name in function.variables else None

    def _moves(self, one: Instruction, place: Place) -> list[Instruction]:
        """An ld.param or st.param as moves from or to the registers that stand for the variable."""
        kind = next(part for part in one.parts[::-1] if part in TYPES)
        address, value = one.operands if one.name == "st" else one.operands[::-1]
        assert isinstance(address, Address)
        moves = []
        for number, item in enumerate(value.items if isinstance(value, Vector) else (value,)):
            passed = self._slot(place, address.offset + number * TYPES[kind].size, kind)
            operands: tuple[Operand, Operand] = (passed, item) if one.name == "st" else (item, passed)
            moves.append(replace(one, parts=("mov", kind), operands=operands))
        return moves

    def _slot(self, place: Place, offset: int, kind: str) -> Register:
        key = (place, offset)
        if key not in self.slots:
            self.slots[key] = self._new_registers([f"b{TYPES[kind].bits}"])
        return Register(self.slots[key])

    def _new_registers(self, kinds: list[str]) -> int:
        first = len(self.whole.registers)
        self.whole.registers.extend(kinds)
        return first

    def _callee(self, one: Instruction) -> Function | None:
        name = next((operand.name for operand in one.operands if isinstance(operand, Symbol)), "")
        return self.functions.get(name)

    def _add_call(self, caller: _Frame, one: Instruction) -> None:
        callee = self._callee(one)
        assert callee is not None
        if caller.depth > 16:
            self.whole.instructions.append(one)  # recursion: the call stays, and is an unknown instruction
            return
        self.calls += 1
        frame = _Frame(
            self._new_registers(callee.registers),
            _passed(callee, one),
            f"the end of call {self.calls}",
            1_000_000 * self.calls,
            caller.depth + 1,
        )
        self.add(callee, frame)
        self._label([(frame.first_scope, frame.end or "")])


def _passed(callee: Function, one: Instruction) -> dict[str, Place]:
    """Parameter and result names of the callee -> the caller's variables."""
    at = next(number for number, operand in enumerate(one.operands) if isinstance(operand, Symbol))
    given: list[Operand] = [
        item for operand in one.operands[:at] if isinstance(operand, Vector) for item in operand.items
    ]
    for operand in one.operands[at + 1 :]:
        given.extend(operand.items if isinstance(operand, Vector) else ())
    names = [variable.name for variable in (*callee.results, *callee.parameters)]
    return {
        name: (one.scopes[-1], item.name) for name, item in zip(names, given, strict=True) if isinstance(item, Symbol)
    }


def _renumbered(one: Instruction, frame: _Frame) -> Instruction:
    if not frame.first_register:
        return one
    predicate = None if one.predicate is None else _shifted(one.predicate, frame.first_register)
    assert predicate is None or isinstance(predicate, Register | Negated)
    return replace(
        one,
        operands=tuple(_shifted(operand, frame.first_register) for operand in one.operands),
        predicate=predicate,
        scopes=tuple(scope + frame.first_scope for scope in one.scopes),
    )


def _shifted(operand: Operand, by: int) -> Operand:
    if isinstance(operand, Register):
        return Register(operand.slot + by)
    if isinstance(operand, Negated):
        return Negated(Register(operand.operand.slot + by))
    if isinstance(operand, Vector):
        return Vector(tuple(_shifted(item, by) for item in operand.items))
    if isinstance(operand, Address):
        return Address(_shifted(operand.base, by), operand.offset)
    return operand
