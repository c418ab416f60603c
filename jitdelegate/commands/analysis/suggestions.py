"""Suggested changes of a model or its options; each rule is a function in RULES that yields only true findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import prod

from jitdelegate.base.options import DelegateOptions
from jitdelegate.commands.analysis.amounts import operators, percent
from jitdelegate.commands.analysis.facts import NodeFact, SubgraphFacts, Suggestion, TensorFact
from jitdelegate.commands.analysis.measure import Measure
from jitdelegate.commands.analysis.reasons import REASONS, Reason, lacks_shape, reason_of
from jitdelegate.passes.cost import tensor_bytes
from jitdelegate.passes.functional_state import RESOURCE_OPS
from jitdelegate.program.program import LITERT
from jitdelegate.targets import target_named
from jitdelegate.targets.target import Target

MOVING = frozenset(
    {
        *("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "TRANSPOSE", "CONCATENATION", "PACK", "UNPACK", "SPLIT", "SPLIT_V"),
        *("SLICE", "STRIDED_SLICE", "PAD", "PADV2", "MIRROR_PAD", "TILE", "GATHER", "BROADCAST_TO", "REVERSE_V2"),
        *("SPACE_TO_DEPTH", "DEPTH_TO_SPACE", "SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND", "CAST", "SHAPE", "RANK"),
    }
)
"""Operators that move elements and compute almost nothing."""
KEPT = frozenset({*RESOURCE_OPS, "WHILE", "IF", "CALL", "STABLEHLO_COMPOSITE"})
"""Operators with side effects."""
CONVOLUTIONS = {"CONV_2D": 0, "TRANSPOSE_CONV": 2}
"""Position of the data operand; the filter is operand 1."""
GROUP = 4
WORTH = 0.01
"""Least share of a model's work for a suggestion about channels or precision."""


@dataclass(frozen=True)
class Subject:
    """One subgraph, for the rules.

    Attributes:
        facts: the subgraph's facts.
        measure: its graphs.
        options: the user's options.
    """

    facts: SubgraphFacts
    measure: Measure
    options: DelegateOptions

    @property
    def target(self) -> Target:
        """The target of compiled operators."""
        return target_named(self.facts.target)

    @property
    def work(self) -> int:
        """Multiply-adds of a run."""
        return self.facts.totals.multiply_adds

    @cached_property
    def left(self) -> list[NodeFact]:
        """The operators on LiteRT."""
        return [node for node in self.facts.nodes if node.place == LITERT]

    @cached_property
    def compiled(self) -> list[NodeFact]:
        """The operators in compiled code."""
        return [node for node in self.facts.nodes if node.place not in (LITERT, "folded")]

    @cached_property
    def followers(self) -> dict[int, NodeFact]:
        """Position of an operator whose shapes are unknown only because of an earlier operator on LiteRT, to that
        operator, which has a reason of its own."""
        writer = {tensor.index: node for node in self.left for tensor in node.outputs}
        found: dict[int, NodeFact] = {}
        for node in filter(lacks_shape, self.left):
            before = [writer[index] for index in sorted(_read(node)) if index in writer]
            roots = [found.get(one.index, one) for one in before]
            root = next((one for one in roots if not lacks_shape(one)), None)
            if root is not None and reason_of(root) is not None and reason_of(root) is not reason_of(node):
                found[node.index] = root
        return found

    def share(self, nodes: Iterable[NodeFact]) -> float:
        """Share of a run's known multiply-adds."""
        return sum(node.multiply_adds or 0 for node in nodes) / self.work if self.work else 0.0

    def gain(self, nodes: Sequence[NodeFact]) -> str:
        """Sentence about the gain of compiling these operators, as far as it is known."""
        unknown = sum(node.multiply_adds is None for node in nodes)
        besides = f" (the work of {unknown} is not known)" if unknown else ""
        share = percent(self.share(nodes))
        return f"{operators(nodes)} with {share} of the model's multiply-adds{besides} could leave LiteRT."


Found = tuple[Sequence[NodeFact], str, str, str]
"""(operators, change, why, gain)"""


def suggestions(subject: Subject) -> list[Suggestion]:
    """The findings of all rules, in the order of RULES."""
    return [
        Suggestion(name, subject.facts.index, tuple(node.index for node in nodes), change, why, gain)
        for name, rule in RULES.items()
        for nodes, change, why, gain in rule(subject)
    ]


def _by_reason(reason: Reason) -> Callable[[Subject], Iterator[Found]]:
    """A rule about the operators on LiteRT whose first matching entry of REASONS is this one."""

    def rule(subject: Subject) -> Iterator[Found]:
        nodes = [node for node in subject.left if reason_of(node) is reason and node.index not in subject.followers]
        if nodes:
            ops = ", ".join(dict.fromkeys(node.op for node in nodes))
            yield nodes, reason.change, f"{operators(nodes)} ({ops}): {reason.why}.", subject.gain(nodes)

    return rule


