"""The load path as four functions: resolve the target, find the key, fetch the program, make a session.

    options -> resolve_target -> devices -> find_key -> Key -> fetch -> Executable -> make_session

`load` calls them for a model, `specialize` for one of its further programs, `recompile` where a program proved bad.
"""

from __future__ import annotations

import time

from jitdelegate.cache.key import TOOLCHAIN, model_key, variant_parts
from jitdelegate.cache.store import ABSENT, open_store
from jitdelegate.engine.executable import LITERT, Executable
from jitdelegate.engine.model_file import ChangedModelError
from jitdelegate.errors import CompilerFailedError, DeviceError, ProgramError
from jitdelegate.options import DEBUG_LEVEL
from jitdelegate.targets.find import candidates
from jitdelegate.targets.table import AUTO

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from jitdelegate.cache.key import Key, Parts
    from jitdelegate.cache.store import Lookup, Store
    from jitdelegate.engine.hosted_model import HostedModel
    from jitdelegate.engine.model_file import ModelFile
    from jitdelegate.options import Options
    from jitdelegate.runtime.io_binding import IOBinding
    from jitdelegate.targets.target import Device

OPENINGS = 3
"""How often a model is opened whose file changes meanwhile."""


def load(source: ModelFile, *, notes: Sequence[str] = (), hosted: bool = False) -> Executable:
    """The program of a model's first subgraph for the shapes that its file says, ready to run.

    Args:
        notes: sentences for the report.
        hosted: for LiteRT's own interpreter, which asks for the partitions.
    Raises:
        ModelError: there is no such file, it cannot be read, is not a model, or cannot be run by LiteRT either.
        DeviceError: this machine lacks the target or the CPU features that were asked for.
        DelegationError: full delegation was required, and some operators cannot be delegated.
    """
    told, seconds = [*notes], dict[str, float]()
    variant = variant_parts(0, hosted=hosted)
    try:
        devices = resolve_target(source.options, told, seconds)
        for left in reversed(range(OPENINGS)):
            try:
                return _announced(_open(source, devices, variant, told, dict(seconds)))
            except ChangedModelError:
                if not left:
                    raise
                source.begin_anew()
    except MemoryError as error:
        raise _no_memory(source) from error
    raise AssertionError("the last opening returns or raises")


def specialize(main: Executable, variant: Parts) -> Executable:
    """A further program of a model: for another subgraph, other shapes or values, or LiteRT's interpreter.

    Args:
        variant: the parts of the key that tell it from the main one.
    Raises:
        ModelError, DeviceError, DelegationError: as `load`.
    """
    try:
        return _announced(_open(main.source, main.devices, variant, main.notes, {}))
    except MemoryError as error:
        raise _no_memory(main.source) from error


def open_hosted(source: ModelFile) -> HostedModel:
    """The programs for LiteRT's own interpreter; raises what `load` raises."""
    from jitdelegate.engine.hosted_model import HostedModel  # few models are of that kind

    return HostedModel(load(source, hosted=True), specialize, recompile)


def resolve_target(options: Options, notes: list[str], seconds: dict[str, float]) -> tuple[Device, ...]:
    """The devices of this machine that the option `target` allows, in the order in which they are tried.

    Args:
        notes: receives why a target is not among them that "auto" would have taken.
        seconds: receives the time that looking for a device took that is not always there.
    Raises:
        DeviceError: the target that was asked for is not there.
    """
    found: list[Device] = []
    for target in candidates(options.target):
        start = time.perf_counter()
        try:
            found.append(target.find_device(options))
        except DeviceError as error:
            if options.target != AUTO:
                raise DeviceError(f"target is {target.name!r}, but {error}") from error
            notes.append(f"not on {target.title}: {error}")
            continue
        if target.is_accelerator:
            seconds["device"] = time.perf_counter() - start
    return tuple(found)


def find_key(device: Device, options: Options, fingerprint: str, variant: Parts = ()) -> Key:
    """The cache key of a model under these options, on a device that need not be here.

    Args:
        fingerprint: of the model.
        variant: the parts that tell one of the model's further programs from the main one.
    Raises:
        DeviceError: the device lacks what was asked for.
    """
    own = device.key_parts(options)
    has_partitions = options.partition_key and own.target != LITERT
    partitions = (("partitions", options.partition_key),) if has_partitions else ()
    return model_key(fingerprint, own, token=options.model_token, options=(*partitions, *variant))


