"""The load path as four functions: resolve the target, find the key, fetch the program, make a session.

    options -> resolve_target -> devices -> find_key -> Key -> fetch -> Executable -> make_session

`load` calls them for a model, `specialize` for one of its further programs. `recompile` replaces a program that is
damaged, or whose GPU fails.
"""

from __future__ import annotations

import time

from jitdelegate.base.options import DEBUG_LEVEL
from jitdelegate.base.targets import AUTO, CPU
from jitdelegate.engine.executable import Executable
from jitdelegate.engine.model_file import ChangedModelError
from jitdelegate.errors import DeviceError, GpuError, OptionError, ProgramError
from jitdelegate.program.program import LITERT
from jitdelegate.runtime.cache.key import CHOSEN, TOOLCHAIN, model_key, variant_parts
from jitdelegate.runtime.cache.store import open_store
from jitdelegate.targets import candidates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from jitdelegate.base.options import DelegateOptions
    from jitdelegate.engine.hosted_model import HostedModel
    from jitdelegate.engine.model_file import ModelFile
    from jitdelegate.runtime.cache.key import Key, Parts
    from jitdelegate.runtime.cache.store import Lookup, Store
    from jitdelegate.runtime.io_binding import IOBinding
    from jitdelegate.targets.target import Device

WIDENED = "SVDF: LiteRT's kernel takes states of int8 for int16, so a copy of the model runs, whose states are int16."
OPENINGS = 3
"""Attempts to open a model whose file changes meanwhile."""
REPLACEABLE = ProgramError, GpuError
"""Errors of runs after which `recompile` finds another program."""


def load(source: ModelFile, *, notes: Sequence[str] = (), hosted: bool = False) -> Executable:
    """The program of a model's first subgraph for the file's shapes, ready to run.

    Args:
        notes: sentences for the report.
        hosted: for LiteRT's own interpreter, which asks for the partitions.
    Raises:
        ModelError: the file is missing, cannot be read, is not a model, or cannot be run by LiteRT either.
        DeviceError: this machine lacks the requested target or CPU features.
        DelegationError: full delegation was required, and some operators cannot be delegated.
    """
    told, seconds = [*notes], dict[str, float]()
    variant = variant_parts(0, hosted=hosted)
    try:
        devices = resolve_target(source.options, told, seconds)
        for left in reversed(range(OPENINGS)):
            try:
                return _open(source, devices, variant, told, dict(seconds))
            except ChangedModelError:
                if not left:
                    raise
                source.begin_anew()
    except MemoryError as error:
        raise _no_memory(source) from error
    raise AssertionError("the last opening returns or raises")


def open_model(source: ModelFile, notes: Sequence[str] = ()) -> Executable:
    """As `load`; LiteRT is prepared as well, and what runs there is announced, as far as the shapes are final."""
    executable = load(source, notes=notes)
    try:
        executable.allocate()
    except DeviceError:
        if not executable.is_open:  # inputs may have sizes that do
            raise
    if not executable.is_open:  # else it may depend on the sizes of the first run's inputs what runs on LiteRT
        executable.announce()
    return executable


def specialize(main: Executable, variant: Parts) -> Executable:
    """A further program of a model: for another subgraph, other shapes or values, or LiteRT's interpreter.

    Args:
        variant: the parts of the key that differ from the main program's.
    Raises:
        ModelError, DeviceError, DelegationError: as `load`.
    """
    try:
        return _open(main.source, main.devices, variant, main.notes, {}, chosen=main.program.part(CHOSEN))
    except MemoryError as error:
        raise _no_memory(main.source) from error


def open_hosted(source: ModelFile) -> HostedModel:
    """The programs for LiteRT's own interpreter.

    Raises:
        OptionError: the options ask for other inputs and outputs than those of the file. Also the errors of `load`.
    """
    refuse_other_ports(source.options)
    from jitdelegate.engine.hosted_model import HostedModel  # few models need it

    return HostedModel(load(source, hosted=True), specialize, recompile)


