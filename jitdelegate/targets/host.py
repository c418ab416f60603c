"""What targets have in common whose programs run on this machine's CPU: the CPU's own, numpy and LiteRT."""

from __future__ import annotations

from jitdelegate.errors import OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from jitdelegate.base.options import DelegateOptions
    from jitdelegate.passes.cost import Rates
    from jitdelegate.runtime.cache.key import Key

SLOWER = "code for CPUs without AVX2 is slower than LiteRT's kernels"
"""Why "auto" leaves models to LiteRT on such CPUs."""


class HostDevice:
    """This machine's CPU; see `targets.target.Device`."""

    __slots__ = ()
    name = kind = ""

    def usable_key(self, key: Key, options: DelegateOptions) -> tuple[Key, str]:
        return key, ""

    def precisions(self, key: Key) -> Sequence[tuple[str, Key]]:
        return ()

    def alternatives(self, key: Key) -> Sequence[Key]:
        return ()

    def difference(self, key: Key) -> str:
        return ""


class HostTarget:
    """See `targets.target.Target`."""

    name: str
    left_to = "LiteRT's CPU kernels"
    is_accelerator = False
    bare_rows = 0
    ignored_options: tuple[str, ...] = (
        *("device", "inference_preference", "inference_priority1", "inference_priority2", "inference_priority3"),
        *("is_precision_loss_allowed", "precision", "precision_bound", "precision_inputs", "stream", "tuning"),
    )

    def devices(self, text: str) -> tuple[HostDevice, ...]:
        raise OptionError(f"target is '{self.name}:{text}', expected '{self.name}': it is for this machine's CPU")

    def refusal(self, key: Key) -> str:
        return ""

    def runs_in_litert(self, key: Key) -> bool:
        return False

    def rates(self, loader: str, features: str) -> Rates:
        from jitdelegate.passes.cost import BESIDE, INSIDE, WHOLE

        return {"delegate": INSIDE, "partitions": BESIDE}.get(loader, WHOLE).at_level(features)

    def multiplies_bytes(self, features: str) -> bool:
        return False

    def channel_unit(self, features: str) -> int:
        return 1