def fetch(executable: Executable, store: Store) -> None:
    """Give an executable the program of its key, from the cache or the compiler; where this has failed and LiteRT may
    run the model, a program without code.

    What is not compiling counts as the cache's time.

    Raises:
        ModelError: the bytes are not a model, or its file has changed.
        DeviceError: nothing can compile for the device.
    """
    source, seconds = executable.source, executable.seconds
    executable.key, no_compiler = executable.device.usable_key(executable.key, source.options)

    def compile() -> bytes:
        if no_compiler:
            raise DeviceError(f"there is no program for it in the cache, and {no_compiler}")
        from jitdelegate.compiler.entry import compiled  # a warm cache needs none

        return compiled(source.content(), source.options, executable.key, seconds)

    start, before = time.perf_counter(), sum(seconds.values())
    try:
        executable.lookup = _similar(executable, store) or store.fetch(executable.key, compile)
    except CompilerFailedError as error:
        if len(executable.devices) > 1 or source.options.target not in (AUTO, LITERT):
            raise
        executable.failure = str(error)
        executable.lookup = _without_code(executable, store, error)
    compiling = sum(seconds.values()) - before
    seconds["cache"] = time.perf_counter() - start - compiling


def make_session(executable: Executable) -> None:
    """Put a session on the program, or LiteRT in its place.

    Raises:
        DeviceError: the program does not run on the device.
        DelegationError: full delegation was required, and some operators cannot be delegated.
        ProgramError: the program is damaged.
    """
    source, program = executable.source, executable.program
    source.narrow_states = bool(program.narrow_states)
    executable.session = None
    if executable.hosted:
        return
    if source.options.require_full_delegation and not program.shape_inputs:
        executable.require_full_delegation()
    if program.target == LITERT:
        if len(executable.devices) > 1:
            raise DeviceError(executable.reason)  # the next one may take it
        source.fallback()
    elif program.loader == "delegate":
        _host(executable)
    else:
        _start(executable)


def recompile(executable: Executable, failed: IOBinding | None, reason: str) -> None:
    """Replace a program that proved bad, by what its file holds now or else by one that is compiled anew.

    Args:
        failed: the session that found it out; nothing happens if another thread has replaced it already. The new one
            goes on with its states and persistent memory.
        reason: what was wrong.
    Raises:
        ModelError: nothing is left of the program, and the model's file has gone or changed.
        DeviceError: there is no memory for another one, or LiteRT goes on and variables are lost.
    """
    with executable.lock:
        if executable.session is not failed:
            return
        try:
            _replace(executable, reason, was_whole=failed is not None and _has_changed(failed))
            executable.damage = f"the entry was damaged: {reason}"
            if failed is not None and executable.session is not None:
                executable.session.take_over(failed)
        except MemoryError as error:
            raise _no_memory(executable.source) from error
        if failed is not None and executable.session is None and failed.program.states:
            why = executable.reason.rstrip(".")
            raise DeviceError(f"{reason}; {why}; on LiteRT its variables have their first values again")


def _open(
    source: ModelFile, devices: Sequence[Device], variant: Parts, notes: list[str], seconds: dict[str, float]
) -> Executable:
    """The program on the first of the devices that takes it."""
    start = time.perf_counter()
    fingerprint = source.fingerprint()
    seconds["fingerprint"] = time.perf_counter() - start
    for place, device in enumerate(devices):
        key = find_key(device, source.options, fingerprint, variant)
        executable = Executable(source, devices[place:], key, hosted=key.hosted, notes=notes, seconds=seconds)
        try:
            fetch(executable, source.store)
            _open_session(executable)
            if DEBUG_LEVEL:
                _log(executable)
            return executable
        except DeviceError as error:
            if len(executable.devices) == 1:
                raise
            executable.note(f"not on {device.target.title}: {error}")
            tried = sum(taken for name, taken in seconds.items() if name != "fingerprint")
            seconds = {"device": tried, "fingerprint": seconds["fingerprint"]}
    raise AssertionError("the last device returns or raises")


def _log(executable: Executable) -> None:
    from jitdelegate.engine.decisions import log_decisions  # few people look

    log_decisions(executable)


def _announced(executable: Executable) -> Executable:
    """Programs for other shapes or values, and those for LiteRT's interpreter, are announced with the main one."""
    is_further = executable.resized or executable.values or executable.hosted or executable.program.shape_inputs
    if executable.failure or not is_further:
        executable.announce()
    return executable


