"""LiteRT as a target: it takes no graph, so that every operator is left to LiteRT's own kernels on this CPU."""

from __future__ import annotations

from jitdelegate.errors import DeviceError
from jitdelegate.runtime.cache.key import KeyParts, this_machine
from jitdelegate.targets.host import SLOWER, HostDevice, HostTarget

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


NAME = "litert"
CHOSEN = "chosen"
"""Part of the key of a model that "auto" leaves to LiteRT; its program gives another reason."""


class LiteRTDevice(HostDevice):
    """Wherever LiteRT runs."""

    __slots__ = ()

    @property
    def target(self) -> LiteRTTarget:
        return TARGET

    def key_parts(self, options: DelegateOptions) -> KeyParts:
        chosen = () if options.target == NAME else ((CHOSEN, options.target),)
        return KeyParts(NAME, "", "none", this_machine(), toolchain="", options=chosen)

    def session(
        self, program: Program, options: DelegateOptions, threads: int, workspace: Workspace | None = None
    ) -> IOBinding:
        raise DeviceError("a model on LiteRT has no compiled program")


class LiteRTTarget(HostTarget):
    """Nothing is delegated."""

    name = NAME
    title = "LiteRT"
    delegate_name = "jitdelegate"
    delegated_to = "compiled code"
    ignored_options = (
        *HostTarget.ignored_options,
        *("cpu_features", "first_delegate_node_index", "last_delegate_node_index", "max_delegated_partitions"),
        *("min_nodes_per_partition", "only_ops", "partitioning", "private_weights", "profile"),
        *("experimental_flags", "quantized_execution", "quantized_models_allowed", "quantized_rounding"),
        "requests_in_flight",
    )

    def find_device(self, options: DelegateOptions) -> LiteRTDevice:
        return LiteRTDevice()

    def generate(self, graph: Graph, options: DelegateOptions, key: Key, trace: Trace, known: Known) -> Generated:
        raise DeviceError("nothing is compiled for LiteRT")

    def refusal(self, key: Key) -> str:
        return f"{SLOWER[0].upper()}{SLOWER[1:]}." if key.part(CHOSEN) else "LiteRT was asked for."


TARGET = LiteRTTarget()
