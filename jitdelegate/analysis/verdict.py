"""Where the runtime runs each operator, found out on the runtime's own road, without a cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jitdelegate.cache.key import TOOLCHAIN, variant_parts
from jitdelegate.compiler.compile import compile_model
from jitdelegate.engine.executable import Executable, options_key
from jitdelegate.engine.model_file import ModelFile
from jitdelegate.errors import DeviceError, JitDelegateError
from jitdelegate.ir.graph import Model
from jitdelegate.options import Options
from jitdelegate.passes.running_subgraphs import callees
from jitdelegate.program.program import Operator, Program
from jitdelegate.program.read import read as read_program
from jitdelegate.tflite.read import read

MAIN, SIGNATURE, CONTROL_FLOW = "main", "signature", "control flow"
LITERT = "litert"


@dataclass(frozen=True, slots=True)
class Entry:
    """One subgraph and the program that computes it.

    Attributes:
        number: of the subgraph.
        kind: what enters it.
        operators: with their places; others than the program's where the program cannot be used here.
        target: "cpu", "cuda" or "litert".
    """

    number: int
    kind: str
    program: Program
    operators: Sequence[Operator]
    target: str

    @property
    def loader(self) -> str:
        return "none" if self.target == LITERT else self.program.loader

    @property
    def is_hosted(self) -> bool:
        """Whether LiteRT's own interpreter runs it with compiled partitions in it."""
        return self.kind == CONTROL_FLOW or self.loader == "delegate"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the runtime makes of a model.

    Attributes:
        entries: the main subgraph's, those of further subgraphs that signatures enter, then those of subgraphs that
            operators on LiteRT enter and where compiled partitions may be.
        notes: what the runtime says about the model as a whole.
    """

    model: Model
    source: ModelFile
    options: Options
    entries: tuple[Entry, ...]
    notes: tuple[str, ...]


class _Quiet(Executable):
    """As for `load`, but nobody is warned: an analysis tells more, and `load` is to give its one warning yet."""

    def announce(self) -> None:
        pass

    def entry(self, number: int, kind: str) -> Entry:
        return Entry(number, kind, self.program, self._operators(), self.target)


def verdict(path: str, options: Options, gpu: str = "") -> Verdict:
    """What `load` makes of the model; no cache is read or written if `options` have none.

    Args:
        gpu: a kind that need not be here, as "sm_90"; "" for what this machine has.
    Raises:
        ModelError, DeviceError, DelegationError: what `load` raises. For `gpu`, LiteRT is not asked.
    """
    source = ModelFile(path, options)
    try:
        if gpu:
            return _elsewhere(source, gpu)
        return _here(source)
    finally:
        source.close()


def _here(source: ModelFile) -> Verdict:
    opened = _Quiet(source)
    try:
        _allocate(opened)
        model = read(source.content())
        notes: list[str] = []
        entries = [opened.entry(0, MAIN)]
        for number, kind in _further(model, entries):
            variant = variant_parts(number, hosted=kind == CONTROL_FLOW)
            try:
                other = _Quiet(source, main=opened, variant=variant)
            except JitDelegateError as error:
                notes.append(f"Subgraph {number} cannot be run: {error}")
                continue
            entries.append(other.entry(number, kind))
            other.close()
        return Verdict(model, source, source.options, tuple(entries), (*opened.notes, *notes))
    finally:
        opened.close()


def _allocate(opened: Executable) -> None:
    """As `load` does: LiteRT may yet refuse the model, unless inputs may have sizes that do."""
    try:
        opened.allocate()
    except DeviceError:
        if not any(-1 in port.shape_signature for port in opened.program.inputs):
            raise


def _elsewhere(source: ModelFile, gpu: str) -> Verdict:
    fingerprint, content = source.fingerprint(), source.content()

    def entry(number: int, kind: str) -> Entry:
        variant = variant_parts(number, hosted=kind == CONTROL_FLOW)
        key = options_key(source.options, fingerprint, gpu, variant)
        if not key.part(TOOLCHAIN):
            missing = "its compilers are not installed: pip install jitdelegate[cuda]"
            raise DeviceError(f"target is 'cuda:{gpu}', but {missing}")
        program = read_program(compile_model(content, source.options, key, {}))
        return Entry(number, kind, program, program.operators, program.target)

    model = read(content)
    entries = [entry(0, MAIN)]
    entries += [entry(number, kind) for number, kind in _further(model, entries)]
    return Verdict(model, source, source.options, tuple(entries), ())


def _further(model: Model, entries: Sequence[Entry]) -> Iterator[tuple[int, str]]:
    """(subgraph, kind) of those beside the main one; `entries` may grow meanwhile."""
    signed = sorted({signature.graph for signature in model.signatures} - {0})
    for number in signed:
        yield number, SIGNATURE
    if entries[0].loader == "delegate":
        for number in _called(model, entries[0]):
            if number not in signed:
                yield number, CONTROL_FLOW


def _called(model: Model, main: Entry) -> list[int]:
    """Subgraphs that operators on LiteRT enter, and those that these enter, in order."""
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
