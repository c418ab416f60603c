"""Numpy as a target: the graph is the program, and a run evaluates it, slowly and clearly.

It says what the others have to compute, and is the smallest example of a target.
"""

from __future__ import annotations

from jitdelegate.cache.key import KeyParts, this_machine
from jitdelegate.errors import OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from jitdelegate.cache.key import Key
    from jitdelegate.ir.graph import Graph
    from jitdelegate.options import Options
    from jitdelegate.passes.cost import Rates
    from jitdelegate.program.program import Program
    from jitdelegate.runtime.io_binding import IOBinding
    from jitdelegate.targets.target import Generated, Trace

NAME = "reference"


class ReferenceDevice:
    """Wherever numpy runs."""

    __slots__ = ()
    name = kind = ""

    @property
    def target(self) -> ReferenceTarget:
        return TARGET

    def key_parts(self, options: Options) -> KeyParts:
        return KeyParts(NAME, "", NAME, this_machine(), toolchain="")

    def usable_key(self, key: Key, options: Options) -> tuple[Key, str]:
        return key, ""

    def alternatives(self, key: Key) -> Sequence[Key]:
        return ()

    def difference(self, key: Key) -> str:
        return ""

    def session(self, program: Program, options: Options, threads: int) -> IOBinding:
        from jitdelegate.targets.reference.session import ReferenceSession  # it brings numpy along

        return ReferenceSession(program)


class ReferenceTarget:
    """See `targets.target.Target`."""

    name = NAME
    title = "numpy"
    delegated_to = "the reference evaluator"
    left_to = "LiteRT's CPU kernels"
    is_accelerator = False
    bare_rows = 0

    def find_device(self, options: Options) -> ReferenceDevice:
        return ReferenceDevice()

    def devices(self, text: str) -> tuple[ReferenceDevice, ...]:
        raise OptionError(f"target is 'reference:{text}', expected 'reference'")

    def generate(self, graph: Graph, options: Options, key: Key, trace: Trace) -> Generated:
        from jitdelegate.targets.reference.generate import generate

        return generate(graph, NAME)

    def runs_in_litert(self, key: Key) -> bool:
        return False

    def rates(self, loader: str) -> Rates:
        from jitdelegate.passes.cost import BESIDE, WHOLE

        return BESIDE if loader == "partitions" else WHOLE

    def channel_unit(self, features: str) -> int:
        return 1


TARGET = ReferenceTarget()