def refuse_other_ports(options: DelegateOptions) -> None:
    """
    Raises:
        OptionError: the options ask for other inputs and outputs than the file's, which are LiteRT's interpreter's.
    """
    if options.port_key:
        words = "LiteRT's own interpreter has the inputs and outputs of the file; expected jitdelegate.Interpreter"
        raise OptionError(f"{options.port_key}, but {words}, or none of these options")


def resolve_target(options: DelegateOptions, notes: list[str], seconds: dict[str, float]) -> tuple[Device, ...]:
    """Devices of this machine for the option `target`, in the order in which they are tried.

    Args:
        notes: receives one sentence per target that "auto" did not take.
        seconds: receives the time to look for an accelerator.
    Raises:
        DeviceError: this machine lacks the requested target.
    """
    devices: list[Device] = []
    for target in candidates(options, notes):
        start = time.perf_counter()
        try:
            devices.append(target.find_device(options))
        except (DeviceError, ImportError, OSError) as error:  # the machine may be out of files
            if options.target != AUTO:
                raise DeviceError(f"target is {target.name!r}, but {error}") from error
            notes.append(f"not on {target.title}: {error}")
            continue
        if not target.is_accelerator:
            break  # the CPU runs whatever an accelerator cannot
        seconds["device"] = time.perf_counter() - start
    if not devices:
        why = "; ".join(notes)
        if options.hardware_accelerators & CPU:
            raise DeviceError(f"no target can be used: {why}")
        raise DeviceError(f"only a GPU is asked for, but {why}; GPU | CPU runs the model on the CPU there")
    return tuple(devices)


def find_key(device: Device, options: DelegateOptions, fingerprint: str, variant: Parts = ()) -> Key:
    """The cache key of a model under these options, for a device that this machine may lack.

    Args:
        fingerprint: of the model.
        variant: further parts for one of the model's further programs.
    Raises:
        DeviceError: the device lacks a requested feature.
        OptionError: a file that an option names cannot be read.
    """
    own = device.key_parts(options)
    compiled = (("partitions", options.partition_key), ("quantization", options.quantization_key))
    named = (*(compiled if own.target != LITERT else ()), ("ports", options.port_key))
    changed = tuple(part for part in named if part[1])
    return model_key(fingerprint, own, token=options.model_token, options=(*changed, *variant))


def fetch(executable: Executable, store: Store) -> None:
    """Set the executable's program, from the cache or the compiler; where the compiler as a whole failed and LiteRT may
    run the model, one without code.

    All time but that of the compiler counts as the cache's.

    Raises:
        ModelError: the bytes are not a model, or its file has changed.
        DeviceError: this machine cannot compile for the device.
    """
    seconds = executable.seconds
    executable.key, no_compiler = executable.device.usable_key(executable.key, executable.source.options)
    start, before = time.perf_counter(), sum(seconds.values())
    executable.lookup = _similar(executable, store) or store.get(executable.key)
    if not executable.lookup.hit or executable.program.failure:
        from jitdelegate.engine.miss import fill  # not before: a warm cache needs none

        fill(executable, store, no_compiler)
    executable.source.opened(executable.subgraph, executable.program.signatures)
    for note in executable.program.notes:
        executable.note(note)
    chosen = executable.program.part(CHOSEN)
    if chosen:
        executable.key = executable.key.changed(CHOSEN, chosen)  # a damaged program's successor has its precision
        executable.note(f"precision is 'auto': {chosen}")
    compiling = sum(seconds.values()) - before
    seconds["cache"] = time.perf_counter() - start - compiling


def make_session(executable: Executable) -> None:
    """Start the program in a session, or on LiteRT.

    Raises:
        DeviceError: the program does not run on the device.
        DelegationError: full delegation was required, and some operators cannot be delegated.
        ProgramError: the program is damaged.
    """
    source, program = executable.source, executable.program
    source.narrow_states = bool(program.narrow_states)
    if source.narrow_states:
        executable.note(WIDENED)
    executable.session = None
    if executable.hosted:
        return
    if source.options.require_full_delegation and not program.shape_inputs:
        executable.require_full_delegation()
    if program.target == LITERT:
        if len(executable.devices) > 1:
            raise DeviceError(executable.reason)  # the next device may compile it
        source.fallback()
    elif program.loader == "delegate":
        _host(executable)
    else:
        _start(executable)


