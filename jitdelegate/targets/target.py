"""What a target is to the rest of the package. Nothing outside `targets/` and `runtime/` asks which one it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from jitdelegate.cache.key import Key, KeyParts
from jitdelegate.ir.graph import Graph
from jitdelegate.options import Options
from jitdelegate.passes.cost import Rates
from jitdelegate.program.program import Kernel, Launch, Program
from jitdelegate.runtime.io_binding import IOBinding

Trace = Callable[[str, Callable[[], str]], None]
"""Called with a stage's name and what makes its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """Code for a lowered graph.

    Attributes:
        origins: per kernel, the positions of the operators that it computes. All others are those of `Program`.
    """

    loader: str
    code: bytes
    weights: bytes
    entries: tuple[tuple[str, int], ...]
    kernels: tuple[Kernel, ...]
    origins: tuple[tuple[int, ...], ...]
    arena_bytes: int
    scratch_bytes: int = 0
    sync_bytes: int = 0
    launches: tuple[Launch, ...] = ()
    input_offsets: tuple[int, ...] = ()
    output_offsets: tuple[int, ...] = ()


class Device(Protocol):
    """What programs of a target run on; it need not be here, as long as nothing is to run.

    Attributes:
        target: the target.
        name: the maker's name, "" where reports need none.
        kind: what programs are compiled for, as "sm_90:132"; "" where it is always this machine's.
    """

    @property
    def target(self) -> Target: ...

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    def key_parts(self, options: Options) -> KeyParts:
        """The parts of a key that the device and its compilers decide.

        Raises:
            DeviceError: the device lacks what the options ask for.
        """

    def usable_key(self, key: Key, options: Options) -> tuple[Key, str]:
        """The key, without compilers where nothing that they make would run here; and why nothing can be compiled, ""
        where it can."""

    def alternatives(self, key: Key) -> Sequence[Key]:
        """Keys of programs that were compiled for similar devices and run on this one, the fittest first."""

    def difference(self, key: Key) -> str:
        """How a program of one of the `alternatives` differs from one that fits; a sentence."""

    def session(self, program: Program, options: Options, threads: int) -> IOBinding:
        """The program, ready to run.

        Raises:
            DeviceError: the device does not take it, or has no memory for it.
            ProgramError: the program is damaged.
        """


class Target(Protocol):
    """One way to compile and run graphs.

    Attributes:
        name: that of its row in the table.
        title: one of its devices, in a sentence.
        delegated_to, left_to: where delegated operators run and where the others do, in a warning.
        is_accelerator: whether its devices have memory of their own, kernels that are launched, and units that
            multiply in lower precision; what the cost model says of them is reasoned, not measured.
        bare_rows: up to so many output pixels, convolutions pad no channels.
    """

    name: str
    title: str
    delegated_to: str
    left_to: str
    is_accelerator: bool
    bare_rows: int

    def find_device(self, options: Options) -> Device:
        """The device of this machine that the options name.

        Raises:
            DeviceError: there is none.
        """

    def devices(self, text: str) -> tuple[Device, ...]:
        """Devices that need not be here, from "sm_80,sm_90:114" or "all".

        Raises:
            OptionError: the text names none.
        """

    def generate(self, graph: Graph, options: Options, key: Key, trace: Trace) -> Generated:
        """Code for a whole lowered graph, for the device that the key names.

        Raises:
            CompileError: the code would take too long to compile.
            DeviceError: the compilers are not installed, or the device lacks what was asked for.
        """

    def runs_in_litert(self, key: Key) -> bool:
        """Whether LiteRT's interpreter may call compiled partitions without Python in between."""

    def rates(self, loader: str) -> Rates:
        """What compiled code saves and costs in a program with this loader."""

    def channel_unit(self, features: str) -> int:
        """Output channels that a convolution computes together; other numbers are padded to a multiple."""
