"""A subgraph in one or two sentences: what runs where, and why."""

from __future__ import annotations

from collections.abc import Sequence

from jitdelegate.commands.analysis.amounts import operators, percent
from jitdelegate.commands.analysis.facts import NodeFact, Totals
from jitdelegate.commands.analysis.reasons import is_needless, lacks_shape, reason_of
from jitdelegate.commands.analysis.text import ALONE
from jitdelegate.program.program import LITERT

MOST_CAUSES, MOST_OPS = 2, 3
"""How many causes are told, and how many names of operators with each."""


def headline(nodes: Sequence[NodeFact], totals: Totals, place: str, shape_inputs: Sequence[str] = ()) -> str:
    """Sentences.

    Args:
        place: noun for where compiled operators run.
        shape_inputs: names of the inputs whose values are needed before anything can be compiled.
    """
    left = [node for node in nodes if node.place == LITERT]
    if not nodes:
        return "The model has no operators."
    if not left:
        folded = f"; {totals.folded:,} of them {_are(totals.folded)} computed while compiling" if totals.folded else ""
        return f"{_all(nodes)} compiled for {place}{folded}."
    if shape_inputs:
        names = " and ".join(map(repr, shape_inputs))
        return f"{_all(nodes)} compiled when a run brings the values of {names}, which decide shapes."
    causes = _Causes(left)
    if len(left) == len(nodes):
        return f"The whole model ({operators(nodes)}) runs on LiteRT{':' if causes.is_one else '. Why:'} {causes.text}."
    share = totals.share_of_work_delegated
    work = "" if share is None else f", with {percent(share)} of the work,"
    compiled = len(nodes) - len(left)
    others = "the other one" if len(left) == 1 else f"the other {len(left):,}"
    ops = _ops(left) if causes.is_one else ""
    first = f"{compiled:,} of {operators(nodes)}{work} {_are(compiled)} compiled for {place}."
    return f"{first} LiteRT runs {others}{ops}: {causes.text}."


def refusal(error: str) -> str:
    """The headline of a model that is refused."""
    return f"The model is refused: {error.rstrip('.')}."


class _Causes:
    """Why LiteRT runs some operators: the most frequent causes first, then what follows from them.

    Attributes:
        is_one: whether there is one cause for all.
        text: a clause.
    """

    def __init__(self, left: Sequence[NodeFact]) -> None:
        roots = [node for node in left if node.reason and not (lacks_shape(node) or is_needless(node))]
        found: dict[str, list[NodeFact]] = {}
        for node in roots or left:
            found.setdefault(_cause(node), []).append(node)
        grouped = sorted(found.items(), key=lambda item: -len(item[1]))
        following = len(left) - len(roots or left)
        self.is_one = len(grouped) == 1 and not following
        if self.is_one:
            self.text = grouped[0][0]
            return
        told = [f"{len(nodes):,}{_ops(nodes)} because {why}" for why, nodes in grouped[:MOST_CAUSES]]
        if others := sum(len(nodes) for _, nodes in grouped[MOST_CAUSES:]):
            told.append(f"{others:,} for other reasons")
        if following:
            told.append(f"{following:,} because of these")
        self.text = "; ".join(told)


def _cause(node: NodeFact) -> str:
    """Why LiteRT runs an operator, as a clause."""
    reason = reason_of(node)
    return reason.why if reason else (node.reason or ALONE).removeprefix(f"{node.op}: ").rstrip(".")


def _all(nodes: Sequence[NodeFact]) -> str:
    return {1: "The only operator is", 2: "Both operators are"}.get(len(nodes), f"All {operators(nodes)} are")


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _ops(nodes: Sequence[NodeFact]) -> str:
    names = list(dict.fromkeys(node.op for node in nodes))
    more = f" and {len(names) - MOST_OPS} more" if len(names) > MOST_OPS else ""
    return f" ({', '.join(names[:MOST_OPS])}{more})"