def recompile(executable: Executable, failed: IOBinding | None, error: Exception) -> None:
    """Replace a damaged program: by the file's content if that is whole now, else by compiling it again. A program
    whose GPU failed is replaced by that for the next device.

    Args:
        failed: the session that found the damage, or whose GPU failed. Its states and persistent memory go to the new
            session. Nothing happens if another thread has replaced it already.
        error: one of `REPLACEABLE`.
    Raises:
        ModelError: the program has to be compiled, and the model's file is missing or changed.
        DeviceError: out of memory, there is no further device, or the model loses its variables.
    """
    with executable.lock:
        if executable.session is not failed:
            return
        try:
            if isinstance(error, GpuError):
                _leave_device(executable, failed, error)
            else:
                _replace(executable, str(error), was_whole=failed is not None and _has_changed(failed))
                executable.damage = f"the entry was damaged: {error}"
            if failed is not None:
                _take_over(executable, failed, error)
        except MemoryError as trouble:
            raise _no_memory(executable.source) from trouble


def _take_over(executable: Executable, failed: IOBinding, error: Exception) -> None:
    """
    Raises:
        DeviceError: the variables are lost.
    """
    session = executable.session
    if session is not None:
        try:
            session.take_over(failed)
        except GpuError:  # the memory of the variables has failed too
            session.reset_states(resources=True)
            raise DeviceError(f"{error}; on the CPU its variables have their first values again") from error
    elif failed.program.states:
        why = executable.reason.rstrip(".")
        raise DeviceError(f"{error}; {why}; on LiteRT its variables have their first values again")


def _open(
    source: ModelFile,
    devices: Sequence[Device],
    variant: Parts,
    notes: list[str],
    seconds: dict[str, float],
    chosen: str = "",
) -> Executable:
    """The program on the first device that can run it.

    Args:
        chosen: the precision that was chosen for the model's main program; "" where none was.
    """
    start = time.perf_counter()
    fingerprint = source.fingerprint()
    seconds["fingerprint"] = time.perf_counter() - start
    for position, device in enumerate(devices):
        key = find_key(device, source.options, fingerprint, variant).changed(CHOSEN, chosen)
        executable = Executable(source, devices[position:], key, hosted=key.hosted, notes=notes, seconds=seconds)
        try:
            fetch(executable, source.store)
            _open_session(executable)
            if DEBUG_LEVEL:
                _log(executable)
            return executable
        except DeviceError as error:
            if len(executable.devices) == 1:
                raise
            _tell_left(executable, error)
            tried = sum(taken for name, taken in seconds.items() if name != "fingerprint")
            seconds = {"device": tried, "fingerprint": seconds["fingerprint"]}
    raise AssertionError("the last device returns or raises")


def _leave_device(executable: Executable, failed: IOBinding | None, error: GpuError) -> None:
    """Start the program for the next device.

    Raises:
        GpuError: `error`, as there is none, or as nobody knows whether the run has changed the variables.
    """
    if len(executable.devices) == 1 or (failed is not None and _has_states(failed)):
        raise error
    _tell_left(executable, error)
    key = executable.key
    variant = variant_parts(key.subgraph, key.shapes, key.values)
    other = _open(executable.source, executable.devices[1:], variant, executable.notes, {})
    if executable.session is failed:
        executable.become(other)
    else:  # the model was closed meanwhile
        other.close()


def _has_states(failed: IOBinding) -> bool:
    """Whether there are variables with other than their first values."""
    try:
        return bool(failed.program.states) and any(content is not None for content in failed.states_so_far())
    except GpuError:
        return False  # they are gone