def _open_session(executable: Executable) -> None:
    start = time.perf_counter()
    try:
        make_session(executable)
    except ProgramError as error:
        recompile(executable, None, str(error))
    executable.seconds["open"] = time.perf_counter() - start


def _similar(executable: Executable, store: Store) -> Lookup | None:
    """Where nothing can be compiled, a program of the cache that runs on the device: the one that fits, or one for a
    similar device. None where there is none, or where one that fits can be compiled."""
    key, device = executable.key, executable.device
    if key.part(TOOLCHAIN):
        return None
    alternatives = device.alternatives(key)
    found = store.first([key, *alternatives]) if alternatives else None
    if found is None:
        return None
    executable.key, lookup = found
    if executable.key is not key:
        executable.note(device.difference(executable.key))
    return lookup


def _without_code(executable: Executable, store: Store, error: CompilerFailedError) -> Lookup:
    """A program that is not kept, so that the next start tries again."""
    from jitdelegate.cache.store import Lookup
    from jitdelegate.compiler.entry import uncompiled

    program = uncompiled(executable.source.content(), executable.key, error)
    return Lookup(ABSENT if store.place else store.kind, executable.failure, program=program)


def _start(executable: Executable) -> None:
    """Run the compiled program; on LiteRT where nothing else takes it, as on a system without executable memory."""
    in_partitions = executable.program.loader == "partitions"
    try:
        executable.session = _partitioned(executable) if in_partitions else executable.open(executable.program)
    except DeviceError as error:
        if len(executable.devices) > 1 or not (in_partitions or executable.source.options.target == AUTO):
            raise
        trouble = "partitions of the model cannot be put together" if in_partitions else "program cannot be loaded"
        _begin_on_litert(executable, f"the compiled {trouble}: {error}.")


def _partitioned(executable: Executable) -> IOBinding:
    from jitdelegate.runtime.partitioned_session import PartitionedSession  # most models are compiled whole

    return PartitionedSession(executable.program, executable.open, executable.source.threads)


def _host(executable: Executable) -> None:
    """LiteRT's interpreter runs the model, with the compiled partitions in it."""
    from jitdelegate.engine.hosted_model import HostedModel  # few models are of that kind
    from jitdelegate.litert_delegate.trust import refusal

    source = executable.source
    trouble = refusal(source.store.place)
    if trouble:
        _begin_on_litert(executable, f"the compiled partitions cannot go into LiteRT's interpreter: {trouble}.")
        return
    if not source.hosted:  # one interpreter has the model's variables, whichever program comes first
        if source.in_use:
            reason = "LiteRT's interpreter runs the model already, and goes on without the compiled partitions."
            _begin_on_litert(executable, reason)
            return
        source.host(HostedModel(_client(executable), specialize, recompile).delegate)
    source.fallback()


def _client(executable: Executable) -> Executable:
    """The main program for LiteRT's interpreter; without that interpreter, which would keep itself alive."""
    source, notes = executable.source.apart(), executable.notes
    if executable.subgraph or executable.resized or executable.values:
        return _open(source, executable.devices, variant_parts(0, hosted=True), notes, {})
    client = Executable(source, executable.devices, executable.key, hosted=True, notes=notes, seconds={})
    client.lookup, client.hosted_sessions = executable.lookup, executable.hosted_sessions
    return client


def _begin_on_litert(executable: Executable, reason: str) -> None:
    """The model runs on LiteRT after all.

    Raises:
        DelegationError: full delegation was required.
    """
    executable.fall_back(reason)
    if executable.source.options.require_full_delegation:
        executable.require_full_delegation()
    executable.source.fallback()


def _replace(executable: Executable, reason: str, *, was_whole: bool) -> None:
    """
    Args:
        was_whole: the file has changed since it was opened, and what it holds now may be a good program.
    """
    store = executable.source.store
    store.private_weights = True  # whatever happens to the file next, the new program does not notice
    if not was_whole:
        store.refuse(executable.key, reason)
    for _ in range(1 + was_whole):
        try:
            fetch(executable, store)
            make_session(executable)
            if executable.session is not None:
                executable.session.verify()
            return
        except ProgramError as error:
            store.refuse(executable.key, str(error))
    fetch(executable, open_store(False))  # an entry that can be neither removed nor replaced
    make_session(executable)


def _has_changed(session: IOBinding) -> bool:
    """Whether somebody has written the file that the session reads where it is mapped."""
    return session.shared is not None and session.shared.changes > 0


def _no_memory(source: ModelFile) -> DeviceError:
    return DeviceError(f"no memory to open {source.name}")
