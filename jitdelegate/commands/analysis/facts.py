"""The facts of an analysis as plain values; `to_dict` and --json use the same names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

SCHEMA = 1
"""Incremented when a name is removed or changes its meaning."""


@dataclass(frozen=True, slots=True)
class TensorFact:
    """A tensor that an operator reads or writes.

    Attributes:
        index: among the subgraph's tensors.
        shape: the program's sizes if known, else the file's.
        shape_signature: the file's sizes, -1 for any size.
        type: numpy's name, or TFLite's for types that numpy lacks.
    """

    index: int
    name: str
    shape: tuple[int, ...]
    shape_signature: tuple[int, ...]
    type: str
    quantized: bool
    constant: bool
    variable: bool


@dataclass(frozen=True, slots=True)
class NodeFact:
    """An operator of the file.

    Attributes:
        index: its position in the subgraph.
        code: TFLite's number, 32 for custom operators.
        delegated: whether LiteRT does not run it.
        place: name of a target, "litert", or "folded" (computed while compiling).
        reason: why LiteRT runs it; "" if it does not, or only because of other operators.
        partition: the number of its partition, None for none.
        kernel: the form of its kernel, None for none.
        execution: how compiled code computes a quantized operator, "integer", "dynamic" or "float_view"; "" for others.
        multiply_adds: estimate for one run, None if unknown; for a folded operator, the work saved.
        bytes: read and written by one run, constants included.
        inputs: None for absent ones.
    """

    index: int
    op: str
    code: int
    version: int
    custom: bool
    delegated: bool
    place: str
    reason: str
    partition: int | None
    kernel: str | None
    execution: str
    multiply_adds: int | None
    bytes: int
    inputs: tuple[TensorFact | None, ...]
    outputs: tuple[TensorFact, ...]


@dataclass(frozen=True, slots=True)
class Partition:
    """Operators that run together in one place.

    Attributes:
        place: name of a target, or "litert".
        nodes: positions of the operators.
        inputs, outputs: indices of the tensors from and for other partitions.
        crossing_bytes: bytes of these tensors.
        saved_seconds_estimate: seconds per run saved against LiteRT, by the cost model; None on LiteRT.
    """

    index: int
    place: str
    nodes: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    multiply_adds: int
    bytes: int
    crossing_bytes: int
    saved_seconds_estimate: float | None


@dataclass(frozen=True, slots=True)
class PlaceTotals:
    """Sums over the operators in one place."""

    operators: int
    partitions: int
    multiply_adds: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over a subgraph.

    Attributes:
        delegated: operators that LiteRT does not run, folded ones included.
        places: by place; "folded" is the work that folding saved.
        multiply_adds: of a run, as far as known.
        unknown_work: number of operators that run with unknown multiply-adds.
        share_of_work_delegated: of the known multiply-adds of a run; None if there are none.
        share_of_work_in_integers: of the same, what compiled code multiplies as integers.
        crossing_bytes: bytes of tensors that pass between partitions, or to and from LiteRT, in one run.
        saved_seconds_estimate: the sum over the partitions; None if there is no estimate.
    """

    operators: int
    delegated: int
    folded: int
    litert: int
    places: Mapping[str, PlaceTotals]
    multiply_adds: int
    unknown_work: int
    share_of_work_delegated: float | None
    share_of_work_in_integers: float | None
    crossing_bytes: int
    saved_seconds_estimate: float | None


@dataclass(frozen=True, slots=True)
class Costs:
    """What a subgraph's program costs. It was compiled for the analysis, so that only the run is an estimate.

    Attributes:
        compile_seconds: on this machine, now.
        entry_bytes: of its file in the cache, which is mapped; of them `code_bytes` and `weights_bytes`. Entries of
            further signatures lack the weights that an earlier one has.
        arena_bytes: memory of the activations.
        scratch_bytes: further memory of each thread.
        run_seconds_estimate: of one run on one thread, by the cost model; None on LiteRT or where nothing is compiled.
    """

    compile_seconds: float
    entry_bytes: int
    code_bytes: int
    weights_bytes: int
    arena_bytes: int
    scratch_bytes: int
    run_seconds_estimate: float | None


@dataclass(frozen=True, slots=True)
class Quantizing:
    """What quantizing a subgraph with float32 data to 8 bits would change.

    Attributes:
        kind: "integer" quantizes weights and activations, "dynamic" only weights of at least 1,024 elements.
        float_bytes: of the weights in the file that would be quantized.
        quantized_bytes_estimate: of the same afterwards, scales included.
        run_seconds_estimate: as in `Costs`, afterwards.
    """

    kind: str
    float_bytes: int
    quantized_bytes_estimate: int
    run_seconds_estimate: float | None


@dataclass(frozen=True, slots=True)
class SubgraphFacts:
    """One subgraph that a caller or LiteRT runs.

    Attributes:
        name: in the file.
        entry: what runs it: "main", "signature" or "control flow".
        signatures: keys of the signatures that run it.
        target: name of a target.
        features: instruction set or GPU architecture; "" on LiteRT.
        loader: "partitions", "delegate", "none", or a target's loader for a subgraph that is compiled whole.
        how: the loader in words.
        shape_inputs: names of the shape inputs, for whose values it may be specialized.
        inputs, outputs: the caller's tensors.
        headline: what runs where, and why, in sentences.
        quantizing: what could be won; empty where no weights are floats.
    """

    index: int
    name: str
    headline: str
    entry: str
    signatures: tuple[str, ...]
    target: str
    features: str
    loader: str
    how: str
    shape_inputs: tuple[str, ...]
    inputs: tuple[TensorFact, ...]
    outputs: tuple[TensorFact, ...]
    totals: Totals
    costs: Costs
    quantizing: tuple[Quantizing, ...]
    partitions: tuple[Partition, ...]
    nodes: tuple[NodeFact, ...]

    def share(self, node: NodeFact) -> float | None:
        """An operator's share of a run's known multiply-adds; None if it does not run, or its work is unknown."""
        if node.multiply_adds is None or node.place == "folded" or not self.totals.multiply_adds:
            return None
        return node.multiply_adds / self.totals.multiply_adds


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Suggested change of a model or its options.

    Attributes:
        rule: name of the rule that found it.
        nodes: positions of the operators concerned.
        change, why, gain: one sentence each.
    """

    rule: str
    subgraph: int
    nodes: tuple[int, ...]
    change: str
    why: str
    gain: str


@dataclass(frozen=True, slots=True)
class Analysis:
    """Attributes:
    model: its path.
    headline: what runs where, and why, in sentences.
    error: why `load` refuses the model, "" if it does not; its subgraphs show what would run where, if it can be read.
    bytes, fingerprint, description: of its file.
    asked: the requested target.
    notes: the runtime's sentences about the model as a whole.
    subgraphs: the main one first.
    """

    model: str
    headline: str
    error: str
    bytes: int
    fingerprint: str
    description: str
    asked: str
    notes: tuple[str, ...]
    subgraphs: tuple[SubgraphFacts, ...]
    suggestions: tuple[Suggestion, ...]
    schema: int = SCHEMA

    @property
    def main(self) -> SubgraphFacts:
        return self.subgraphs[0]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data, ready for json."""
        return asdict(self)
