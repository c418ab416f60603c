"""CUDA as a target. This module is on the load path, so it imports the compiler and the driver only when needed."""

from __future__ import annotations

from jitdelegate.base.options import ANY_PRECISION, PRECISIONS
from jitdelegate.base.targets import AARCH64, EXACT, X86_64
from jitdelegate.errors import DeviceError, OptionError
from jitdelegate.runtime.cache.key import (
    BOUND,
    CHOSEN,
    INPUTS,
    PRECISION,
    TOOLCHAIN,
    TUNED,
    TUNING,
    KeyParts,
    this_cpu,
)
from jitdelegate.runtime.cuda.architectures import (
    BESIDE_ARM,
    SIZES,
    TOOLKITS,
    capability_of,
    is_made_by,
    name_of,
    other_kinds,
    parsed,
    plain_kind,
    portable_kind,
)
from jitdelegate.runtime.cuda.library import open_library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from jitdelegate.base.options import DelegateOptions
    from jitdelegate.ir.graph import Graph
    from jitdelegate.passes.cost import Rates
    from jitdelegate.program.known_constants import Known
    from jitdelegate.program.program import Program
    from jitdelegate.runtime.cache.key import Key, Parts
    from jitdelegate.runtime.cuda.device import Device
    from jitdelegate.runtime.cuda.memory import GpuMemory
    from jitdelegate.runtime.io_binding import IOBinding
    from jitdelegate.runtime.memory import Workspace
    from jitdelegate.targets.cuda.tuning import Tuning
    from jitdelegate.targets.target import Generated, Trace

MULTIPROCESSORS = "multiprocessors"
"""Name of a part of the key."""
ALL = "all"
OFF = "none"
"""The value of the option `tuning` by which nothing is measured."""


