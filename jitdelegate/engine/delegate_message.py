"""Message about the operators of a model that run on LiteRT, in the words of LiteRT's delegates."""

from __future__ import annotations

from jitdelegate.program.program import CUSTOM
from jitdelegate.targets import target_named

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from jitdelegate.program.program import Operator

FAILED = "the compiler failed with"
"""How the reasons of failures of the compiler begin, in `ir.faults`."""
REPORT = "Please report what the compiler failed with, and what JITDELEGATE_DEBUG=2 shows."
MOST_LINES = 15
"""Most reasons in the text of a message."""


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
        """One line per operator name and reason: `WHERE: its number of results is known as it runs only.` A failure of
        the compiler has one line for all operators."""
        failed: dict[str, dict[str, None]] = {}
        for operator in self.undelegated:
            if operator.reason.startswith(FAILED):
                failed.setdefault(operator.reason, {})[operator.op] = None
        named = {reason: f"{', '.join(names)}: {reason}" for reason, names in failed.items()}
        return tuple(dict.fromkeys(named.get(each.reason) or _line(each) for each in self.undelegated))

    @property
    def text(self) -> str:
        """The message, with at most MOST_LINES reasons and a hint where the others are."""
        codes = dict.fromkeys(operator.code for operator in self.undelegated if operator.code == CUSTOM)
        warnings = [f"WARNING: op code #{code} cannot be handled by this delegate." for code in codes]
        head = f"Following operations are not supported by {target_named(self.target).delegate_name}:"
        hint = [REPORT] if any(operator.reason.startswith(FAILED) for operator in self.undelegated) else []
        return "\n".join((head, *self._shown(), *hint, self._counts(), *warnings))

    def _shown(self) -> list[str]:
        """The lines of the text. One per operator name comes first: readers look for these."""
        lines = self.lines
        if len(lines) <= MOST_LINES:
            return [*lines]
        first = {line.partition(":")[0]: line for line in reversed(lines)}
        chosen = [line for line in lines if line in first.values()][:MOST_LINES]
        chosen += [line for line in lines if line not in chosen][: MOST_LINES - len(chosen)]
        rest = f"and {len(lines) - len(chosen)} more reasons, which report() and jitdelegate.on_message list."
        return [*(line for line in lines if line in chosen), rest]

    def _counts(self) -> str:
        target = target_named(self.target)
        place, rest = target.delegated_to, target.left_to
        if not self.delegated:
            return f"No operations will run on {place}, and all {self.remaining} operations will run on {rest}."
        return (
            f"{self.delegated} operations will run on {place}, "
            f"and the remaining {self.remaining} operations will run on {rest}."
        )

    def __repr__(self) -> str:
        return f"DelegateMessage({self.model}: {self.delegated} of {len(self.operators)} delegated)"


def _line(operator: Operator) -> str:
    return f"{operator.op}: {operator.reason.removeprefix(f'{operator.op}: ')}"
