"""Executable: a model made ready to run, from the cache or else through the one deferred import of the compiler."""

from __future__ import annotations

import _thread
import time

from jitdelegate.cache.counts import counts
from jitdelegate.cache.key import (
    MODEL,
    MULTIPROCESSORS,
    NUMBA_CUDA_VERSIONS,
    PRECISION,
    PROFILE,
    TOOLCHAIN,
    cuda_major,
    model_key,
    variant_parts,
)
from jitdelegate.cache.store import ABSENT, OFF, Lookup, open_store
from jitdelegate.engine.model_file import ChangedModelError
from jitdelegate.errors import CompilerFailedError, DelegationError, DeviceError, ProgramError
from jitdelegate.options import DEBUG_LEVEL
from jitdelegate.program.check import IN_PARTITIONS
from jitdelegate.program.program import Operator
from jitdelegate.runtime.cpu.features import level
from jitdelegate.runtime.cpu.session import Session
from jitdelegate.runtime.cuda.library import open_library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from jitdelegate.api.delegate_warning import DelegateMessage
    from jitdelegate.api.report import CacheReport, KernelTime, Report, SubgraphReport
    from jitdelegate.cache.key import Key, Parts, Shapes, Values
    from jitdelegate.cache.store import Store
    from jitdelegate.engine.model_file import ModelFile
    from jitdelegate.options import Options
    from jitdelegate.program.program import Program
    from jitdelegate.runtime.cuda.device import Device
    from jitdelegate.runtime.io_binding import IOBinding

NO_PROGRAM = "there is no program for it in the cache, and"
NO_COMPILER = f"numba-cuda {NUMBA_CUDA_VERSIONS}* with NVVM and nvJitLink is not installed: pip install jitdelegate"
OPENINGS = 3
"""So often a model is opened whose file changes all the time."""
LEVELS = ("generic", "x86-64-v3", "x86-64-v4")
"""Instruction sets, each including those before it."""