class CudaDevice:
    """A kind of GPU, and this machine's GPU if it has one of this kind.

    Attributes:
        kind: the kind that programs are compiled for: "sm_90:132", or "sm_90" for the most common number of
            multiprocessors; "sm_90@aarch64" beside another CPU than that of this machine.
        device: the GPU; None for a GPU that need not be in this machine.
        cpu: the family of the CPU beside it.
        note: why its programs are PTX where binaries were asked for.
    """

    __slots__ = ("_compiled", "_inputs", "cpu", "device", "kind", "note")

    def __init__(self, kind: str, device: Device | None = None) -> None:
        """
        Raises:
            DeviceError: the installed compilers make neither binaries nor PTX for it.
        """
        self._compiled, _, cpu = kind.partition("@")
        self.kind = kind
        self.device = device
        self.cpu = cpu or (_cpu_beside(self._compiled) if device is None else this_cpu())
        self.note = "" if device else self._find_compiled()
        self._inputs: dict[str, str] = {}

    @property
    def target(self) -> CudaTarget:
        return TARGET

    @property
    def name(self) -> str:
        return self._here.name

    @property
    def _here(self) -> Device:
        if self.device is None:
            raise DeviceError(f"the program is for {self.kind}, which is not of this machine")
        return self.device

    def key_parts(self, options: DelegateOptions) -> KeyParts:
        from jitdelegate.runtime.cuda.toolchain import installed_toolchain

        features, multiprocessors = parsed(self._compiled)
        own = (*self._precision_parts(options), (MULTIPROCESSORS, str(multiprocessors)))
        is_measured = options.tuning != OFF and self.device is not None
        tuning = ((TUNING, options.tuning), (TUNED, "")) if is_measured else ()
        return KeyParts("cuda", features, "cubin", self.cpu, toolchain=installed_toolchain(), options=(*own, *tuning))

    def _find_compiled(self) -> str:
        from jitdelegate.runtime.cuda.toolchain import cuda_major, installed_toolchain

        toolkit, asked = cuda_major(installed_toolchain()), self._compiled
        architecture = parsed(asked)[0]
        if is_made_by(toolkit, architecture):
            return ""
        trouble = f"the installed compilers are those of CUDA {toolkit}, which make no code for {architecture}"
        self._compiled = portable_kind(asked, toolkit)
        if not self._compiled:
            (needed,) = TOOLKITS[capability_of(architecture)]
            raise DeviceError(f"{trouble}: install jitdelegate's extra {'cuda' if needed == 13 else f'cuda{needed}'}")
        return f"{trouble}: programs are PTX for {parsed(self._compiled)[0]}, which the driver compiles"

    def _precision_parts(self, options: DelegateOptions) -> Parts:
        if options.precision != ANY_PRECISION:
            return ((PRECISION, options.precision),)
        if self.device is None:  # nothing can be run
            return ((PRECISION, EXACT),)
        from jitdelegate.targets.precision import precision_parts  # not before: few models leave the choice

        return precision_parts(options, self._inputs)

    def precisions(self, key: Key) -> Sequence[tuple[str, Key]]:
        from jitdelegate.targets.precision import keys_to_measure

        return keys_to_measure(key, PRECISIONS)

    def usable_key(self, key: Key, options: DelegateOptions) -> tuple[Key, str]:
        from jitdelegate.runtime.cuda.toolchain import NUMBA_CUDA_VERSIONS, cuda_major

        if self.device is None:
            return key, ""
        toolkit = cuda_major(key.part(TOOLCHAIN))
        features = key.part("features")
        trouble = self.device.toolkit_trouble(features, toolkit)
        if not trouble and not is_made_by(toolkit, features):
            trouble = f"which make no code for {features}"
        if trouble:
            return key.changed(TOOLCHAIN, ""), f"the installed compilers are those of CUDA {toolkit}, {trouble}"
        if key.part(TOOLCHAIN) or options.target == TARGET.name:
            return key, ""  # if CUDA is requested, the compiler reports what is missing, which takes longer
        missing = f"numba-cuda {NUMBA_CUDA_VERSIONS}* with NVVM and nvJitLink is not installed"
        return key, f"{missing}: install jitdelegate's extra {self.device.extra}"

    def alternatives(self, key: Key) -> Sequence[Key]:
        others = other_kinds(self._compiled)
        kinds = [key, *(key.changed("features", one).changed(MULTIPROCESSORS, str(size)) for one, size in others)]
        keys = [*kinds, *(kind.without(TUNING, TUNED) for kind in kinds)] if key.part(TUNING) else kinds
        if key.part(PRECISION) == ANY_PRECISION:
            keys += [one.without(BOUND, INPUTS, CHOSEN).changed(PRECISION, EXACT) for one in keys]
        return keys[1:]

    def difference(self, key: Key) -> str:
        device = self._here
        features = key.part("features")
        if parsed(self._compiled)[0] != features:
            return f"the program is for {features}: jitdelegate's extra {device.extra} compiles one that fits better"
        if parsed(self._compiled)[1] == int(key.part(MULTIPROCESSORS)):
            how = f"computes in {key.part(PRECISION)}, and is not tuned or measured"
            return f"the program {how}: jitdelegate's extra {device.extra} compiles one as asked for"
        return (
            f"the program is for a GPU of {key.part(MULTIPROCESSORS)} multiprocessors, {device.name} has"
            f" {device.multiprocessors}: jitdelegate's extra {device.extra} compiles one that fits"
        )

    def session(
        self, program: Program, options: DelegateOptions, threads: int, workspace: Workspace | None = None
    ) -> IOBinding:
        from jitdelegate.runtime.cuda.session import CudaSession

        return CudaSession(program, self._here, options.stream, profile=options.profile)


