"""An analysis as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jitdelegate.base.tables import printable, short_number, table
from jitdelegate.commands.analysis.amounts import positions
from jitdelegate.commands.analysis.colours import label
from jitdelegate.commands.analysis.facts import Analysis, NodeFact, PlaceTotals, SubgraphFacts, Suggestion, Totals
from jitdelegate.program.program import LITERT, general_reason

LONGEST_NAME = 80
"""Most characters of an operator's name."""
HEADINGS = ("operators", "where", "names", "computed", "why there")
"""Of the table of operators; columns without entries are left out."""
ALONE = "nothing speaks against it but the others."
"""Reason of an operator that LiteRT runs because of others."""


def text(analysis: Analysis) -> str:
    """Header, headline, a row per sequence of operators with the same place, partition and reason, and suggestions; in
    printable characters only."""
    lines = [f"model      {analysis.model}, {analysis.bytes:,} bytes", f"asked for  {analysis.asked}"]
    lines.append(f"in short   {analysis.headline}")
    lines += [f"note       {note}" for note in analysis.notes]
    parts = ["\n".join(map(printable, lines)), *(_subgraph(facts, analysis.headline) for facts in analysis.subgraphs)]
    if analysis.suggestions:
        told = ["suggestions", *(line for suggestion in analysis.suggestions for line in _suggestion(suggestion))]
        parts.append("\n".join(map(printable, told)))
    return "\n\n".join(parts)


def _subgraph(facts: SubgraphFacts, told: str) -> str:
    text = "\n".join(map(printable, _summary(facts, told)))
    return f"{text}\n\n{_operators(facts.nodes)}" if facts.nodes else text


def _operators(nodes: Sequence[NodeFact]) -> str:
    rows = [(span(group), label(group[0]), _ops(group), group[0].execution, _reason(group)) for group in groups(nodes)]
    filled = [column for column in range(len(HEADINGS)) if any(row[column] for row in rows)]
    return table([HEADINGS[k] for k in filled], [[row[k] for k in filled] for row in rows], right=(0,))


def _summary(facts: SubgraphFacts, told: str) -> Iterator[str]:
    named = ", ".join(map(repr, facts.signatures))
    yield f"subgraph   {facts.index} {facts.name!r}, {facts.entry}" + (f", signatures {named}" if named else "")
    if facts.headline != told:
        yield f"in short   {facts.headline}"
    yield f"target     {' '.join(filter(None, (facts.target, facts.features)))}, {facts.how}"
    yield from _totals(facts.totals)
    yield from (f"{name:<10} {words}" for name, words in costs(facts))
    if facts.shape_inputs:
        yield f"shape_inputs   values of {', '.join(map(repr, facts.shape_inputs))}; compiled when they are known"


def _totals(totals: Totals) -> Iterator[str]:
    """Lines about a subgraph's sums."""
    folded = f", {totals.folded} of them folded" if totals.folded else ""
    yield f"operators  {totals.delegated} of {totals.operators} delegated{folded}; {totals.litert} on LiteRT"
    share = totals.share_of_work_delegated
    unknown = f"; the work of {totals.unknown_work} is not known" if totals.unknown_work else ""
    integers = f", {100 * whole:.1f} % in integers" if (whole := totals.share_of_work_in_integers) else ""
    yield f"work       {'unknown' if share is None else f'{100 * share:.1f} % delegated{integers}'}{unknown}"
    yield from (f"{place:<10} {_place_line(each)}" for place, each in totals.places.items())
    yield f"crossing   {totals.crossing_bytes:,} bytes a run between partitions"
    if totals.saved_seconds_estimate is not None:
        yield f"saved      {1e6 * totals.saved_seconds_estimate:,.0f} microseconds a run against LiteRT (estimate)"


def costs(facts: SubgraphFacts) -> Iterator[tuple[str, str]]:
    """What the program costs, and what quantizing would change: names, and words about each."""
    own = facts.costs
    if own.run_seconds_estimate is None:
        return
    yield (
        "costs",
        f"{own.compile_seconds:.2f} s to compile, {nbytes(own.entry_bytes)} in the cache, "
        f"{nbytes(own.arena_bytes)} of memory beside it; {milliseconds(own.run_seconds_estimate)} a run (estimate)",
    )
    for way in facts.quantizing:
        yield (
            way.kind,
            f"{nbytes(way.float_bytes)} of weights would be {nbytes(way.quantized_bytes_estimate)}, "
            f"and a run {milliseconds(way.run_seconds_estimate or 0.0)}, if quantized so (estimates)",
        )


def nbytes(count: int) -> str:
    return short_number(count, (" bytes", " kB", " MB", " GB", " TB"))


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.{3 if seconds < 1e-3 else 2}f} ms"


def _place_line(totals: PlaceTotals) -> str:
    partitions = f" in {totals.partitions} partition{'s' if totals.partitions != 1 else ''}"
    return (
        f"{totals.operators} operator{'s' if totals.operators != 1 else ''}{partitions if totals.partitions else ''}, "
        f"{totals.multiply_adds:,} multiply-adds, {totals.bytes:,} bytes read and written (estimates)"
    )


def groups(nodes: Sequence[NodeFact]) -> list[list[NodeFact]]:
    """Sequences of operators with the same place, partition and reason, which are computed alike."""
    found: list[list[NodeFact]] = []
    for node in nodes:
        if found and _kind(found[-1][-1]) == _kind(node):
            found[-1].append(node)
        else:
            found.append([node])
    return found


def _kind(node: NodeFact) -> tuple[object, ...]:
    return node.place, node.partition, general_reason(node.reason), node.execution


def span(group: Sequence[NodeFact]) -> str:
    first, last = group[0].index, group[-1].index
    return str(first) if first == last else f"{first}-{last}"


def _ops(group: Sequence[NodeFact]) -> str:
    return ", ".join(name[:LONGEST_NAME] for name in dict.fromkeys(node.op for node in group))


def _reason(group: Sequence[NodeFact]) -> str:
    first = group[0]
    if first.place != LITERT:
        return ""
    is_one = all(node.reason == first.reason for node in group)
    return (first.reason.removeprefix(f"{first.op}: ") or ALONE) if is_one else general_reason(first.reason)


def _suggestion(suggestion: Suggestion) -> Iterator[str]:
    where = f"operators {positions(suggestion.nodes)}" if suggestion.nodes else "the model"
    subgraph = f" of subgraph {suggestion.subgraph}" if suggestion.subgraph else ""
    yield f"- {suggestion.change} [{suggestion.rule}: {where}{subgraph}]"
    yield f"  {suggestion.why} {suggestion.gain}"