def _followers(subject: Subject) -> Iterator[Found]:
    nodes = [node for node in subject.left if node.index in subject.followers]
    if nodes:
        roots = ", ".join(dict.fromkeys(root.op for root in subject.followers.values()))
        ops = ", ".join(dict.fromkeys(node.op for node in nodes))
        yield (
            nodes,
            f"See to {roots} first, as other suggestions say.",
            f"{operators(nodes)} ({ops}): the shapes of what is read there are not known before the model runs, "
            f"since LiteRT has {roots} before.",
            subject.gain(nodes),
        )


def _deciding(subject: Subject) -> Iterator[Found]:
    if subject.facts.shape_inputs:
        names = ", ".join(repr(name) for name in subject.facts.shape_inputs)
        change = f"Make {names} a constant of the model, if the value is always the same."
        why = "Shapes depend on the value, so the model is compiled when a run brings it, for eight values at most."
        yield (
            subject.left,
            change,
            why,
            "No compilation while the program runs, and none of the first runs waits for it.",
        )


def _open_sizes(subject: Subject) -> Iterator[Found]:
    """Inputs with open sizes, if operators are compiled for the file's sizes."""
    open_inputs = [tensor for tensor in subject.facts.inputs if -1 in tensor.shape_signature]
    if open_inputs and subject.compiled and subject.facts.entry != "control flow":
        shown = " and ".join(f"'{tensor.name}' is {_sizes(tensor.shape_signature)}" for tensor in open_inputs)
        yield (
            (),
            "Convert the model with fixed shapes of its inputs, if they are always the same.",
            f"{shown}; the program is for {' and '.join(_sizes(tensor.shape) for tensor in open_inputs)}, and every "
            "other shape is compiled when it comes first.",
            "No compilation while the program runs.",
        )


def _moving_alone(subject: Subject) -> Iterator[Found]:
    """Groups of data-moving operators on LiteRT between compiled ones."""
    for group in _groups(subject):
        if all(node.op in MOVING for node in group) and (moved := _crossing(subject, group)):
            ops = ", ".join(dict.fromkeys(node.op for node in group))
            count = operators(group)
            yield (
                group,
                f"Remove or replace {ops}, for instance by giving the operators around it the layout they need.",
                f"{count} on LiteRT between compiled ones, to move data only: {group[0].reason}",
                f"Two crossings and {moved:,} bytes a run fewer between compiled code and LiteRT.",
            )


def _groups(subject: Subject) -> Iterator[list[NodeFact]]:
    """Groups of operators on LiteRT that are connected by tensors."""
    home: dict[int, list[NodeFact]] = {}
    writer: dict[int, int] = {}
    for node in subject.left:
        before = [home[writer[index]] for index in _read(node) if index in writer]
        group = [*chain.from_iterable({id(one): one for one in before}.values()), node]
        home |= {member.index: group for member in group}
        writer |= {tensor.index: node.index for tensor in node.outputs}
    yield from {id(group): group for group in home.values()}.values()


def _crossing(subject: Subject, group: Sequence[NodeFact]) -> int:
    """Bytes from compiled operators into the group and back; 0 unless both directions exist."""
    written = {tensor.index for node in subject.compiled for tensor in node.outputs}
    read = {index for node in subject.compiled for index in _read(node)}
    graph = subject.measure.folded
    into = {index for node in group for index in _read(node)} & written
    out = {tensor.index for node in group for tensor in node.outputs} & read
    return sum(tensor_bytes(graph.tensors[index]) for index in into | out) if into and out else 0


def _read(node: NodeFact) -> set[int]:
    """The runtime tensors that an operator reads."""
    return {tensor.index for tensor in node.inputs if tensor is not None and not tensor.constant}


def _channels(subject: Subject) -> Iterator[Found]:
    """Compiled convolutions whose output channels are no multiple of four: filters are padded to whole vectors."""
    facts = subject.facts
    unit = subject.target.channel_unit(facts.features)
    padded = [node for node in subject.compiled if _is_padded(node, subject.target)]
    wasted = sum(_wasted(node, unit) for node in padded)
    if padded and wasted >= WORTH * max(subject.work, 1):
        counts = ", ".join(str(count) for count in sorted({_outputs(node) for node in padded}))
        at_least = "at least " if subject.target.is_accelerator else ""
        yield (
            padded,
            f"Give these convolutions numbers of output channels that are multiples of {unit}, or at least of {GROUP}, "
            "where the model can use more or do with fewer.",
            f"They have {counts} output channels, and the code computes {unit} together, so that {at_least}"
            f"{wasted:,} multiply-adds a run are of zeros.",
            f"The zeros take {at_least}{percent(wasted / max(subject.work, 1))} of what the model itself takes; "
            f"channels up to the next multiple of {unit} would cost nothing.",
        )


def _is_padded(node: NodeFact, target: Target) -> bool:
    if node.op not in CONVOLUTIONS or not node.multiply_adds or len(node.outputs[0].shape) != 4:
        return False
    rows = prod(node.outputs[0].shape[:3])
    return _outputs(node) % GROUP != 0 and rows > target.bare_rows


