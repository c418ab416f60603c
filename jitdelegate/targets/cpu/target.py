"""The CPU as a target. On the load path: everything that compiles is imported only when it is needed."""

from __future__ import annotations

import os
import sys

from jitdelegate.base.targets import AUTO, GENERIC, LEVELS
from jitdelegate.errors import DeviceError
from jitdelegate.runtime.cache.key import KeyParts, this_machine
from jitdelegate.targets.host import SLOWER, HostDevice, HostTarget, facts_of, level, levels

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.base.options import DelegateOptions
    from jitdelegate.ir.graph import Graph
    from jitdelegate.program.known_constants import Known
    from jitdelegate.program.program import Program
    from jitdelegate.runtime.cache.key import Key
    from jitdelegate.runtime.io_binding import IOBinding
    from jitdelegate.targets.target import Generated, Trace

IN_LITERT = "linux x86_64 "
"""Beginning of the key part "machine" if LiteRT's interpreter may call compiled code there."""
PROFILE = "profile"
"""Part of the key of profiled code."""
_VERSION_NAMES = ("version_version", "__version__", "version")
_LARGEST_VERSION_FILE = 1 << 16


class CpuDevice(HostDevice):
    """This machine's CPU, for compiled code."""

    __slots__ = ()

    @property
    def target(self) -> CpuTarget:
        return TARGET

    def key_parts(self, options: DelegateOptions) -> KeyParts:
        features = _features(options.cpu_features)
        loader = "flat" if LEVELS[features].has_threads else "object"
        own = ((PROFILE, "1"),) if options.profile else ()
        return KeyParts("cpu", features, loader, this_machine(), toolchain=installed_toolchain(), options=own)

    def session(self, program: Program, options: DelegateOptions, threads: int) -> IOBinding:
        from jitdelegate.runtime.cpu.session import Session  # a model on LiteRT needs none

        return Session(program, threads, options.requests_in_flight)


class CpuTarget(HostTarget):
    """See `targets.target.Target`."""

    name = "cpu"
    title = "the CPU"
    delegate_name = "CPU delegate"
    delegated_to = "compiled CPU code"

    def find_device(self, options: DelegateOptions) -> CpuDevice:
        if options.target == AUTO and options.cpu_features == AUTO and level() == GENERIC.name:
            raise DeviceError(f"{SLOWER}; the target {self.name!r} compiles it")
        return CpuDevice()

    def generate(self, graph: Graph, options: DelegateOptions, key: Key, trace: Trace, known: Known) -> Generated:
        from jitdelegate.targets.cpu.generate import generate  # not before: only generating code needs LLVM

        return generate(graph, key.part("features"), trace, profile=bool(key.part(PROFILE)), known=known)

    def runs_in_litert(self, key: Key) -> bool:
        return key.part("machine").startswith(IN_LITERT)

    def multiplies_bytes(self, features: str) -> bool:
        return bool(facts_of(features).plus_bytes)

    def channel_unit(self, features: str) -> int:
        return facts_of(features).lanes


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
