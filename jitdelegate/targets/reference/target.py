"""Numpy as a target: the graph is the program, and a run evaluates it, slowly and clearly.

It says what the others have to compute, and is the smallest example of a target that runs on this machine's CPU.
"""

from __future__ import annotations

from jitdelegate.cache.key import KeyParts, this_machine
from jitdelegate.targets.cpu.target import CpuDevice, CpuTarget

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.cache.key import Key
    from jitdelegate.ir.graph import Graph
    from jitdelegate.options import Options
    from jitdelegate.program.program import Program
    from jitdelegate.runtime.io_binding import IOBinding
    from jitdelegate.targets.target import Generated, Trace

NAME = "reference"


class ReferenceDevice(CpuDevice):
    """Wherever numpy runs."""

    __slots__ = ()

    @property
    def target(self) -> ReferenceTarget:
        return TARGET

    def key_parts(self, options: Options) -> KeyParts:
        return KeyParts(NAME, "", NAME, this_machine(), toolchain="")

    def session(self, program: Program, options: Options, threads: int) -> IOBinding:
        from jitdelegate.targets.reference.session import ReferenceSession  # it brings numpy along

        return ReferenceSession(program)


class ReferenceTarget(CpuTarget):
    """The words and the rates are the CPU's, but for the name."""

    name = NAME
    title = "numpy"
    delegated_to = "the reference evaluator"

    def find_device(self, options: Options) -> ReferenceDevice:
        return ReferenceDevice()

    def generate(self, graph: Graph, options: Options, key: Key, trace: Trace) -> Generated:
        from jitdelegate.targets.reference.generate import generate

        return generate(graph, NAME)

    def runs_in_litert(self, key: Key) -> bool:
        return False


TARGET = ReferenceTarget()
