"""Lines of text about where operators run and why, and the debug log's entry about a program."""

from __future__ import annotations

from jitdelegate.base.debug import log
from jitdelegate.program.program import general_reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from jitdelegate.engine.executable import Executable
    from jitdelegate.program.program import Operator


def log_decisions(executable: Executable) -> None:
    """Log the decisions about a program that was opened: target, cache outcome, times, operators."""
    lookup = executable.lookup
    cache = ", ".join(filter(None, (executable.outcome, lookup.reason, lookup.write_failure, lookup.path)))
    taken = ", ".join(f"{name} {1e3 * seconds:.1f} ms" for name, seconds in executable.seconds.items())
    lines = [
        f"{executable} {executable.program.features}".rstrip(),
        f"key        {executable.key.entry_name()}",
        f"cache      {cache}",
        f"stages     {taken}",
        *(f"note       {note}" for note in executable.notes),
        *operator_lines(executable.operators),
    ]
    log("\n".join(lines))


def operator_rows(operators: Sequence[Operator]) -> list[tuple[str, str, str]]:
    """Indices, place, and names with a reason: one row per sequence of operators with the same place and reason, which
    are computed alike, so that large models stay readable."""
    rows: list[tuple[str, str, str]] = []
    for group in _groups(operators):
        first, last = group[0], group[-1]
        span = str(first.index) if first is last else f"{first.index}-{last.index}"
        ops = ", ".join(dict.fromkeys(operator.op for operator in group))
        is_one = all(operator.reason == first.reason for operator in group)
        reason = first.reason.removeprefix(f"{ops}: ") if is_one else general_reason(first.reason)
        way = f" ({first.execution})" if first.execution else ""
        rows.append((span, first.place, f"{ops}{way}" + (f": {reason}" if reason else "")))
    return rows


def operator_lines(operators: Sequence[Operator]) -> list[str]:
    """`operator_rows` as lines."""
    return [f"{span:>10} {place:<7} {what}" for span, place, what in operator_rows(operators)]


def _groups(operators: Sequence[Operator]) -> list[list[Operator]]:
    groups: list[list[Operator]] = []
    for operator in operators:
        if groups and _kind(groups[-1][-1]) == _kind(operator):
            groups[-1].append(operator)
        else:
            groups.append([operator])
    return groups


def _kind(operator: Operator) -> tuple[str, str, str]:
    return operator.place, general_reason(operator.reason), operator.execution
