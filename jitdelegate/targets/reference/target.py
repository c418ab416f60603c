"""Numpy as a target: the program is the graph, and a run evaluates the graph, slowly but clearly.

It defines what other targets have to compute, and is the smallest example of a target that runs on this machine's CPU.
"""

from __future__ import annotations

from jitdelegate.runtime.cache.key import KeyParts, this_machine
from jitdelegate.targets.host import HostDevice, HostTarget

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.base.options import DelegateOptions
    from jitdelegate.ir.graph import Graph
    from jitdelegate.program.known_constants import Known
    from jitdelegate.program.program import Program
    from jitdelegate.runtime.cache.key import Key
    from jitdelegate.runtime.io_binding import IOBinding
    from jitdelegate.runtime.memory import Workspace
    from jitdelegate.targets.target import Generated, Trace

NAME = "reference"


class ReferenceDevice(HostDevice):
    """The CPU of this machine, wherever numpy runs."""

    __slots__ = ()

    @property
    def target(self) -> ReferenceTarget:
        return TARGET

    def key_parts(self, options: DelegateOptions) -> KeyParts:
        return KeyParts(NAME, "", NAME, this_machine(), toolchain="")

    def session(
        self, program: Program, options: DelegateOptions, threads: int, workspace: Workspace | None = None
    ) -> IOBinding:
        from jitdelegate.targets.reference.session import ReferenceSession  # it imports numpy

        return ReferenceSession(program)


class ReferenceTarget(HostTarget):
    """See `targets.target.Target`."""

    name = NAME
    title = "numpy"
    delegate_name = "reference delegate"
    delegated_to = "the reference evaluator"
    ignored_options = (*HostTarget.ignored_options, "cpu_features", "profile", "requests_in_flight")

    def find_device(self, options: DelegateOptions) -> ReferenceDevice:
        return ReferenceDevice()

    def generate(self, graph: Graph, options: DelegateOptions, key: Key, trace: Trace, known: Known) -> Generated:
        from jitdelegate.targets.reference.generate import generate

        return generate(graph, NAME)


TARGET = ReferenceTarget()
