"""Where the runtime runs each operator: the runtime's own decision, without a cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jitdelegate.base.options import DelegateOptions
from jitdelegate.compiler.compile import compile_model
from jitdelegate.engine.executable import Executable
from jitdelegate.engine.load_path import find_key, load, resolve_target, specialize
from jitdelegate.engine.model_file import ModelFile
from jitdelegate.errors import DeviceError, JitDelegateError
from jitdelegate.ir.graph import Model
from jitdelegate.passes.running_subgraphs import callees
from jitdelegate.program.program import LITERT, Operator, Program
from jitdelegate.program.read import read as read_program
from jitdelegate.runtime.cache.key import FEATURES, TOOLCHAIN, variant_parts
from jitdelegate.targets.target import Device
from jitdelegate.tflite.read import read

MAIN, SIGNATURE, CONTROL_FLOW = "main", "signature", "control flow"
OPENING = {"device", "fingerprint", "cache", "open", "allocate"}
"""Stages of a start without a compilation."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One subgraph and the program that computes it.

    Attributes:
        number: index of the subgraph.
        kind: what runs it.
        operators: with their places; not the program's if the program cannot be used here.
        target: name of a target.
        compile_seconds: that the compiler took for it.
    """

    number: int
    kind: str
    program: Program
    operators: Sequence[Operator]
    target: str
    compile_seconds: float

    @property
    def loader(self) -> str:
        return "none" if self.target == LITERT else self.program.loader

    @property
    def is_hosted(self) -> bool:
        """Whether LiteRT's own interpreter runs it, with compiled partitions."""
        return self.kind == CONTROL_FLOW or self.loader == "delegate"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The runtime's decisions about a model.

    Attributes:
        entries: the main subgraph, further subgraphs of signatures, then subgraphs that operators on LiteRT run, which
            may have compiled partitions.
        notes: the runtime's sentences about the model as a whole.
    """

    model: Model
    source: ModelFile
    options: DelegateOptions
    entries: tuple[Entry, ...]
    notes: tuple[str, ...]


def verdict(path: str, options: DelegateOptions, device: Device | None = None) -> Verdict:
    """The decisions that `load` would make; no cache is used if `options` have none.

    There is no warning: an analysis tells more, and `load` has to give its one warning later.

    Args:
        device: a device that this machine may lack; None for this machine's.
    Raises:
        ModelError, DeviceError, DelegationError: as `load`. For a `device`, LiteRT is not tried.
    """
    source = ModelFile(path, options)
    try:
        return _here(source) if device is None else _elsewhere(source, device)
    finally:
        source.close()


def verdict_without_litert(path: str, options: DelegateOptions) -> Verdict:
    """Where operators would run if LiteRT took the model.

    Raises:
        ModelError, DeviceError: the model cannot be read, or this machine lacks the target.
    """
    source = ModelFile(path, options)
    try:
        return _elsewhere(source, resolve_target(options, [], {})[0])
    finally:
        source.close()


def _here(source: ModelFile) -> Verdict:
    opened = load(source)
    try:
        _allocate(opened)
        model = read(source.content())
        notes: list[str] = []
        entries = [_entry(opened, MAIN)]
        for number, kind in _further(model, entries):
            try:
                other = specialize(opened, variant_parts(number, hosted=kind == CONTROL_FLOW))
            except JitDelegateError as error:
                notes.append(f"Subgraph {number} cannot be run: {error}")
                continue
            entries.append(_entry(other, kind))
            other.close()
        return Verdict(model, source, source.options, tuple(entries), (*opened.notes, *notes))
    finally:
        opened.close()


def _entry(executable: Executable, kind: str) -> Entry:
    seconds = sum(seconds for stage, seconds in executable.seconds.items() if stage not in OPENING)
    return Entry(executable.subgraph, kind, executable.program, executable.operators, executable.target, seconds)


def _allocate(opened: Executable) -> None:
    """Allocate as `load` does: LiteRT may refuse the model, which is no error if inputs have open sizes."""
    try:
        opened.allocate()
    except DeviceError:
        if not any(-1 in port.shape_signature for port in opened.program.inputs):
            raise


def _elsewhere(source: ModelFile, device: Device) -> Verdict:
    fingerprint, content = source.fingerprint(), source.content()

    def entry(number: int, kind: str) -> Entry:
        key = find_key(device, source.options, fingerprint, variant_parts(number, hosted=kind == CONTROL_FLOW))
        if not key.part(TOOLCHAIN):
            asked = f"{device.target.name}:{key.part(FEATURES)}"
            missing = f"its compilers are not installed: install jitdelegate's extra {device.target.name}"
            raise DeviceError(f"target is {asked!r}, but {missing}")
        seconds: dict[str, float] = {}
        program = read_program(b"".join(compile_model(content, source.options, key, seconds)))
        return Entry(number, kind, program, program.operators, program.target, sum(seconds.values()))

    model = read(content)
    entries = [entry(0, MAIN)]
    entries += [entry(number, kind) for number, kind in _further(model, entries)]
    return Verdict(model, source, source.options, tuple(entries), ())


def _further(model: Model, entries: Sequence[Entry]) -> Iterator[tuple[int, str]]:
    """(subgraph, kind) of all subgraphs but the main one; `entries` may grow meanwhile."""
    signed = sorted({signature.graph for signature in model.signatures} - {0})
    for number in signed:
        yield number, SIGNATURE
    if entries[0].loader == "delegate":
        for number in _called(model, entries[0]):
            if number not in signed:
                yield number, CONTROL_FLOW


def _called(model: Model, main: Entry) -> list[int]:
    """Subgraphs that operators on LiteRT run, directly or through others, in order."""
    found: list[int] = []
    nodes = model.graphs[main.number].nodes
    left = (nodes[one.index] for one in main.operators if one.place == LITERT)
    pending = [number for node in left for number in callees(node)]
    while pending:
        number = pending.pop()
        if number and number not in found:
            found.append(number)
            pending += (callee for node in model.graphs[number].nodes for callee in callees(node))
    return sorted(found)
