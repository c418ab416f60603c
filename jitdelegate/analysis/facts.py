"""The facts of an analysis as plain values; `to_dict` gives them under these very names, as --json prints them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

SCHEMA = 1
"""Grows when a name goes or means something else."""


@dataclass(frozen=True, slots=True)
class TensorFact:
    """A tensor that an operator reads or writes.

    Attributes:
        index: among the subgraph's tensors.
        shape: the sizes that the program is compiled for, where they are known; else those that the file says.
        shape_signature: the file's sizes, -1 where any may come.
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
        delegated: whether LiteRT has nothing to do with it.
        place: "cpu", "cuda", "litert", "folded" (nothing is left to do at run time).
        reason: why LiteRT runs it; "" where it does not, or where only others stand in the way.
        partition: the number of the partition that it is in, None for none.
        kernel: the form of the kernel that it is part of, None for none.
        multiply_adds: of one run, an estimate; None where nobody knows. Of a folded operator, what it would take.
        bytes: that one run reads and writes, constants included.
        inputs: None stands for one that is not given.
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
    multiply_adds: int | None
    bytes: int
    inputs: tuple[TensorFact | None, ...]
    outputs: tuple[TensorFact, ...]


@dataclass(frozen=True, slots=True)
class Partition:
    """Operators that run together in one place.

    Attributes:
        place: "cpu", "cuda" or "litert".
        nodes: their positions.
        inputs, outputs: the indices of the tensors that come from others and go to others.
        crossing_bytes: of these tensors.
        saved_seconds_estimate: what a run is shorter than on LiteRT by the cost model's estimate, None on LiteRT.
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
    """What runs in one place."""

    operators: int
    partitions: int
    multiply_adds: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over a subgraph.

    Attributes:
        delegated: operators that LiteRT has nothing to do with, folded ones among them.
        places: by place; "folded" says what folded operators would take.
        unknown_work: operators that run, and whose multiply-adds nobody knows.
        share_of_work_delegated: of the known multiply-adds of a run; None where there are none.
        crossing_bytes: of tensors that pass from one partition to another, or to and from LiteRT, in one run.
        saved_seconds_estimate: the sum over the partitions, None where there is nothing to estimate.
    """

    operators: int
    delegated: int
    folded: int
    litert: int
    places: Mapping[str, PlaceTotals]
    unknown_work: int
    share_of_work_delegated: float | None
    crossing_bytes: int
    saved_seconds_estimate: float | None


@dataclass(frozen=True, slots=True)
class SubgraphFacts:
    """One subgraph that a caller or LiteRT enters.

    Attributes:
        name: in the file.
        entry: what enters it: "main", "signature" or "control flow".
        signatures: the keys of those that enter it.
        target: "cpu", "cuda" or "litert".
        features: the instruction set or GPU architecture, "" on LiteRT.
        loader: "flat", "object", "cubin" (compiled whole), "partitions", "delegate" or "none".
        how: the loader in words.
        shape_inputs: names of the inputs for whose values it may be compiled when they come.
        inputs, outputs: those of the caller.
    """

    index: int
    name: str
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
    partitions: tuple[Partition, ...]
    nodes: tuple[NodeFact, ...]


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What to change in a model or its options.

    Attributes:
        rule: the name of what found it.
        nodes: positions of the operators that it is about.
        change, why, gain: a sentence each.
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
    bytes, fingerprint, description: of its file.
    asked: the target that was asked for.
    notes: what the runtime says about the model as a whole.
    subgraphs: the main one first.
    """

    model: str
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
