"""Opened: a model made ready to run, from the cache or else through the one deferred import of the compiler."""

from __future__ import annotations

import _thread
import os
import time

from jitdelegate.cache.counts import counts
from jitdelegate.cache.fingerprint import fingerprint
from jitdelegate.cache.key import MODEL, NUMBA_CUDA_VERSIONS, TOOLCHAIN, model_key
from jitdelegate.cache.store import OFF, open_store
from jitdelegate.errors import DeviceError, ModelError, ProgramError
from jitdelegate.program.program import Operator
from jitdelegate.runtime.cpu_features import level
from jitdelegate.runtime.cuda_library import open_library
from jitdelegate.runtime.session import Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from _typeshed import ReadableBuffer

    from jitdelegate.cache.key import Key
    from jitdelegate.cache.store import Lookup
    from jitdelegate.options import Options
    from jitdelegate.program.program import Program
    from jitdelegate.report import CacheReport, Report
    from jitdelegate.runtime.cuda_device import Device
    from jitdelegate.runtime.fallback import Fallback
    from jitdelegate.runtime.staging import Staging

    Source = str | os.PathLike[str] | ReadableBuffer

NO_COMPILER = (
    f"there is no program for it in the cache, and numba-cuda {NUMBA_CUDA_VERSIONS}* with NVVM and nvJitLink"
    " is not installed: pip install jitdelegate[cuda]"
)
LEVELS = ("generic", "x86-64-v3", "x86-64-v4")
"""Instruction sets, each including those before it."""
MOST_THREADS = 4
"""As many threads as one inference takes when nobody says how many."""
LONGEST_NAME = 4096
"""Characters of a path that an error shows; a longer one is no path, but perhaps a model."""


