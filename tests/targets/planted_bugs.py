"""Bugs planted in the PTX of one kernel of a graph, to see whether the simulator or a result shows them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from jitdelegate.ir.graph import Graph
from jitdelegate.targets.cuda.code.template import Template
from tests.gpu.mutate import Mutation, NoSuchPlaceError
from tests.gpu.simulator import SimulationError
from tests.targets import cuda_execute
from tests.targets.cuda_execute import ptx_of, templates_of
from tests.targets.cuda_graphs import compare

Bug = Callable[[str, int], str]
"""Plants a bug in the place of that number; NoSuchPlaceError where there are fewer."""


def replaced(pattern: str, replacement: str) -> Bug:
    """A bug that changes what matches a pattern."""
    return Mutation(f"(?s){pattern}", lambda match: match.expand(replacement))


@dataclass(frozen=True)
class Planting:
    """A graph, the family of its kernel that gets bugs, and the tolerance of results without a bug."""

    graph: Graph
    family: str
    precision: str = "float16"
    architecture: str = "sm_90"
    tolerance: float = 1e-2

    @property
    def template(self) -> Template:
        """The kernel that gets bugs."""
        found = templates_of(self.graph, self.architecture, self.precision)
        return next(one for one in found if one.family == self.family)

    @property
    def sound(self) -> str:
        """Its text without a bug."""
        return ptx_of(self.template, self.architecture)

    def is_seen(self, monkeypatch: pytest.MonkeyPatch, ptx: str) -> bool:
        """Whether any order of warps gives wrong numbers with this text, or the simulator objects."""
        texts = {self.template: ptx}
        monkeypatch.setattr(cuda_execute, "ptx_of", lambda one, kind: texts.get(one) or ptx_of(one, kind))
        how = {"tolerance": self.tolerance, "architecture": self.architecture}
        for schedule in ("lockstep", "random"):
            try:
                compare(self.graph, self.precision, **how, schedule=schedule)
            except (SimulationError, AssertionError):
                return True
        return False

    def unseen(self, monkeypatch: pytest.MonkeyPatch, bug: Bug, places: int) -> list[int]:
        """The places among the first so many in which nobody sees the bug; it fits in one at least."""
        found = []
        for number in range(places):
            try:
                text = bug(self.sound, number)
            except NoSuchPlaceError:
                assert number, "there is no place for the bug"
                break
            if not self.is_seen(monkeypatch, text):
                found.append(number)
        return found
