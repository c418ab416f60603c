"""The target protocol. Code outside `targets/` and `runtime/` uses targets only through it, not by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

from jitdelegate.base.options import DelegateOptions
from jitdelegate.ir.graph import Graph
from jitdelegate.passes.cost import Rates
from jitdelegate.program.program import Kernel, Launch, Program
from jitdelegate.runtime.cache.key import Key, KeyParts
from jitdelegate.runtime.io_binding import IOBinding
from jitdelegate.runtime.memory import Workspace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.program.known_constants import Known


Trace = Callable[[str, Callable[[], str]], None]
"""Called with a stage's name and a function that makes its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """Code for a lowered graph.

    Attributes:
        origins: per kernel, the positions of the operators that it computes. Other fields are as in `Program`.
        tuned: the digest of the tuned kernels in it; "" where nothing is tuned.
    """

    loader: str
    code: bytes
    weights: bytearray
    entries: tuple[tuple[str, int], ...]
    kernels: tuple[Kernel, ...]
    origins: tuple[tuple[int, ...], ...]
    arena_bytes: int
    scratch_bytes: int = 0
    sync_bytes: int = 0
    launches: tuple[Launch, ...] = ()
    input_offsets: tuple[int, ...] = ()
    output_offsets: tuple[int, ...] = ()
    large_constants: tuple[int, ...] = ()
    shared: tuple[tuple[int, int, int, int], ...] = ()
    named_constants: tuple[tuple[int, int, int, int], ...] = ()
    refusals: tuple[str, ...] = ()
    tuned: str = ""

    def of_program(self) -> dict[str, Any]:
        """The fields that a Program has too, by name."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("origins", "tuned")}


class Device(Protocol):
    """A device that a target's programs run on. It may be on another machine if programs are only compiled for it.

    Attributes:
        target: the target.
        name: the manufacturer's name for the device; "" if reports need none.
        kind: what programs are compiled for, such as "sm_90:132"; "" if it is always this machine's device.
        note: a sentence about programs that are not as asked for; "" where all are.
    """

    @property
    def target(self) -> Target: ...

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def note(self) -> str: ...

    def key_parts(self, options: DelegateOptions) -> KeyParts:
        """The parts of a key that depend on the device and its compilers.

        Raises:
            DeviceError: the device lacks what the options ask for.
            OptionError: a file that an option names cannot be read.
        """

    def usable_key(self, key: Key, options: DelegateOptions) -> tuple[Key, str]:
        """(key, reason): the key lacks compilers if their code would not run here. The reason says why nothing can be
        compiled; "" if compiling is possible."""

    def precisions(self, key: Key) -> Sequence[tuple[str, Key]]:
        """The precisions among which a key leaves the choice to a measurement, the exact one first, with keys of
        programs to measure; () where nothing is left to choose."""

    def alternatives(self, key: Key) -> Sequence[Key]:
        """Keys of programs that were compiled for similar devices and also run on this one, the best first."""

    def difference(self, key: Key) -> str:
        """One sentence about how the program of one of the `alternatives` differs from a program for this device."""

    def session(
        self, program: Program, options: DelegateOptions, threads: int, workspace: Workspace | None = None
    ) -> IOBinding:
        """The program, ready to run.

        Args:
            workspace: host memory to compute in, for a partition's session; others use it between its runs.
        Raises:
            DeviceError: the device refuses the program, or is out of memory.
            ProgramError: the program is damaged.
        """


class Target(Protocol):
    """One way to compile and run graphs.

    Attributes:
        name: name of its row in the table.
        title: noun for one of its devices, for sentences.
        delegate_name: what LiteRT would call a delegate to its devices, for warnings.
        delegated_to, left_to: where delegated operators and the others run, for warnings.
        is_accelerator: whether its devices have memory of their own, launch kernels, and multiply in many precisions;
            the cost model's numbers for them are estimated, not measured.
        bare_rows: largest number of output pixels up to which convolutions pad no channels.
    """

    name: str
    title: str
    delegate_name: str
    delegated_to: str
    left_to: str
    is_accelerator: bool
    bare_rows: int

    def find_device(self, options: DelegateOptions) -> Device:
        """The device of this machine that the options name.

        Raises:
            DeviceError: there is no such device, or the target "auto" does better without it.
        """

    def devices(self, text: str) -> tuple[Device, ...]:
        """Devices to compile for, on this machine or not, from a text like "sm_80,sm_90:114" or "all".

        Raises:
            OptionError: the text names no device of this target.
        """

    def generate(self, graph: Graph, options: DelegateOptions, key: Key, trace: Trace, known: Known) -> Generated:
        """Code for a whole lowered graph, for the device that the key names.

        Args:
            known: constants that other programs of the model store, which the program need not make.

        Raises:
            CompileError: the code would take too long to compile.
            DeviceError: the compilers are not installed, or the device lacks a feature that the options ask for.
        """

    def ignored(self, options: DelegateOptions) -> tuple[str, ...]:
        """Names of the options that change nothing on its devices, beside these options."""

    def refusal(self, key: Key) -> str:
        """Why nothing is compiled for the device that the key names; "" for a target that compiles."""

    def runs_in_litert(self, key: Key) -> bool:
        """Whether LiteRT's interpreter may call compiled partitions without Python in between."""

    def rates(self, loader: str, features: str) -> Rates:
        """What compiled code for these features saves and costs in a program with this loader."""

    def multiplies_bytes(self, features: str) -> bool:
        """Whether products of bytes take much less time than those of floats."""

    def channel_unit(self, features: str) -> int:
        """Number of output channels that a convolution computes together; other numbers are padded to a multiple."""
