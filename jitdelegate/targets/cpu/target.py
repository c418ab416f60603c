"""The CPU as a target. On the load path: everything that compiles is imported only when it is needed."""

from __future__ import annotations

import os
import sys

from jitdelegate.base.options import ANY_PRECISION
from jitdelegate.base.targets import AUTO, BFLOAT16, EXACT, FLOAT16, GENERIC, LEVELS
from jitdelegate.errors import DeviceError, OptionError
from jitdelegate.runtime.cache.key import (
    BOUND,
    CHOSEN,
    FEATURES,
    INPUTS,
    PRECISION,
    KeyParts,
    machine_with,
    this_machine,
)
from jitdelegate.runtime.memory import MACHINES
from jitdelegate.targets.host import RANKS, SLOWER, HostDevice, HostTarget, facts_of, level, levels

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from jitdelegate.base.options import DelegateOptions
    from jitdelegate.ir.graph import Graph
    from jitdelegate.program.known_constants import Known
    from jitdelegate.program.program import Program
    from jitdelegate.runtime.cache.key import Key
    from jitdelegate.runtime.io_binding import IOBinding
    from jitdelegate.runtime.memory import Workspace
    from jitdelegate.targets.target import Generated, Trace

IN_LITERT = tuple(f"linux {machine} " for machine in MACHINES)
"""Beginnings of the key part "machine" if LiteRT's interpreter may call compiled code there."""
PROFILE, MEMORY = "profile", "memory"
"""Parts of the key of profiled code, and of code that saves memory."""
_VERSION_NAMES = ("version_version", "__version__", "version")
_LARGEST_VERSION_FILE = 1 << 16


class CpuDevice(HostDevice):
    """This machine's CPU, for compiled code; or any CPU with Linux that offers a level.

    Attributes:
        kind: the level; "" for this machine's CPU.
    """

    __slots__ = ("_inputs", "kind")

    def __init__(self, kind: str = "") -> None:
        self.kind = kind
        self._inputs: dict[str, str] = {}

    @property
    def target(self) -> CpuTarget:
        return TARGET

    def key_parts(self, options: DelegateOptions) -> KeyParts:
        flags = (PROFILE, options.profile), (MEMORY, options.saves_memory)
        own = tuple((part, "1") for part, is_set in flags if is_set)
        precision = EXACT
        if options.precision == BFLOAT16 or (options.precision == ANY_PRECISION and not self.kind):
            from jitdelegate.targets.precision import precision_parts  # not before: few models are not in float32

            own, precision = (*own, *precision_parts(options, self._inputs)), BFLOAT16
        features = self.kind or _features(options.cpu_features, precision)
        if self.kind and LEVELS[features].only_for not in ("", precision):
            raise DeviceError(f"{features!r} is for the precision {LEVELS[features].only_for!r}, found {precision!r}")
        if options.precision == FLOAT16 and LEVELS[features].has_half_sums:
            own = (*own, (PRECISION, FLOAT16))
        loader = "flat" if LEVELS[features].has_threads else "object"
        machine = machine_with(LEVELS[features].host) if self.kind else this_machine()
        return KeyParts("cpu", features, loader, machine, toolchain=installed_toolchain(), options=own)

    def precisions(self, key: Key) -> Sequence[tuple[str, Key]]:
        if not key.part(PRECISION):
            return ()
        from jitdelegate.targets.precision import keys_to_measure

        halves = (FLOAT16,) if facts_of(key.part(FEATURES)).has_half_sums else ()
        return keys_to_measure(key, (EXACT, BFLOAT16, *halves))

    def alternatives(self, key: Key) -> Sequence[Key]:
        """For the levels below; then in float32, which a program for "auto" or for a level without sums of float16 has
        that was compiled on another machine."""
        names = [name for name in levels() if LEVELS[name].has_threads]
        features, precision = key.part(FEATURES), key.part(PRECISION)
        lower = names[: names.index(features)] if features in names else []
        keys = [key, *(key.changed(FEATURES, name) for name in reversed(lower))]
        if precision in (ANY_PRECISION, FLOAT16):
            keys += [one.without(PRECISION, BOUND, INPUTS, CHOSEN) for one in keys]
        return keys[1:]

    def difference(self, key: Key) -> str:
        from jitdelegate.targets.precision import precision_of  # not before: few programs are others than asked for

        precision = precision_of(key) if key.part(PRECISION) else EXACT
        how = f"for {key.part(FEATURES)} and in {precision}"
        return f"the program is {how}: with llvmlite installed, one as asked for is compiled"

    def session(
        self, program: Program, options: DelegateOptions, threads: int, workspace: Workspace | None = None
    ) -> IOBinding:
        from jitdelegate.runtime.cpu.session import Session  # a model on LiteRT needs none

        return Session(program, threads, options.requests_in_flight, workspace)


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

    def devices(self, text: str) -> tuple[CpuDevice, ...]:
        """Each level once."""
        known = [name for name, row in LEVELS.items() if row.host]
        names = dict.fromkeys(text.split(","))
        for name in names:
            if name not in known:
                expected = f"expected instruction sets of {', '.join(known)}"
                raise OptionError(f"target is 'cpu:{text}', but there is no instruction set {name!r}, {expected}")
        return tuple(map(CpuDevice, names))

    def generate(self, graph: Graph, options: DelegateOptions, key: Key, trace: Trace, known: Known) -> Generated:
        from jitdelegate.targets.cpu.generate import generate  # not before: only generating code needs LLVM

        precision = EXACT
        if key.part(PRECISION):
            from jitdelegate.targets.precision import precision_of

            precision = precision_of(key)
        profile, saves_memory = bool(key.part(PROFILE)), bool(key.part(MEMORY))
        features = key.part(FEATURES)
        return generate(
            graph, features, trace, profile=profile, saves_memory=saves_memory, precision=precision, known=known
        )

    def ignored(self, options: DelegateOptions) -> tuple[str, ...]:
        """Other precisions than bfloat16 are those of GPUs, and float16 where the level has no sums of it. Priorities
        only say whether memory is saved."""
        used = {BFLOAT16: ("precision",), ANY_PRECISION: ("precision", "precision_bound", "precision_inputs")}
        if facts_of(level() if options.cpu_features == AUTO else options.cpu_features).has_half_sums:
            used[FLOAT16] = ("precision",)
        names = (*used.get(options.precision, ()), *(RANKS if options.saves_memory else ()))
        return tuple(name for name in super().ignored(options) if name not in names)

    def runs_in_litert(self, key: Key) -> bool:
        return key.part("machine").startswith(IN_LITERT)

    def multiplies_bytes(self, features: str) -> bool:
        return bool(facts_of(features).plus_bytes)

    def channel_unit(self, features: str) -> int:
        return facts_of(features).lanes


TARGET = CpuTarget()


def _features(asked: str, precision: str) -> str:
    """The instruction set to compile for; "auto" is the fastest of this CPU."""
    if asked == AUTO:
        return level(precision)
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
