"""The CPU as a target. On the load path: everything that compiles is imported only when it is needed."""

from __future__ import annotations

import os
import sys

from jitdelegate.base.targets import AUTO
from jitdelegate.errors import DeviceError, OptionError
from jitdelegate.runtime.cache.key import KeyParts, this_machine
from jitdelegate.runtime.cpu.features import level, levels

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from jitdelegate.base.options import DelegateOptions
    from jitdelegate.ir.graph import Graph
    from jitdelegate.passes.cost import Rates
    from jitdelegate.program.program import Program
    from jitdelegate.runtime.cache.key import Key
    from jitdelegate.runtime.io_binding import IOBinding
    from jitdelegate.targets.target import Generated, Trace

GENERIC = "generic"
LEVELS = {
    GENERIC: 4,
    **dict.fromkeys(("x86-64-v3", "x86-64-v3-vnni"), 8),
    **dict.fromkeys(("x86-64-v4", "x86-64-v4-vnni", "x86-64-v4-vbmi"), 16),
}
"""Instruction set -> floats in one of its vectors."""
WITH_VNNI = ("x86-64-v3-vnni", "x86-64-v4-vnni", "x86-64-v4-vbmi")
"""Those that multiply and add up four bytes by one instruction."""
SLOWER = "code for CPUs without AVX2 is slower than LiteRT's kernels"
"""Why "auto" leaves models to LiteRT on such CPUs."""
IN_LITERT = "linux x86_64 "
"""Beginning of the key part "machine" if LiteRT's interpreter may call compiled code there."""
PROFILE = "profile"
"""Part of the key of profiled code."""
_VERSION_NAMES = ("version_version", "__version__", "version")
_LARGEST_VERSION_FILE = 1 << 16


class CpuDevice:
    """This machine's CPU; see `targets.target.Device`. Devices of other targets that run on the CPU derive from it."""

    __slots__ = ()
    name = kind = ""

    @property
    def target(self) -> CpuTarget:
        return TARGET

    def key_parts(self, options: DelegateOptions) -> KeyParts:
        features = _features(options.cpu_features)
        loader = "object" if features == GENERIC else "flat"
        own = ((PROFILE, "1"),) if options.profile else ()
        return KeyParts("cpu", features, loader, this_machine(), toolchain=installed_toolchain(), options=own)

    def usable_key(self, key: Key, options: DelegateOptions) -> tuple[Key, str]:
        return key, ""

    def precisions(self, key: Key) -> Sequence[tuple[str, Key]]:
        return ()

    def alternatives(self, key: Key) -> Sequence[Key]:
        return ()

    def difference(self, key: Key) -> str:
        return ""

    def session(self, program: Program, options: DelegateOptions, threads: int) -> IOBinding:
        from jitdelegate.runtime.cpu.session import Session  # a model on LiteRT needs none

        return Session(program, threads, options.requests_in_flight)


class CpuTarget:
    """See `targets.target.Target`."""

    name = "cpu"
    title = "the CPU"
    delegate_name = "CPU delegate"
    delegated_to = "compiled CPU code"
    left_to = "LiteRT's CPU kernels"
    is_accelerator = False
    bare_rows = 0
    ignored_options: tuple[str, ...] = (
        *("device", "inference_preference", "inference_priority1", "inference_priority2", "inference_priority3"),
        *("is_precision_loss_allowed", "precision", "precision_bound", "precision_inputs", "stream", "tuning"),
    )

    def find_device(self, options: DelegateOptions) -> CpuDevice:
        if options.target == AUTO and options.cpu_features == AUTO and level() == GENERIC:
            raise DeviceError(f"{SLOWER}; the target {self.name!r} compiles it")
        return CpuDevice()

    def devices(self, text: str) -> tuple[CpuDevice, ...]:
        raise OptionError(f"target is '{self.name}:{text}', expected '{self.name}': it is for this machine's CPU")

    def generate(self, graph: Graph, options: DelegateOptions, key: Key, trace: Trace) -> Generated:
        from jitdelegate.targets.cpu.generate import generate  # not before: only generating code needs LLVM

        return generate(graph, key.part("features"), trace, profile=bool(key.part(PROFILE)))

    def refusal(self, key: Key) -> str:
        return ""

    def runs_in_litert(self, key: Key) -> bool:
        return key.part("machine").startswith(IN_LITERT)

    def rates(self, loader: str, features: str) -> Rates:
        from jitdelegate.passes.cost import BESIDE, INSIDE, WHOLE

        return {"delegate": INSIDE, "partitions": BESIDE}.get(loader, WHOLE).at_level(features)

    def multiplies_bytes(self, features: str) -> bool:
        return features in WITH_VNNI

    def channel_unit(self, features: str) -> int:
        return LEVELS.get(features, 1)


TARGET = CpuTarget()


def _features(asked: str) -> str:
    """The instruction set to compile for; "auto" is the fastest of this CPU."""
    if asked == AUTO:
        return level()
    if asked not in levels():
        raise DeviceError(f"cpu_features is {asked!r}, but this CPU offers {', '.join(map(repr, levels()))}")
    return asked


def installed_toolchain() -> str:
    """`llvmlite 0.50.0`, found without importing llvmlite; "" if it is not installed. llvmlite contains its LLVM, so
    its version identifies both."""
    for folder in sys.path:
        version = _version(os.path.join(folder or ".", "llvmlite", "_version.py"))
        if version:
            return f"llvmlite {version}"
    return ""


def _version(path: str) -> str:
    """The version in the file `path`, which versioneer wrote; "" if there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # most folders have none, and a file object takes longer
        try:
            text = os.read(descriptor, _LARGEST_VERSION_FILE).decode("utf-8", "replace")
        finally:
            os.close(descriptor)
    except OSError:
        return ""
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name.strip() in _VERSION_NAMES:
            return value.strip().strip("'\"")
    return ""
