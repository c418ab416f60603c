"""Causes why LiteRT runs an operator, with suggested changes; the first entry that fits counts."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from jitdelegate.commands.analysis.facts import NodeFact
from jitdelegate.ops.registry import OPS
from jitdelegate.passes.functional_state import RESOURCE_OPS
from jitdelegate.program.program import NOTHING_ELSE, UNKNOWN_SHAPE


@dataclass(frozen=True, slots=True)
class Reason:
    """Attributes:
    name: of the rule.
    fits: whether it explains why LiteRT runs an operator.
    change: a sentence.
    why: a clause, to stand after a colon or "because".
    """

    name: str
    fits: Callable[[NodeFact], bool]
    change: str
    why: str


def _says(pattern: str) -> Callable[[NodeFact], bool]:
    found = re.compile(pattern)
    return lambda node: bool(found.search(node.reason))


def lacks_shape(node: NodeFact) -> bool:
    """Whether an operator runs on LiteRT because of an operator before it."""
    return node.reason.endswith(UNKNOWN_SHAPE)


_IS_SHAPELESS = _says(r"the rank of '|has no elements, its shape is")
_IS_FOREIGN = _says(r"^The custom operator |bytes of options are not what its kernel reads\.$")


def is_needless(node: NodeFact) -> bool:
    """Whether an operator runs on LiteRT because of the operators that read it."""
    return node.reason == NOTHING_ELSE


def _of(ops: frozenset[str]) -> Callable[[NodeFact], bool]:
    return lambda node: not node.custom and node.op in ops and bool(node.reason)


def _is_quantized(node: NodeFact) -> bool:
    """Whether an operator is refused for quantized values, or only quantizes and dequantizes."""
    tensors = [tensor for tensor in (*node.inputs, *node.outputs) if tensor is not None]
    if not any(tensor.quantized for tensor in tensors):
        return False
    about_types = re.search(r"quanti[sz]|\bscales?\b|zero point|(?:is|are) u?int(?:4|8|16)\b", node.reason) is not None
    return about_types or (node.op in ("QUANTIZE", "DEQUANTIZE") and bool(node.reason))


def _is_unknown(node: NodeFact) -> bool:
    return not node.custom and node.op not in OPS and node.reason == f"{node.op} is not supported."


REASONS: tuple[Reason, ...] = (
    Reason(
        "asked_for_litert",
        _says(r"^LiteRT was asked for\.$"),
        "Set the option target to 'auto'.",
        "the option target is 'litert'",
    ),
    Reason(
        "cpu_without_avx2",
        _says(r"^Generic code is slower"),
        "Run the model under Linux on a CPU with AVX2 or NEON, or set the option target to 'cpu' to compile it here.",
        "{count}: only generic code runs on this machine, and LiteRT has better kernels for it.",
    ),
    Reason(
        "excluded_by_options",
        _says(r"^It is (?:none of only_ops|not among the operators)"),
        "Leave out the options only_ops, first_delegate_node_index and last_delegate_node_index.",
        "options that are for debugging leave them to LiteRT",
    ),
    Reason(
        "quantized_not_allowed",
        _says(r"quantized_models_allowed=False"),
        "Set the option quantized_models_allowed to True, whatever experimental_flags are.",
        "options leave quantized values to LiteRT",
    ),
    Reason(
        "too_many_partitions",
        _says(r"is beyond max_delegated_partitions="),
        "Leave out the option max_delegated_partitions, or raise it.",
        "partitions that save more use up the number that max_delegated_partitions allows",
    ),
    Reason(
        "small_partitions",
        _says(r"has fewer than min_nodes_per_partition="),
        "Leave out the option min_nodes_per_partition, or lower it.",
        "their partitions have fewer operators than min_nodes_per_partition asks for",
    ),
    Reason(
        "not_worth_it",
        _says(r"would take longer to reach than it saves\.$"),
        "Make the operators around them such that they can be compiled; partitioning='all' would compile them alone.",
        "by estimate it would take longer to reach their code than the code saves",
    ),
    Reason(
        "quantized",
        _is_quantized,
        "Quantize these operators as the column quantized of docs/ops.md has it, or leave them in float32.",
        "nothing is compiled for the quantized types or scales there",
    ),
    Reason(
        "custom_operators",
        lambda node: node.custom and _IS_FOREIGN(node),
        "Export the model with builtin operators instead (target_spec.supported_ops = [TFLITE_BUILTINS]).",
        "the compiler does not know these custom operators, or cannot read their options",
    ),
    Reason(
        "resource_variables",
        _of(frozenset(RESOURCE_OPS)),
        "Pass the state as an input and an output of the model, or assign it a constant at first.",
        "values that live from run to run are not compiled when they are used like this",
    ),
    Reason(
        "control_flow",
        _of(frozenset(("WHILE", "IF", "CALL", "CALL_ONCE", "STABLEHLO_WHILE", "STABLEHLO_CASE"))),
        "Unroll loops and settle conditions when the model is exported, with constant numbers of rounds.",
        "the way through is known only as the model runs",
    ),
    Reason(
        "unknown_operators",
        _is_unknown,
        "Express them by operators of docs/ops.md when the model is exported.",
        "nothing is compiled for operators of these names",
    ),
    Reason(
        "constant_operand",
        _says(r"is not a constant|supported on constants only\.$"),
        "Make that operand a constant when the model is exported, for instance by fixing the sizes of the inputs.",
        "the code would need operands that are known only as the model runs",
    ),
    Reason(
        "unknown_shapes",
        lambda node: lacks_shape(node) or _IS_SHAPELESS(node),
        "Convert the model with fixed shapes of its inputs, or without operators whose results have no fixed number.",
        "shapes are known only as the model runs",
    ),
    Reason(
        "strings",
        _says(r"\bis string\b"),
        "Keep texts out of the model: look them up before it runs, and give it numbers.",
        "nothing is compiled for texts",
    ),
    Reason(
        "types",
        _says(r"does not pass to and from LiteRT\.$|\b(?:is|are) \S+(?: and \S+)*, (?:only|expected one type)"),
        "Use float32 for values and int32 for indices at these operators.",
        "nothing is compiled for the types there",
    ),
)


def reason_of(node: NodeFact) -> Reason | None:
    """Why LiteRT runs an operator; None without an entry."""
    return next((rule for rule in REASONS if rule.fits(node)), None)