def _outputs(node: NodeFact) -> int:
    """Output channels that are computed from the same input channels."""
    return node.outputs[0].shape[3] // _channel_groups(node)


def _channel_groups(node: NodeFact) -> int:
    data, weights = _data(node), node.inputs[1]
    if node.op != "CONV_2D" or data is None or weights is None or len(weights.shape) != 4:
        return 1
    return max(data.shape[3] // max(weights.shape[3], 1), 1)


def _wasted(node: NodeFact, unit: int) -> int:
    outputs = max(_outputs(node), 1)
    return (node.multiply_adds or 0) * (-outputs % unit) // outputs


def _narrow_reads(subject: Subject) -> Iterator[Found]:
    """On an accelerator, convolutions inside the model whose input channels cannot be read four at a time."""
    if not subject.target.is_accelerator:
        return
    given = {tensor.index for tensor in subject.facts.inputs}
    nodes = [node for node in subject.compiled if _reads_narrowly(node, given)]
    if nodes and subject.share(nodes) >= WORTH:
        counts = ", ".join(str(count) for count in sorted({_depth(node) for node in nodes}))
        yield (
            nodes,
            f"Give the operators before these convolutions numbers of output channels that are multiples of {GROUP}.",
            f"They read {counts} channels, which a GPU loads one or two at a time instead of four.",
            f"Fewer loads in {operators(nodes)} with {percent(subject.share(nodes))} of the model's multiply-adds.",
        )


def _reads_narrowly(node: NodeFact, given: set[int]) -> bool:
    data = _data(node)
    return data is not None and data.index not in given and _depth(node) % GROUP != 0


def _data(node: NodeFact) -> TensorFact | None:
    if node.op not in CONVOLUTIONS:
        return None
    tensor = node.inputs[CONVOLUTIONS[node.op]]
    return tensor if tensor is not None and len(tensor.shape) == 4 else None


def _depth(node: NodeFact) -> int:
    """Input channels of a group."""
    data = _data(node)
    return data.shape[3] // _channel_groups(node) if data is not None else 0


def _dead(subject: Subject) -> Iterator[Found]:
    """Operators on LiteRT whose results are never read; compiled code omits such operators."""
    wanted = {tensor.index for tensor in subject.facts.outputs}
    dead = []
    for node in reversed(subject.facts.nodes):
        lives = node.custom or node.op in KEPT or any(tensor.index in wanted for tensor in node.outputs)
        lives = lives or any(tensor is not None and tensor.variable for tensor in node.inputs)
        if lives:
            wanted |= _read(node)
        elif node.place == LITERT:
            dead.append(node)
    if dead:
        share = percent(subject.share(dead))
        yield (
            dead[::-1],
            "Remove these operators when the model is exported.",
            f"Nobody reads the results of {operators(dead)}, and LiteRT computes them all the same.",
            f"{share} of the model's multiply-adds fewer.",
        )


def _precision(subject: Subject) -> Iterator[Found]:
    """float32 multiply-adds on a GPU, which tensor cores support in other precisions only."""
    if not subject.target.is_accelerator or subject.options.precision != "float32":
        return
    nodes = [node for node in subject.compiled if node.kernel in ("Contract", "MatMul")]
    if nodes and subject.share(nodes) >= WORTH:
        yield (
            nodes,
            "Set the option precision to 'tf32' or 'float16', if the model's results allow for it, or to 'auto'.",
            "float32 is multiplied without the GPU's tensor cores. TensorRT, JAX and the convolutions of PyTorch take"
            " TF32 by default.",
            f"{percent(subject.share(nodes))} of the model's multiply-adds could go to tensor cores.",
        )


def _too_small(subject: Subject) -> Iterator[Found]:
    """A model for a GPU whose transfer takes longer than it saves, by the cost model."""
    saved = subject.facts.totals.saved_seconds_estimate
    if subject.target.is_accelerator and saved is not None and saved < 0:
        yield (
            (),
            "Set the option target to 'cpu', or give the model a larger batch.",
            "The model computes so little that copies to the GPU and back take longer than they save, by estimate.",
            f"By estimate {-saved * 1e6:.0f} microseconds a run.",
        )


def _sizes(shape: Sequence[int]) -> str:
    return f"[{','.join('?' if size < 0 else str(size) for size in shape)}]"


RULES: dict[str, Callable[[Subject], Iterator[Found]]] = {
    **{reason.name: _by_reason(reason) for reason in REASONS},
    "behind_unknown_shapes": _followers,
    "deciding_input": _deciding,
    "open_sizes": _open_sizes,
    "moving_alone": _moving_alone,
    "dead_operators": _dead,
    "padded_channels": _channels,
    "narrow_reads": _narrow_reads,
    "precision": _precision,
    "too_small_for_gpu": _too_small,
}
"""Name -> rule."""