def _tell_left(executable: Executable, error: DeviceError) -> None:
    """Note why the device does not run the program; where it failed, warn too, once per model."""
    target, source = executable.device.target, executable.source
    executable.note(f"not on {target.title}: {error}")
    if isinstance(error, GpuError) and source.failure_told.acquire(blocking=False):
        from jitdelegate.base.user_warning import warn_user  # not before: few GPUs fail
        from jitdelegate.errors import DelegateWarning

        warn_user(f"{source.name} runs on {target.left_to}: {error}", DelegateWarning)


def _log(executable: Executable) -> None:
    from jitdelegate.engine.decisions import log_decisions  # few people look

    log_decisions(executable)


def _open_session(executable: Executable) -> None:
    start = time.perf_counter()
    try:
        make_session(executable)
    except ProgramError as error:
        recompile(executable, None, error)
    executable.seconds["open"] = time.perf_counter() - start


def _similar(executable: Executable, store: Store) -> Lookup | None:
    """A cached program for this or a similar device, where this machine cannot compile; else None."""
    key, device = executable.key, executable.device
    if key.part(TOOLCHAIN):
        return None
    alternatives = device.alternatives(key)
    stored = store.first([key, *alternatives]) if alternatives else None
    if stored is None:
        return None
    executable.key, lookup = stored
    if executable.key is not key:
        executable.note(device.difference(executable.key))
    return lookup


def _start(executable: Executable) -> None:
    """Start the compiled program; fall back to LiteRT where no device can, as without executable memory."""
    in_partitions = executable.program.loader == "partitions"
    try:
        executable.session = _partitioned(executable) if in_partitions else executable.open(executable.program)
    except (DeviceError, MemoryError) as error:
        if len(executable.devices) > 1 or not (in_partitions or executable.source.options.target == AUTO):
            raise
        trouble = "partitions of the model cannot be put together" if in_partitions else "program cannot be loaded"
        _begin_on_litert(executable, f"the compiled {trouble}: {str(error) or 'no memory'}.")


def _partitioned(executable: Executable) -> IOBinding:
    from jitdelegate.runtime.partitioned_session import PartitionedSession  # most models are compiled whole

    workspace = executable.workspace()
    return PartitionedSession(
        executable.program, lambda program: executable.open(program, workspace), executable.source.threads
    )


def _host(executable: Executable) -> None:
    """Run the model in LiteRT's interpreter, with the compiled partitions as a delegate."""
    from jitdelegate.engine.hosted_model import HostedModel  # few models need it
    from jitdelegate.engine.litert_delegate.trust import refusal

    source = executable.source
    trouble = refusal(source.store.machine_notes)
    if trouble:
        _begin_on_litert(executable, f"the compiled partitions cannot go into LiteRT's interpreter: {trouble}.")
        return
    if not source.hosted:  # all programs share one interpreter, which has the model's variables
        if source.in_use:
            reason = "LiteRT's interpreter runs the model already, and goes on without the compiled partitions."
            _begin_on_litert(executable, reason)
            return
        source.host(HostedModel(_client(executable), specialize, recompile).delegate)
    source.fallback()


def _client(executable: Executable) -> Executable:
    """A copy of the executable without LiteRT's interpreter, which would otherwise keep itself alive."""
    source, notes = executable.source.apart(), executable.notes
    if executable.subgraph or executable.resized or executable.values:
        return _open(source, executable.devices, variant_parts(0, hosted=True), notes, {})
    client = Executable(source, executable.devices, executable.key, hosted=True, notes=notes, seconds={})
    client.lookup, client.hosted_sessions = executable.lookup, executable.hosted_sessions
    return client


def _begin_on_litert(executable: Executable, reason: str) -> None:
    """Fall back to LiteRT.

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
        was_whole: the file has changed since it was opened, and may hold a good program now.
    """
    store = executable.source.store
    store.private_weights = True  # later changes of the file cannot reach the new program
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
    """Whether the file that the session maps was written meanwhile."""
    return session.shared is not None and session.shared.changes > 0


def _no_memory(source: ModelFile) -> DeviceError:
    return DeviceError(f"no memory to open {source.name}")
