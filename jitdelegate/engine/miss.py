"""After a miss: the compiler's program, or one without code where the compiler failed and LiteRT may run the model."""

from __future__ import annotations

import time

from jitdelegate.base.targets import AUTO
from jitdelegate.errors import CompilerFailedError, DeviceError
from jitdelegate.program.program import LITERT
from jitdelegate.runtime.cache.store import ABSENT, Lookup

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from jitdelegate.engine.executable import Executable
    from jitdelegate.program.program import FileParts
    from jitdelegate.runtime.cache.store import Store

NO_MEMORY = "there is no memory to compile it or to open its program"


def fill(executable: Executable, store: Store, no_compiler: str) -> None:
    """Set the executable's program after a look-up that found none, or one that remembers a failure.

    Args:
        no_compiler: why nothing can be compiled for the device; "" if it can.
    Raises:
        ModelError, DeviceError: as `load_path.fetch`.
        CompilerFailedError: the compiler as a whole failed, and LiteRT may not run the model.
    """
    source, compiling = executable.source, _Compiling(executable, store, no_compiler)
    may_leave_to_litert = len(executable.devices) == 1 and source.options.target in (AUTO, LITERT)
    failed: CompilerFailedError | None = None
    has_program = True
    try:
        executable.lookup = store.fill(executable.key, compiling.parts, executable.lookup)
        is_new = executable.outcome == "miss" or bool(executable.lookup.remote)
        if is_new and isinstance(source.origin, str):
            store.remember_model(source.fingerprint(), source.origin)
        store.sweep()
        if executable.program.failure:
            failed = compiling.failed or CompilerFailedError(_remembered(executable))
            executable.lookup.reason = str(failed)
    except (CompilerFailedError, MemoryError) as error:
        if not may_leave_to_litert:
            raise
        failed, has_program = CompilerFailedError(str(error) or NO_MEMORY), False
    if failed is None:
        return
    if not may_leave_to_litert:
        raise failed
    executable.failure = str(failed)
    failed = compiling.failed = None  # the frames of its traceback hold the model
    if not has_program:
        executable.lookup = _without_code(executable, store)


class _Compiling:
    """The compilation of one executable's program.

    Attributes:
        failed: the failure of the compiler as a whole, which lasts; None where it did not fail.
    """

    def __init__(self, executable: Executable, store: Store, no_compiler: str) -> None:
        self.failed: CompilerFailedError | None = None
        self._executable = executable
        self._store = store
        self._no_compiler = no_compiler

    def parts(self) -> FileParts:
        """The program's file. A failure that lasts is remembered by a program without code."""
        if self._no_compiler:
            raise DeviceError(f"there is no program for it in the cache, and {self._no_compiler}")
        from jitdelegate.compiler.entry import compiled, remembered  # not before: a remembered failure needs none

        executable, source, seconds = self._executable, self._executable.source, self._executable.seconds
        key = executable.key
        if executable.device.precisions(key):
            from jitdelegate.engine.choose_precision import decided  # few models leave it to a measurement

            before = time.perf_counter()
            key = decided(executable)
            seconds["choose precision"] = time.perf_counter() - before
        sources = self._store.weight_sources(key)

        def make(content: ReadableBuffer) -> FileParts:
            try:
                return compiled(content, source.options, key, seconds, sources, source.reading)
            except CompilerFailedError as error:
                if error.may_pass or executable.is_left_to_litert:
                    raise
                self.failed = error
                return remembered(content, key, str(error))

        return source.make(make)


def _without_code(executable: Executable, store: Store) -> Lookup:
    """A program without code, after the executable's failure. It is not stored, so that the next start tries again."""
    from jitdelegate.compiler.entry import uncompiled

    failure = executable.failure
    program = executable.source.make(lambda content: uncompiled(content, executable.key, failure))
    return Lookup(ABSENT if store.directory else store.kind, failure, program=program)


def _remembered(executable: Executable) -> str:
    """The failure of an earlier start, and how to try again."""
    name = executable.key.entry_name()
    return f"{executable.program.failure}; `python -m cache_tools rm {name}` lets the next start try again"