class Executable:
    """A program of a model that can run: with a session on it, or on LiteRT where the program says so.

    Attributes:
        source: the model.
        program: what the cache or the compiler gave.
        session: runs the compiled program; None for a model that runs on LiteRT.
        notes: sentences for the report; all programs of a model share them.
        hosted_sessions: of a profiled model, the sessions of partitions in LiteRT's interpreter, by their operators.
    """

    def __init__(
        self, source: ModelFile, *, notes: Sequence[str] = (), main: Executable | None = None, variant: Parts = ()
    ) -> None:
        """
        Args:
            notes: sentences for the report.
            main: the model's main program, where this is another one.
            variant: the parts of the key that tell this program from the main one.
        Raises:
            ModelError: there is no such file, it cannot be read, is not a model, or cannot be run by LiteRT either.
            DeviceError: this machine lacks the target or the CPU features that were asked for.
        """
        self.source = source
        self.notes: list[str] = list(notes) if main is None else main.notes
        self._options = source.options
        self._variant = variant
        self._seconds: dict[str, float] = {}
        self._lock = _thread.allocate_lock()
        self._left = self._healed = self._no_compiler = self._failure = ""
        self.session: IOBinding | None = None
        self.hosted_sessions: dict[tuple[int, ...], IOBinding] = {}
        self.program: Program
        self._lookup: Lookup
        self._key: Key
        try:
            self._device: Device | None = self._find_device() if main is None else main._device
            self._open_at_last(OPENINGS if main is None else 1)
            is_known = self.resized or self.values  # from the program for the shapes that the file says
            if self._failure or (not is_known and not self._is_guest and not self.program.shape_inputs):
                self.announce()
            if DEBUG_LEVEL:
                self._tell()
        except MemoryError as error:
            raise self._no_memory() from error

    def _tell(self) -> None:
        from jitdelegate.options.debug import log  # not before: few people look

        log(f"{self.source.name}: {self._key.entry_name()}\n{self.report()}")

    def _find_device(self) -> Device | None:
        """The GPU to compile for, None where it is to be the CPU or LiteRT."""
        if self._options.target not in ("auto", "cuda"):
            return None
        start = time.perf_counter()
        try:
            library = open_library(asked_for=self._options.target == "cuda")
            from jitdelegate.runtime.cuda.device import find_device  # not before: most machines have no GPU

            device = find_device(library, self._options.device)
        except DeviceError as error:
            if self._options.target == "cuda":
                raise DeviceError(f"target is 'cuda', but {error}") from error
            self.note(f"not on a GPU: {error}")
            return None
        self._seconds["device"] = time.perf_counter() - start
        return device

    def _open_at_last(self, tries: int) -> None:
        """Open the model, from the beginning if its file changes meanwhile or is not what was remembered of it.

        Args:
            tries: 1 for a further program, which has to be of the same model as the main one.
        """
        for left in reversed(range(tries)):
            self._key = self._find_key()
            self._is_guest = self._key.hosted
            try:
                self._open()
                return
            except ChangedModelError:
                if not left:
                    raise
                self.source.begin_anew()
                self._left = ""

    def _open(self) -> None:
        try:
            self._lookup = self._fetch()
            self._start()
        except DeviceError as error:
            if self._device is None or self._options.target != "auto":
                raise
            self._leave_gpu(str(error))

    def _leave_gpu(self, reason: str) -> None:
        """Begin again on the CPU; the time that went into the GPU counts as the device's."""
        self.note(f"not on a GPU: {reason}")
        fingerprint = self._seconds.pop("fingerprint")
        self._seconds = {"device": sum(self._seconds.values()), "fingerprint": fingerprint}
        self._device = None
        self._key = options_key(self._options, self._key.part(MODEL), variant=self._variant)
        self._open()

    def _find_key(self) -> Key:
        start = time.perf_counter()
        found = self.source.fingerprint()
        self._seconds["fingerprint"] = time.perf_counter() - start
        if self._device is None:
            return options_key(self._options, found, variant=self._variant)
        return self._usable(options_key(self._options, found, self._device.kind, self._variant), self._device)

    def _usable(self, key: Key, device: Device) -> Key:
        """The key of a program for the GPU; without compilers where the driver would not take what they make."""
        toolkit = cuda_major(key.part(TOOLCHAIN))
        trouble = device.toolkit_trouble(toolkit)
        if trouble:
            self._no_compiler = f"the installed compilers are those of CUDA {toolkit}, {trouble}"
            return key.changed(TOOLCHAIN, "")
        if not key.part(TOOLCHAIN) and self._options.target == "auto":
            # "cuda" is told by the compiler what it lacks; that takes the time of importing all that is there
            self._no_compiler = f"{NO_COMPILER}[{device.extra}]"
        return key

    def _fetch(self) -> Lookup:
        """The program from the cache or the compiler; what is not compiling counts as the cache's time."""
        start = time.perf_counter()
        before = sum(self._seconds.values())
        lookup = self._kept() or self._fetch_from(self.source.store)
        compiling = sum(self._seconds.values()) - before
        self._seconds["cache"] = time.perf_counter() - start - compiling
        return lookup

    def _fetch_from(self, store: Store) -> Lookup:
        """As `store.fetch`; with target "auto", a program without code where the compiler fails on the CPU too."""
        try:
            return store.fetch(self._key, self._compile)
        except CompilerFailedError as error:
            if self._device is not None or self._options.target not in ("auto", "litert"):
                raise
            self._failure = str(error)
            from jitdelegate.compiler.entry import uncompiled

            program = uncompiled(self.source.content(), self._key, error)
            return Lookup(ABSENT if store.place else store.kind, self._failure, program=program)

    def _kept(self) -> Lookup | None:
        """Where nothing can compile for the GPU, a program of the cache that runs on it: the one that fits, or one for
        another number of multiprocessors. None where there is none, or where one that fits can be compiled."""
        if self._device is None or self._key.part(TOOLCHAIN):
            return None
        from jitdelegate.runtime.cuda.architectures import other_sizes  # not before: most machines have no GPU

        others = [self._key.changed(MULTIPROCESSORS, str(size)) for size in other_sizes(self._device.kind)]
        found = self.source.store.first([self._key, *others])
        if found is None:
            return None
        key, lookup = found
        if key is not self._key:
            self._key = key
            self.note(
                f"the program is for a GPU of {key.part(MULTIPROCESSORS)} multiprocessors, {self._device.name} has"
                f" {self._device.multiprocessors}: pip install jitdelegate[{self._device.extra}] compiles one that fits"
            )
        return lookup

    def _compile(self) -> bytes:
        if self._device and self._no_compiler:
            raise DeviceError(f"{NO_PROGRAM} {self._no_compiler}")
        from jitdelegate.compiler.entry import compiled

        return compiled(self.source.content(), self._options, self._key, self._seconds)

    def _start(self) -> None:
        start = time.perf_counter()
        try:
            self._use(self._lookup)
        except ProgramError as error:
            self.heal(None, str(error))
        self._seconds["open"] = time.perf_counter() - start

    def _use(self, lookup: Lookup) -> None:
        assert lookup.program is not None
        self._lookup = lookup
        self.program = lookup.program
        self.source.narrow_states = bool(self.program.narrow_states)
        if self._options.require_full_delegation and not self.program.shape_inputs and not self._is_guest:
            self.require_full_delegation()
        if self._is_guest:
            return  # LiteRT's interpreter asks for the partitions
        if self.program.target == "litert":
            if self._device is not None and self._options.target == "auto":
                raise DeviceError(self.reason)  # what no GPU takes, the CPU may
            self.session = None
            self.source.fallback()
            return
        if self.program.loader == "delegate":
            self._host()
            return
        if self.program.loader == "partitions":
            self._open_partitions()
            return
        if self._device is not None:
            self.session = self._open_on(self._device, self.program)
            return
        try:
            self.session = Session(self.program, self.source.threads)
        except DeviceError as error:  # a hardened system may forbid executable memory
            if self._options.target != "auto":
                raise
            self._begin_on_litert(f"the compiled program cannot be loaded: {error}.")

    def _open_partitions(self) -> None:
        from jitdelegate.runtime.partitioned_session import (
            PartitionedSession,  # not before: most models are compiled whole
        )

        try:
            self.session = PartitionedSession(self.program, self.open_partition, self.source.threads)
        except DeviceError as error:
            if self._device is not None and self._options.target == "auto":
                raise
            self._begin_on_litert(f"the partitions of the model cannot be put together: {error}.")

    def open_partition(self, program: Program) -> IOBinding:
        """A session of one of the program's partitions; raises what a session raises."""
        if self._device is not None:
            return self._open_on(self._device, program)
        return Session(program, self.source.threads)

    def _host(self) -> None:
        """LiteRT's interpreter runs the model, with the compiled partitions in it."""
        from jitdelegate.litert_delegate.hosted_model import HostedModel
        from jitdelegate.litert_delegate.trust import refusal  # not before: few models are of that kind

        trouble = refusal(self.source.store.place)
        if trouble:
            self._begin_on_litert(f"the compiled partitions cannot go into LiteRT's interpreter: {trouble}.")
            return
        if not self.source.hosted:  # one interpreter has the model's variables, whichever program comes first
            if self.source.in_use:
                self._begin_on_litert(
                    "LiteRT's interpreter runs the model already, and goes on without the compiled partitions."
                )
                return
            self.source.host(HostedModel(self._guest()).delegate)
        self.source.fallback()

    def _guest(self) -> Executable:
        """The main program for LiteRT's interpreter, which this one has unless it is another variant. It must not refer
        to that interpreter."""
        source = self.source.apart()
        if self._variant:
            return Executable(source, main=self, variant=variant_parts(0, hosted=True))
        from copy import copy

        guest = copy(self)
        guest.source, guest._is_guest = source, True
        return guest

    def _begin_on_litert(self, reason: str) -> None:
        """The model runs on LiteRT after all.

        Raises:
            DelegationError: full delegation was required.
        """
        self._left = reason
        self.session = None
        if self._options.require_full_delegation:
            self.require_full_delegation()
        self.source.fallback()

    @property
    def reason(self) -> str:
        """Why this is not compiled: the first operator's reason."""
        return next((one.reason for one in self._operators() if one.reason), "the model is not compiled for it.")

    def _open_on(self, device: Device, program: Program) -> IOBinding:
        from jitdelegate.runtime.cuda.session import CudaSession  # not before: most machines have no GPU

        session = CudaSession(program, device, self._options.stream, profile=self._options.profile)
        if session.graph_failure:
            self.note(f"kernels are launched one by one: {session.graph_failure}")
        return session

    def heal(self, failed: IOBinding | None, reason: str) -> None:
        """Replace a program that proved bad, by what its file holds now or else by one that is compiled anew.

        Args:
            failed: the session that found it out; nothing happens if another thread has replaced it already. The new
                one goes on with its states and persistent memory.
            reason: what was wrong.
        Raises:
            ModelError: nothing is left of the program, and the model's file has gone or changed.
            DeviceError: there is no memory for another one, or LiteRT goes on and variables are lost.
        """
        with self._lock:
            if self.session is not failed:
                return
            try:
                self._replace(reason, was_whole=failed is not None and _has_changed(failed))
                self._healed = f"the entry was damaged: {reason}"
                if failed is not None and self.session is not None:
                    self.session.take_over(failed)
            except MemoryError as error:
                raise self._no_memory() from error
            if failed is not None and self.session is None and failed.program.states:
                raise DeviceError(f"{reason}; {self._failure}; on LiteRT its variables have their first values again")

    def _no_memory(self) -> DeviceError:
        return DeviceError(f"no memory to open {self.source.name}")

    def _replace(self, reason: str, *, was_whole: bool) -> None:
        """
        Args:
            was_whole: the file has changed since it was opened, and what it holds now may be a good program.
        """
        store = self.source.store
        store.private_weights = True  # whatever happens to the file next, the new program does not notice
        if not was_whole:
            store.refuse(self._key, reason)
        for _ in range(1 + was_whole):
            try:
                self._use(self._fetch())
                self._verify()
                return
            except ProgramError as error:
                store.refuse(self._key, str(error))
        # an entry that can be neither removed nor replaced
        self._use(self._fetch_from(open_store(False)))

    def _verify(self) -> None:
        if self.session is not None:
            self.session.verify()

    def allocate(self) -> None:
        """Make a model on LiteRT ready to run; a compiled one is already."""
        start = time.perf_counter()
        if self.session is None:
            self.source.fallback().allocate()
            self._seconds["allocate"] = time.perf_counter() - start

    def note(self, sentence: str) -> None:
        """Add a sentence to the report, once."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def announce(self) -> None:
        """Tell the user which operators are left to LiteRT, unless LiteRT was asked for."""
        if self.session is not None and self.program.loader not in IN_PARTITIONS:
            return  # none, and reading them takes longer than all else on the warm road
        if self._options.target != "litert" and any(one.place == "litert" for one in self._operators()):
            from jitdelegate.api.delegate_warning import announce  # not before: most models are compiled whole

            announce(f"{self._key.part(MODEL)} {self.subgraph}", self._message())

    def require_full_delegation(self) -> None:
        """
        Raises:
            DelegationError: an operator is left to LiteRT; says which and why.
        """
        message = self._message()
        if message.remaining:
            raise DelegationError(f"full delegation was required of {message.model}. {message.text}")

    def _message(self) -> DelegateMessage:
        from jitdelegate.api.delegate_warning import DelegateMessage

        further = f", {self.subgraph_report().name}" if self.subgraph else ""
        return DelegateMessage(f"{self.source.name}{further}", self.target, self._operators())

    def leave(self, reason: str) -> None:
        """From now on the model runs on LiteRT, for this reason."""
        if self.session is not None:
            self.session = None
            self._left = reason

    @property
    def subgraph(self) -> int:
        """The subgraph that the program computes."""
        return self._key.subgraph

    @property
    def shapes(self) -> Shapes:
        """The shapes of its inputs."""
        return tuple(port.shape for port in self.program.inputs)

    @property
    def resized(self) -> Shapes:
        """These shapes, () where they are those that the file says."""
        return self._key.shapes

    @property
    def values(self) -> Values:
        """(position, elements) of the inputs whose values it is compiled for."""
        return self._key.values

    @property
    def target(self) -> str:
        """Where the model runs, "cuda", "cpu" or "litert"."""
        return "litert" if self._left else self.program.target

    def __str__(self) -> str:
        return f"{self.source.name} on {self.target}"

    def report(self, notes: Sequence[str] = (), subgraphs: Sequence[SubgraphReport] = ()) -> Report:
        """What is known by now, with further sentences about the model, and what is known of its further subgraphs."""
        from jitdelegate.api.report import Report

        device = self._device if self.target == "cuda" else None
        return Report(
            target=self.target,
            features=self.program.features,
            device=device.name if device else "",
            threads=1 if device else self.source.threads,
            kernels=len(self.program.kernels),
            launches=sum(kernel.chunks for kernel in self.program.kernels) if device else 0,
            operators=self._operators(),
            cache=self._cache_report(),
            seconds=self._seconds,
            notes=[*self.notes, *notes],
            subgraphs=subgraphs,
            kernel_times=self._kernel_times(),
        )

    def _kernel_times(self) -> Sequence[KernelTime]:
        if not self._options.profile or self._left:
            return ()
        from jitdelegate.engine.kernel_times import kernel_times  # not before: few models are profiled

        return kernel_times(self.program, self.session, self.hosted_sessions)

    def subgraph_report(self) -> SubgraphReport:
        """As `report`, of a further subgraph."""
        from jitdelegate.api.report import SubgraphReport

        return SubgraphReport(
            number=self.subgraph,
            signatures=[signature.key for signature in self.program.signatures if signature.graph == self.subgraph],
            target=self.target,
            operators=self._operators(),
            outcome=self.outcome,
        )

    @property
    def outcome(self) -> str:
        """What the cache did, "hit", "miss" or "off"."""
        hit = self._lookup.hit and not self._healed
        return "off" if self._lookup.kind == OFF else "hit" if hit else "miss"

    def _cache_report(self) -> CacheReport:
        from jitdelegate.api.report import CacheReport

        lookup = self._lookup
        return CacheReport(
            outcome=self.outcome,
            reason=self._healed or lookup.reason,
            path="" if lookup.write_failure else lookup.path or "",
            write_failure=lookup.write_failure,
            counters={name: getattr(counts, name) for name in counts.__slots__},
        )

    def _operators(self) -> Sequence[Operator]:
        if not self._left:
            return self.program.operators
        return [
            Operator(index=one.index, op=one.op, place="litert", reason=self._left) for one in self.program.operators
        ]

    def close(self) -> None:
        """End the worker threads and free the memory, on a GPU too."""
        if self.session is not None:
            self.session.close()
        self.session = None


def _has_changed(session: IOBinding) -> bool:
    """Whether somebody has written the file that the session reads where it is mapped."""
    return session.shared is not None and session.shared.changes > 0


def options_key(options: Options, model: str, gpu: str = "", variant: Parts = ()) -> Key:
    """The cache key of a model with the fingerprint `model` under these options.

    Args:
        gpu: the kind of GPU to compile for, as "sm_90:132" or "sm_90"; "" for the CPU.
        variant: the parts that tell one of the model's further programs from the main one.
    Raises:
        DeviceError: the CPU lacks the features that were asked for.
    """
    further: tuple[tuple[str, str], ...] = ()
    if gpu:
        from jitdelegate.runtime.cuda.architectures import parsed  # not before: most machines have no GPU

        features, multiprocessors = parsed(gpu)
        target, loader = "cuda", "cubin"
        further = ((PRECISION, options.precision), (MULTIPROCESSORS, str(multiprocessors)))
    elif options.target == "litert":
        target, features, loader = "litert", "", "none"
    else:
        target, features = "cpu", _features(options.cpu_features)
        loader = "object" if features == "generic" else "flat"
        further = ((PROFILE, "1"),) if options.profile else ()
    partitions = (("partitions", options.partition_key),) if options.partition_key and target != "litert" else ()
    return model_key(
        fingerprint=model,
        token=options.model_token,
        target=target,
        features=features,
        loader=loader,
        options=(*further, *partitions, *variant),
    )


def _features(asked: str) -> str:
    """The instruction set to compile for, "auto" being the widest that this CPU has."""
    widest = level()
    if asked == "auto":
        return widest
    if LEVELS.index(asked) > LEVELS.index(widest):
        raise DeviceError(f"cpu_features is {asked!r}, but this CPU offers {widest!r}")
    return asked
