"""Templates, which are compiled once, and launches, which run them on the tensors of a graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from xxhash import xxh3_64_hexdigest

Kind = str | tuple[str, int]
"""What a kernel takes: "pointer", "int32", "float32", or so many of them as one tuple."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A kernel for Numba.

    Attributes:
        kernel: the Python function.
        parameters: its parameters' kinds.
        blocks: how many of its blocks should fit on a multiprocessor; limits the registers.
    """

    kernel: Callable[..., None]
    parameters: tuple[Kind, ...]
    blocks: int = 1


@dataclass(frozen=True, eq=False)
class Template(ABC):
    """A kernel up to its sizes. The fields of a subclass are all that its code depends on.

    Equal templates give equal code, also in other processes and versions of the same sources: the text of a template
    (its class and fields) names its code in the cache. Fields are numbers, texts, enums, expressions and tuples of
    them. Templates are equal where their texts are, since 0.0 equals -0.0 and 1 equals True.
    """

    family: ClassVar[str]
    """What it is called in reports, a word or two joined by underscores."""

    @property
    @abstractmethod
    def threads(self) -> int:
        """Threads of a block."""

    @property
    def uses_tensor_cores(self) -> bool:
        """Whether its code must hold tensor core instructions."""
        return False

    @abstractmethod
    def define(self) -> Definition:
        """The kernel; imports Numba's front end."""

    @cached_property
    def text(self) -> str:
        """Its class and fields."""
        return repr(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Template) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    @property
    def symbol(self) -> str:
        """The kernel's name: the family, and a digest of everything else."""
        return f"{self.family}_{xxh3_64_hexdigest(self.text.encode())}"


@dataclass(frozen=True, slots=True)
class TensorPointer:
    """The memory of tensor `index` (negative: an intermediate of the target), `offset` bytes from its start."""

    index: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class WeightsPointer:
    """Constant memory, `offset` bytes from the start of the program's weights."""

    offset: int


@dataclass(frozen=True, slots=True)
class NoPointer:
    """A pointer argument that the kernel does not use."""


Pointer = TensorPointer | WeightsPointer | NoPointer
Argument = Pointer | int | float


@dataclass(frozen=True, slots=True)
class Launch:
    """One run of a template.

    Attributes:
        template: what runs.
        grid: blocks along x, y, z.
        arguments: one per parameter, tuples flattened; the first one is the pointer that it writes to.
        shared_bytes: dynamic shared memory.
        form: the kernel form that it computes, for reports.
        origin: the .tflite operators that it computes.
        cycles: of a multiprocessor that it is expected to take, from its first block's beginning to its last one's end.
    """

    template: Template
    grid: tuple[int, int, int]
    arguments: tuple[Argument, ...]
    shared_bytes: int = 0
    form: str = ""
    origin: tuple[int, ...] = ()
    cycles: float = 0.0

    def tensors(self) -> Sequence[int]:
        """The tensors that it touches, the one it writes first."""
        return [argument.index for argument in self.arguments if isinstance(argument, TensorPointer)]
