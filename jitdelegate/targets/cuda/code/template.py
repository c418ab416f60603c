"""Templates, which are compiled once, and launches, which run templates on the tensors of a graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from xxhash import xxh3_64_hexdigest

from jitdelegate.targets.cuda.code.device_code import Code, Value
from jitdelegate.targets.cuda.code.sizes import Kind


@dataclass(frozen=True, eq=False)
class Template(ABC):
    """A kernel that is complete except for its sizes. Its code depends only on the fields of the subclass.

    Equal templates give equal code in every process that has the same sources: the text of a template (its class and
    fields) names its code in the cache. Fields are numbers, strings, enums, expressions and tuples of them. Templates
    are compared by their texts, not by their fields, since 0.0 equals -0.0 and 1 equals True.
    """

    family: ClassVar[str]
    """The template's name in reports: one or two words, joined by an underscore."""

    awaits_launches: ClassVar[bool] = False
    """Whether `write` calls `Code.await_launches` itself; otherwise the kernel begins with it."""
    constants: ClassVar[frozenset[int]] = frozenset()
    """Numbers of the parameters that are pointers to constants, which may be read before `Code.await_launches`."""

    @property
    @abstractmethod
    def threads(self) -> int:
        """Number of threads per block."""

    @property
    def written(self) -> frozenset[int]:
        """Numbers of the arguments, tuples flattened, that are pointers to memory which the kernel writes. The first
        one always is; further ones are never inputs, of which programs tell only by the first."""
        return frozenset({0})

    @property
    def uses_tensor_cores(self) -> bool:
        """Whether the code must contain tensor core instructions."""
        return False

    @property
    def min_blocks(self) -> int:
        """Number of blocks that must fit on a multiprocessor together; limits the registers of a thread."""
        return 1

    @property
    def cluster(self) -> int:
        """Number of neighbouring blocks along z that run together and read each other's shared memory."""
        return 1

    @property
    @abstractmethod
    def parameters(self) -> tuple[Kind, ...]:
        """The kinds of the kernel's parameters."""

    @abstractmethod
    def write(self, code: Code, *arguments: Any, **_: Any) -> None:
        """Writes the kernel. The arguments are Values, lists of Values for tuples, and records."""

    def thread(self, code: Code) -> Value:
        """The number of this thread in a grid of blocks along x."""
        return code.special("ctaid.x") * self.threads + code.special("tid.x")

    def grid(self, threads: int) -> tuple[int, int, int]:
        """A grid of blocks along x for this many threads."""
        return -(-threads // self.threads), 1, 1

    @cached_property
    def text(self) -> str:
        """The template's class and fields as text."""
        return repr(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Template) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    @property
    def symbol(self) -> str:
        """The kernel's name: the family and a digest of the text."""
        return f"{self.family}_{xxh3_64_hexdigest(self.text.encode())}"


@dataclass(frozen=True, slots=True)
class TensorPointer:
    """The start of the memory of tensor `index` (negative: an intermediate of the target)."""

    index: int


@dataclass(frozen=True, slots=True)
class WeightsPointer:
    """Constant memory, `offset` bytes from the start of the program's weights."""

    offset: int


@dataclass(frozen=True, slots=True)
class NoPointer:
    """A pointer argument that the kernel does not use."""


@dataclass(frozen=True, slots=True)
class StatusPointer:
    """The status word of a run, which is 0 unless the run is refused."""


Pointer = TensorPointer | WeightsPointer | NoPointer | StatusPointer
Argument = Pointer | int | float


@dataclass(frozen=True, slots=True)
class Launch:
    """One run of a template.

    Attributes:
        template: the template that runs.
        grid: blocks along x, y, z.
        arguments: one per parameter, tuples flattened; it writes to those that the template says.
        shared_bytes: dynamic shared memory.
        form: the kernel form that it computes, for reports.
        origin: the .tflite operators that it computes.
        cycles: estimated multiprocessor cycles from the start of the first block to the end of the last one.
        moved: what `cost.moving_cycles` estimates them by; () where the kernel's family has an estimate of its own.
    """

    template: Template
    grid: tuple[int, int, int]
    arguments: tuple[Argument, ...]
    shared_bytes: int = 0
    form: str = ""
    origin: tuple[int, ...] = ()
    cycles: float = 0.0
    moved: tuple[int, ...] = ()

    def accesses(self) -> Sequence[tuple[int, bool]]:
        """Each tensor that the launch accesses, and whether it writes it; the first one is written."""
        written = self.template.written
        pairs = enumerate(self.arguments)
        return [(argument.index, at in written) for at, argument in pairs if isinstance(argument, TensorPointer)]

    def tensors(self) -> Sequence[int]:
        """The tensors that the launch accesses; the first one is written."""
        return [index for index, _ in self.accesses()]
