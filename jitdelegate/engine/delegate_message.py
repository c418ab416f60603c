"""Message about the operators of a model that run on LiteRT, in the words of LiteRT's delegates."""

from __future__ import annotations

from jitdelegate.program.program import CUSTOM, ITS_PARTITION, NOTHING_ELSE, UNKNOWN_SHAPE
from jitdelegate.targets import target_named

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jitdelegate.program.program import Operator

FAILED = "the compiler failed with"
"""How the reasons of failures of the compiler begin, in `ir.faults`."""
REPORT = "Please report what the compiler failed with, and what JITDELEGATE_DEBUG=2 shows."
MOST_LINES = 15
"""Most reasons in the text of a message."""
MOST_NAMES = 5
"""Most names of operators in the line that counts what is behind them."""
BEHIND = 3
"""`_distance` of an operator that reads what LiteRT writes, in a shape that LiteRT finds out as it runs."""


class DelegateMessage:
    """Which operators of one model run on LiteRT and why, in the words of LiteRT's delegates.

    Attributes:
        model: the model in a sentence.
        target: name of the target that was to run the operators.
        operators: all operators of the model, each with its place and the reason why it is not delegated.
    """

    __slots__ = ("model", "operators", "target")

    def __init__(self, model: str, target: str, operators: Sequence[Operator]) -> None:
        self.model = model
        self.target = target
        self.operators = tuple(operators)

    @property
    def delegated(self) -> int:
        """Number of delegated operators."""
        return len(self.operators) - self.remaining

    @property
    def remaining(self) -> int:
        """Number of operators that run on LiteRT."""
        return len(self.undelegated)

    @property
    def undelegated(self) -> tuple[Operator, ...]:
        """The operators that run on LiteRT."""
        return tuple(operator for operator in self.operators if operator.place == "litert")

    @property
    def lines(self) -> tuple[str, ...]:
        """One line per operator name and reason: `WHERE: its number of results is known as it runs only.` Causes come
        first, then what follows from them. A failure of the compiler has one line for all operators."""
        return _lines(self.undelegated)

    @property
    def text(self) -> str:
        """The message, with at most MOST_LINES reasons and a hint where the others are. Operators that are not compiled
        because LiteRT runs operators before them are only counted."""
        codes = dict.fromkeys(operator.code for operator in self.undelegated if operator.code == CUSTOM)
        warnings = [f"WARNING: op code #{code} cannot be handled by this delegate." for code in codes]
        head = f"Following operations are not supported by {target_named(self.target).delegate_name}:"
        hint = [REPORT] if any(operator.reason.startswith(FAILED) for operator in self.undelegated) else []
        return "\n".join((head, *self._reasons(), *hint, self._counts(), *warnings))

    def _reasons(self) -> list[str]:
        behind = [operator for operator in self.undelegated if _distance(operator) == BEHIND]
        causes = [operator for operator in self.undelegated if _distance(operator) != BEHIND]
        if not behind or not causes:
            return _shown(_lines(self.undelegated))
        names = [*dict.fromkeys(operator.op for operator in behind)]
        others = [f"{len(names) - MOST_NAMES} others"] if len(names) > MOST_NAMES else []
        count = f"and {len(behind)} operations behind these, with inputs whose shapes LiteRT finds out as it runs:"
        return [*_shown(_lines(causes)), f"{count} {', '.join((*names[:MOST_NAMES], *others))}."]

    def _counts(self) -> str:
        target = target_named(self.target)
        here, rest = target.delegated_to, target.left_to
        if not self.delegated:
            return f"No operations will run on {here}, and all {self.remaining} operations will run on {rest}."
        return (
            f"{self.delegated} operations will run on {here}, "
            f"and the remaining {self.remaining} operations will run on {rest}."
        )

    def __repr__(self) -> str:
        return f"DelegateMessage({self.model}: {self.delegated} of {len(self.operators)} delegated)"


def _distance(operator: Operator) -> int:
    """0 for a cause, and more for what follows from causes."""
    if operator.reason.endswith(UNKNOWN_SHAPE):
        return BEHIND
    return 1 if operator.reason.startswith(ITS_PARTITION) else 2 if operator.reason == NOTHING_ELSE else 0


def _lines(operators: Iterable[Operator]) -> tuple[str, ...]:
    ordered = sorted(operators, key=_distance)
    failed: dict[str, dict[str, None]] = {}
    for operator in ordered:
        if operator.reason.startswith(FAILED):
            failed.setdefault(operator.reason, {})[operator.op] = None
    named = {reason: f"{', '.join(names)}: {reason}" for reason, names in failed.items()}
    return tuple(dict.fromkeys(named.get(operator.reason) or _line(operator) for operator in ordered))


def _shown(lines: Sequence[str]) -> list[str]:
    """At most MOST_LINES of the lines. One per operator name comes first: readers look for these."""
    if len(lines) <= MOST_LINES:
        return [*lines]
    first = {line.partition(":")[0]: line for line in reversed(lines)}
    chosen = [line for line in lines if line in first.values()][:MOST_LINES]
    chosen += [line for line in lines if line not in chosen][: MOST_LINES - len(chosen)]
    rest = f"and {len(lines) - len(chosen)} more reasons, which report() and jitdelegate.on_message list."
    return [*(line for line in lines if line in chosen), rest]


def _line(operator: Operator) -> str:
    return f"{operator.op}: {operator.reason.removeprefix(f'{operator.op}: ')}"