class CudaTarget:
    """See `targets.target.Target`."""

    name = "cuda"
    title = "a GPU"
    delegate_name = "GPU delegate"
    delegated_to = "the GPU"
    left_to = "the CPU"
    is_accelerator = True
    bare_rows = 4

    def find_device(self, options: DelegateOptions) -> CudaDevice:
        library = open_library()
        from jitdelegate.runtime.cuda.context import refuse_failed
        from jitdelegate.runtime.cuda.device import find_device  # imported late: most machines have no GPU

        device = find_device(library, options.device)
        refuse_failed(device)
        return CudaDevice(device.kind, device)

    def devices(self, text: str) -> tuple[CudaDevice, ...]:
        """Each kind once, with the number of multiprocessors that programs are compiled for in place of the given
        number; without a number where it is the most common one. All are those for which the installed compilers make
        binaries."""
        from jitdelegate.runtime.cuda.toolchain import cuda_major, installed_toolchain

        if text == ALL:
            toolkit = cuda_major(installed_toolchain())
            text = ",".join(name for name in map(name_of, SIZES) if is_made_by(toolkit, name))
        try:
            return tuple(map(CudaDevice, dict.fromkeys(map(_plain, text.split(",")))))
        except ValueError as error:
            raise OptionError(f"{error}; or {ALL!r}") from error
        except DeviceError as error:
            raise OptionError(f"target is 'cuda:{text}', but {error}") from error

    def generate(self, graph: Graph, options: DelegateOptions, key: Key, trace: Trace, known: Known) -> Generated:
        from jitdelegate.runtime.cache.store import open_store

        kind = ":".join(part for part in (key.part("features"), key.part(MULTIPROCESSORS)) if part)
        try:
            from jitdelegate.targets.cuda.generate import generate
            from jitdelegate.targets.precision import precision_of

            directory, precision = open_store(options.serialization_dir).directory, precision_of(key)
            return generate(graph, kind, precision, directory, trace, _tuning(key, options), known)
        except ImportError as error:
            raise DeviceError(f"{error}; CUDA kernels are compiled by jitdelegate's extra cuda: install it") from error

    def ignored(self, options: DelegateOptions) -> tuple[str, ...]:
        return "cpu_features", "inference_preference"

    def refusal(self, key: Key) -> str:
        return ""

    def runs_in_litert(self, key: Key) -> bool:
        return False

    def rates(self, loader: str, features: str) -> Rates:
        from jitdelegate.passes.cost import ON_GPU

        return ON_GPU

    def multiplies_bytes(self, features: str) -> bool:
        return False

    def channel_unit(self, features: str) -> int:
        return 32  # the narrowest tile


def _cpu_beside(kind: str) -> str:
    """The family of the CPU beside such a GPU, where no other is named."""
    return AARCH64 if capability_of(parsed(kind)[0]) in BESIDE_ARM else this_cpu()


def _plain(name: str) -> str:
    """The kind that a name means, without a CPU that it has anyway.

    Raises:
        ValueError: unknown architecture or CPU, or wrong number of multiprocessors.
    """
    kind, at, cpu = name.partition("@")
    if at and cpu not in (X86_64, AARCH64):
        raise ValueError(f"no CPU {cpu!r}, expected {X86_64} or {AARCH64}")
    kind = plain_kind(*parsed(kind))
    return kind if cpu in ("", _cpu_beside(kind)) else f"{kind}@{cpu}"


def _tuning(key: Key, options: DelegateOptions) -> Tuning | None:
    """How to tune for this machine's GPU, which the key is for; None for keys without tuning.

    Raises:
        DeviceError: the GPU is gone.
    """
    effort = key.part(TUNING)
    if not effort:
        return None
    from jitdelegate.runtime.cuda.device import find_device
    from jitdelegate.targets.cuda.stopwatch import DeviceStopwatch
    from jitdelegate.targets.cuda.tuning import Tuning

    return Tuning(effort, DeviceStopwatch(find_device(open_library(), options.device)))


TARGET = CudaTarget()


def open_memory(ordinal: int) -> GpuMemory:
    """The memory of a GPU of this machine, by its number.

    Raises:
        DeviceError: there is no such GPU, or no driver.
    """
    library = open_library()
    from jitdelegate.runtime.cuda.device import find_device
    from jitdelegate.runtime.cuda.memory import GpuMemory

    return GpuMemory(find_device(library, ordinal))


def open_memory_at(address: int) -> GpuMemory:
    """The memory of the GPU that has this address, or of the first one if none does; raises as `open_memory`."""
    library = open_library()
    from jitdelegate.runtime.cuda.device import find_device_at
    from jitdelegate.runtime.cuda.memory import GpuMemory

    return GpuMemory(find_device_at(library, address))
