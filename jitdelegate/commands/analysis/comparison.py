"""Two analyses side by side, such as those of a model before and after it was quantized."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from jitdelegate.commands.analysis.amounts import percent, short
from jitdelegate.commands.analysis.facts import Analysis, SubgraphFacts
from jitdelegate.commands.analysis.text import milliseconds, nbytes

Row = tuple[str, str, str, str]
"""(amount, of the first model, of the second, second over first)"""


def headings(analyses: Sequence[Analysis]) -> tuple[str, ...]:
    """Of the columns: models of the same file name by their paths."""
    names = [os.path.basename(each.model) for each in analyses]
    return ("", *(names if len({*names}) > 1 else [each.model for each in analyses]), "ratio")


def comparison(first: Analysis, second: Analysis) -> list[Row]:
    """The amounts of both models, summed over their subgraphs, and the operators whose numbers differ."""
    return [*_amounts(first, second), *_operators(first, second)]


def _amounts(first: Analysis, second: Analysis) -> Iterator[Row]:
    for name, amount, shown in AMOUNTS:
        before, after = (None if each.error else amount(each) for each in (first, second))
        ratio = f"{after / before:.2f}" if before and after is not None else ""
        told, beside = ("refused" if each is None else shown(each) for each in (before, after))
        yield name, told, beside, ratio


def _operators(first: Analysis, second: Analysis) -> Iterator[Row]:
    before, after = (Counter(node.op for facts in each.subgraphs for node in facts.nodes) for each in (first, second))
    for op in sorted({*before, *after}):
        if before[op] != after[op]:
            yield op, f"{before[op]:,}", f"{after[op]:,}", ""


def _sum(amount: Callable[[SubgraphFacts], float | None]) -> Callable[[Analysis], float]:
    return lambda analysis: sum(amount(facts) or 0 for facts in analysis.subgraphs)


def _integers(analysis: Analysis) -> float:
    """Share of the work that compiled code computes in integers."""
    whole = sum(facts.totals.multiply_adds for facts in analysis.subgraphs)
    own = sum((each.totals.share_of_work_in_integers or 0) * each.totals.multiply_adds for each in analysis.subgraphs)
    return own / whole if whole else 0.0


def _moved(facts: SubgraphFacts) -> int:
    return sum(node.bytes for node in facts.nodes if node.place != "folded")


def _bytes(count: float) -> str:
    return nbytes(int(count))


def _count(count: float) -> str:
    return f"{count:,.0f}"


AMOUNTS: tuple[tuple[str, Callable[[Analysis], float], Callable[[float], str]], ...] = (
    ("file", lambda analysis: analysis.bytes, _bytes),
    ("entries in the cache", _sum(lambda facts: facts.costs.entry_bytes), _bytes),
    ("memory of activations", _sum(lambda facts: facts.costs.arena_bytes), _bytes),
    ("time to compile", _sum(lambda facts: facts.costs.compile_seconds), lambda seconds: f"{seconds:.2f} s"),
    ("a run (estimate)", _sum(lambda facts: facts.costs.run_seconds_estimate), milliseconds),
    ("operators", _sum(lambda facts: facts.totals.operators), _count),
    ("of them on LiteRT", _sum(lambda facts: facts.totals.litert), _count),
    ("multiply-adds", _sum(lambda facts: facts.totals.multiply_adds), lambda count: short(int(count))),
    ("of them in integers", _integers, percent),
    ("read and written a run", _sum(_moved), _bytes),
    ("crossing partitions", _sum(lambda facts: facts.totals.crossing_bytes), _bytes),
)
"""(name, amount, how it is shown) of each row."""