class Opened:
    """A model that can run: its program with a session on it, or LiteRT where the program says so.

    Attributes:
        program: what the cache or the compiler gave.
        session: runs the compiled program; None for a model that runs on LiteRT.
        notes: sentences for the report.
        threads: threads that share one inference.
    """

    def __init__(
        self,
        source: Source,
        options: Options,
        *,
        litert_arguments: Mapping[str, Any] | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        """
        Args:
            source: a path, or the content of a .tflite file.
            options: what was asked for.
            litert_arguments: further keyword arguments of LiteRT's interpreter, should the model run there.
            notes: sentences for the report.
        Raises:
            ModelError: there is no such file, it cannot be read, is not a model, or cannot be run by LiteRT either.
            DeviceError: this machine lacks the target or the CPU features that were asked for.
        """
        self._source = _keep(source)
        self._options = options
        self._seconds: dict[str, float] = {}
        self._fallback: Fallback | None = None
        self._litert_arguments = litert_arguments
        self.notes = list(notes)
        self.threads = options.num_threads or default_threads()
        self._store = open_store(options.serialization_dir)
        self._lock = _thread.allocate_lock()
        self._left = self._healed = ""
        self.session: Staging | None = None
        self.program: Program
        self._lookup: Lookup
        self._device = self._find_device()
        self._key = self._find_key()
        self._open()

    def _find_device(self) -> Device | None:
        """The GPU to compile for, None where it is to be the CPU or LiteRT."""
        if self._options.target not in ("auto", "cuda"):
            return None
        start = time.perf_counter()
        try:
            library = open_library()
            from jitdelegate.runtime.cuda_device import find_device  # not before: most machines have no GPU

            device = find_device(library, self._options.device)
        except DeviceError as error:
            if self._options.target == "cuda":
                raise DeviceError(f"target is 'cuda', but {error}") from error
            self.note(f"not on a GPU: {error}")
            return None
        self._seconds["device"] = time.perf_counter() - start
        return device

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
        self._key = options_key(self._options, self._key.part(MODEL))
        self._open()

    def _find_key(self) -> Key:
        start = time.perf_counter()
        try:
            found = self._store.fingerprint(self._source)
        except (OSError, ValueError) as error:
            raise ModelError(f"could not open {self._name}: {getattr(error, 'strerror', error)}") from error
        self._seconds["fingerprint"] = time.perf_counter() - start
        return options_key(self._options, found, self._device.architecture if self._device else "")

    def _fetch(self) -> Lookup:
        """The program from the cache or the compiler; what is not compiling counts as the cache's time."""
        start = time.perf_counter()
        before = sum(self._seconds.values())
        lookup = self._store.fetch(self._key, self._compile)
        compiling = sum(self._seconds.values()) - before
        self._seconds["cache"] = time.perf_counter() - start - compiling
        return lookup

    def _compile(self) -> bytes:
        if self._device and self._options.target == "auto" and not self._key.part(TOOLCHAIN):
            raise DeviceError(NO_COMPILER)  # without the time that importing all that is there would take
        start = time.perf_counter()
        from jitdelegate.compiler import compile_model

        self._seconds["import compiler"] = time.perf_counter() - start
        return compile_model(self.content(), self._options, self._key, self._seconds)

    @property
    def _name(self) -> str:
        """The model in an error's sentence."""
        return repr(self._source[:LONGEST_NAME]) if isinstance(self._source, str) else "the model's content"

    def content(self) -> bytes:
        """The bytes of the model that was opened, whatever its file holds by now.

        Raises:
            ModelError: the file cannot be read, or holds other bytes than when it was opened.
        """
        if isinstance(self._source, bytes):
            return self._source
        try:
            with open(self._source, "rb") as file:
                content = file.read()
        except OSError as error:
            raise ModelError(f"could not open {self._name}: {error.strerror}") from error
        found, expected = fingerprint(content), self._key.part(MODEL)
        if found != expected:
            raise ModelError(
                f"{self._name} changed since it was opened: found fingerprint {found}, expected {expected}"
            )
        return content

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
        if self.program.target == "litert":
            if self._device is not None and self._options.target == "auto":
                raise DeviceError(self._reason_for_litert())  # what no GPU takes, the CPU may
            self.fallback()
            return
        if self._device is not None:
            self.session = self._open_on(self._device)
            return
        try:
            self.session = Session(self.program, self.threads)
        except DeviceError as error:  # a hardened system may forbid executable memory
            if self._options.target != "auto":
                raise
            self._left = f"the compiled program cannot be loaded: {error}."
            self.fallback()

    def _reason_for_litert(self) -> str:
        """Why the program in use has no code: the first operator's reason."""
        return next((one.reason for one in self.program.operators if one.reason), "the model is not compiled for it.")

    def _open_on(self, device: Device) -> Staging:
        from jitdelegate.runtime.cuda_session import CudaSession  # not before: most machines have no GPU

        session = CudaSession(self.program, device, self._options.stream)
        if session.graph_failure:
            self.note(f"kernels are launched one by one: {session.graph_failure}")
        return session

    def heal(self, failed: Staging | None, reason: str) -> None:
        """Replace a program that proved bad: forget the entry, compile anew, open what that gave.

        Args:
            failed: the session that found it out; nothing happens if another thread has replaced it already.
            reason: what was wrong.
        """
        with self._lock:
            if self.session is not failed:
                return
            self._store.refuse(self._key, reason)
            try:
                self._use(self._fetch())
                self._verify()
            except ProgramError:  # an entry that can be neither removed nor replaced: do without
                self._use(open_store(False).fetch(self._key, self._compile))
            self._healed = f"the entry was damaged: {reason}"

    def _verify(self) -> None:
        if self.session is not None:
            self.session.verify()

    def fallback(self) -> Fallback:
        """The same model in LiteRT, created when first asked for.

        Raises:
            ModelError: the file cannot be read or has changed, or LiteRT cannot open the model.
        """
        if self._fallback is None:
            from jitdelegate.runtime.fallback import Fallback  # not before: a compiled model never needs it

            self._fallback = Fallback(self.content(), num_threads=self.threads, arguments=self._litert_arguments)
        return self._fallback

    def allocate(self) -> None:
        """Make a model on LiteRT ready to run; a compiled one is already."""
        start = time.perf_counter()
        if self.session is None:
            self.fallback().allocate()
            self._seconds["allocate"] = time.perf_counter() - start

    def note(self, sentence: str) -> None:
        """Add a sentence to the report, once."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def leave(self, reason: str) -> None:
        """From now on the model runs on LiteRT, for this reason."""
        if self.session is not None:
            self.session = None
            self._left = reason

    @property
    def target(self) -> str:
        """Where the model runs, "cuda", "cpu" or "litert"."""
        return "litert" if self._left else self.program.target

    def __str__(self) -> str:
        return f"{self._name} on {self.target}"

    def report(self) -> Report:
        """What is known by now."""
        from jitdelegate.report import Report

        device = self._device if self.target == "cuda" else None
        return Report(
            target=self.target,
            features=self.program.features,
            device=device.name if device else "",
            threads=1 if device else self.threads,
            kernels=len(self.program.kernels),
            launches=len(self.program.launches),
            operators=self._operators(),
            cache=self._cache_report(),
            seconds=self._seconds,
            notes=self.notes,
        )

    def _cache_report(self) -> CacheReport:
        from jitdelegate.report import CacheReport

        lookup = self._lookup
        outcome = "off" if lookup.kind == OFF else "hit" if lookup.hit and not self._healed else "miss"
        return CacheReport(
            outcome=outcome,
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
        self.session = self._fallback = None


def _keep(source: Source) -> str | bytes:
    """What finds the same model again later: an absolute path, or bytes that nobody can change."""
    if isinstance(source, bytes):
        return source
    try:
        if isinstance(source, str | os.PathLike):
            return os.path.abspath(os.fsdecode(source))
        return bytes(memoryview(source))
    except (OSError, ValueError, TypeError) as error:  # no working directory, or neither a path nor bytes
        raise ModelError(f"could not open {source!r}: {error}; expected a path or the content of a file") from error


def default_threads() -> int:
    """The CPUs that this process may use, at most MOST_THREADS."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST_THREADS, usable)


def options_key(options: Options, model: str, architecture: str = "") -> Key:
    """The cache key of a model with the fingerprint `model` under these options.

    Args:
        architecture: of the GPU to compile for, as "sm_90"; "" for the CPU.
    Raises:
        DeviceError: the CPU lacks the features that were asked for.
    """
    further: tuple[tuple[str, str], ...] = ()
    if architecture:
        target, features, loader = "cuda", architecture, "cubin"
        further = (("precision", options.precision),)
    elif options.target == "litert":
        target, features, loader = "litert", "", "none"
    else:
        target, features = "cpu", _features(options.cpu_features)
        loader = "object" if features == "generic" else "flat"
    return model_key(
        fingerprint=model, token=options.model_token, target=target, features=features, loader=loader, options=further
    )


def _features(asked: str) -> str:
    """The instruction set to compile for, "auto" being the widest that this CPU has."""
    widest = level()
    if asked == "auto":
        return widest
    if LEVELS.index(asked) > LEVELS.index(widest):
        raise DeviceError(f"cpu_features is {asked!r}, but this CPU offers {widest!r}")
    return asked
