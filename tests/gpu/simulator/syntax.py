"""PTX text as data: what `parse` returns and `decode` reads."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Register:
    """A declared register: `slot` counts within the kernel."""

    slot: int


@dataclass(frozen=True)
class Special:
    """A register the machine fills: `%tid.x`, without the percent sign."""

    name: str


@dataclass(frozen=True)
class Immediate:
    """A number as written: `16`, `-1`, `0x1F`, `0f3F800000`, `1.5`."""

    text: str


@dataclass(frozen=True)
class Symbol:
    """The name of a variable, parameter or label, plus bytes."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Sink:
    """`_`: the result is dropped."""


@dataclass(frozen=True)
class Negated:
    """`!%p1`."""

    operand: Register


@dataclass(frozen=True)
class Vector:
    """`{a, b}`."""

    items: tuple[Operand, ...]


@dataclass(frozen=True)
class Address:
    """`[base + offset]`, offset in bytes."""

    base: Operand
    offset: int = 0


Operand = Register | Special | Immediate | Symbol | Sink | Negated | Vector | Address


@dataclass(frozen=True)
class Instruction:
    """One statement: `@%p1 add.s32 %r1, %r2, 4;`. `scopes` names the enclosing braces, innermost last."""

    line: int
    text: str
    parts: tuple[str, ...]
    operands: tuple[Operand, ...]
    predicate: Register | Negated | None = None
    scopes: tuple[int, ...] = (0,)

    @property
    def name(self) -> str:
        """`add` of `add.s32`."""
        return self.parts[0]


@dataclass(frozen=True)
class Variable:
    """A `.shared`, `.global` or `.param` variable of `count` elements (0: extern, size unknown)."""

    name: str
    space: str
    type: str
    align: int
    count: int
    initial: tuple[str, ...] = ()


@dataclass
class Function:
    """A kernel. `labels` gives (scope, name) the index of the instruction it stands before."""

    name: str
    line: int
    parameters: tuple[Variable, ...]
    registers: list[str] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[tuple[int, str], int] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    max_threads: int | None = None
    cluster: int = 1  # blocks along z that share memory


@dataclass
class Text:
    """A whole PTX module, for GPUs from this architecture on: 90 of sm_90."""

    architecture: int
    functions: dict[str, Function]
    variables: dict[str, Variable]
