"""LiteRT as a target: it takes no graph, so that every operator is left to LiteRT's own kernels."""

from __future__ import annotations

from jitdelegate.cache.key import KeyParts, this_machine
from jitdelegate.errors import DeviceError, OptionError

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


class LiteRTDevice:
    """Wherever LiteRT runs."""

    __slots__ = ()
    name = kind = ""

    @property
    def target(self) -> LiteRTTarget:
        return TARGET

    def key_parts(self, options: Options) -> KeyParts:
        return KeyParts("litert", "", "none", this_machine(), toolchain="")

    def usable_key(self, key: Key, options: Options) -> tuple[Key, str]:
        return key, ""

    def alternatives(self, key: Key) -> Sequence[Key]:
        return ()

    def difference(self, key: Key) -> str:
        return ""

    def session(self, program: Program, options: Options, threads: int) -> IOBinding:
        raise DeviceError("a model on LiteRT has no compiled program")


class LiteRTTarget:
    """See `targets.target.Target`; the words are those for a model of which nothing could be compiled."""

    name = "litert"
    title = "LiteRT"
    delegated_to = "the GPU"
    left_to = "the CPU"
    is_accelerator = False
    bare_rows = 0

    def find_device(self, options: Options) -> LiteRTDevice:
        return LiteRTDevice()

    def devices(self, text: str) -> tuple[LiteRTDevice, ...]:
        raise OptionError(f"target is 'litert:{text}', expected 'litert'")

    def generate(self, graph: Graph, options: Options, key: Key, trace: Trace) -> Generated:
        raise DeviceError("nothing is compiled for LiteRT")

    def runs_in_litert(self, key: Key) -> bool:
        return False

    def rates(self, loader: str) -> Rates:
        from jitdelegate.passes.cost import BESIDE

        return BESIDE

    def channel_unit(self, features: str) -> int:
        return 1


TARGET = LiteRTTarget()
