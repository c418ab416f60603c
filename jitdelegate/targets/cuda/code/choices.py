"""Choices between kernels that compute the same: a tuned candidate where there is one, else the cost model's.

A family of kernels describes its problem in a line (`problem`), names its candidates (`candidate`) and asks the Writer.
Tables of tuned candidates have these texts, and nothing else of the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Generic, TypeVar

from jitdelegate.targets.cuda.code.element import Element
from jitdelegate.targets.cuda.code.sizes import flattened

Step = Callable[[Any], None]
"""Writes the launches of a node that was begun, or of nodes that are written together, given the Writer."""


def nothing(writer: Any) -> None:
    """Writes no launches."""


def problem(family: str, elements: Sequence[Element], **sizes: int | str) -> str:
    """A problem in one line: "contract_mma float16,float16 M196 N512 ...". Problems of equal lines take equally long
    with each candidate.

    Args:
        elements: element types of operands and results.
        sizes: by name, all else that the time depends on.
    """
    types = ",".join(element.name.lower() for element in elements)
    return " ".join(
        [family, types, *(f"{name}{int(size) if isinstance(size, bool) else size}" for name, size in sizes.items())]
    )


def candidate(tile: Any, *split: int) -> str:
    """The name of a candidate: the numbers of its tile, a record of numbers, and how many share the work."""
    whole = tile if isinstance(tile, tuple) else numbers(tile)
    return "/".join(["-".join(map(str, flattened(whole))), *map(str, split)])


def numbers(tile: Any) -> tuple[Any, ...]:
    """The numbers of a tile, a record of numbers and tuples; `astuple` would copy each of them."""
    return tuple(getattr(tile, number.name) for number in fields(tile))


@dataclass(slots=True)
class Question:
    """A choice that a plan made.

    Attributes:
        step: writes the launches for which it was made.
        ranked: names of all candidates, by the cost model, the best first.
        launch: number of the first launch after the choice.
        uses: how often a plan asked for this problem.
    """

    step: Step
    ranked: tuple[str, ...]
    launch: int
    uses: int = 0


@dataclass(slots=True)
class Choices:
    """The candidates that a plan takes.

    Attributes:
        tuned: problem to candidate. One that is not offered any more is passed over.
        asked: the choices that were made, by problem.
    """

    tuned: Mapping[str, str] = field(default_factory=dict)
    asked: dict[str, Question] = field(default_factory=dict)

    def answer(self, problem: str, question: Question) -> str:
        """The candidate for a problem."""
        self.asked.setdefault(problem, question).uses += 1
        tuned = self.tuned.get(problem)
        return tuned if tuned in question.ranked else question.ranked[0]

    def used(self) -> dict[str, str]:
        """The tuned candidates that were taken, by problem."""
        taken = {problem: self.tuned.get(problem) for problem in self.asked}
        return {name: entry for name, entry in taken.items() if entry is not None and entry in self.asked[name].ranked}


Kernel = TypeVar("Kernel")


@dataclass(frozen=True, slots=True)
class Choice(Generic[Kernel]):
    """How a problem is computed.

    Attributes:
        parts: blocks that share out K, or keys.
        cycles: estimated cycles of all launches.
    """

    template: Kernel
    parts: int
    cycles: float
