"""Weights are numbers, never addresses: whatever bytes they have, compiled code stays inside its memory."""

from __future__ import annotations

import random

import pytest

from jitdelegate.ops import OPS
from jitdelegate.ops.case import Case
from jitdelegate.passes.lower import lower
from jitdelegate.targets.cpu.generate import generate
from jitdelegate.targets.host import level
from scripts.in_child import Failed, in_child
from tests.targets.execute import program_of
from tests.targets.fenced import Machine

FEATURES = level()
SECONDS = 60
CASES = {
    name: [case for case in op.cases if op.check(case.graph(op), case.graph(op).nodes[0]) is None]
    for name, op in OPS.items()
}

pytestmark = pytest.mark.skipif(FEATURES == "generic", reason="fenced memory takes flat code, which needs x86-64-v3")


def garbage(nbytes: int) -> list[bytes]:
    """What a file may hold that somebody writes: ones, the largest and smallest integers, noise."""
    words = (b"\xff", b"\xff\xff\xff\x7f", b"\0\0\0\0\0\0\0\x80", b"\x40\x42\x0f\0")
    patterns = [(word * (nbytes // len(word) + 1))[:nbytes] for word in words]
    return [*patterns, random.Random(nbytes).randbytes(nbytes)]


def run_damaged(name: str, case: Case) -> int:
    """The number of runs that came to an end."""
    op = OPS[name]
    graph = lower(case.graph(op))
    program = program_of(graph, generate(graph, FEATURES), FEATURES)
    machine = Machine(graph, program, 1, at_end=True)
    try:
        for content in garbage(len(program.weights)):
            machine.weights.fill(content)
            machine.run(case.feeds())
    finally:
        machine.close()
    return len(garbage(0))


@pytest.mark.parametrize("name", [name for name, cases in CASES.items() if cases])
def test_code_stays_inside_its_memory_whatever_the_weights_are(name: str) -> None:
    jobs = [lambda case=case: run_damaged(name, case) for case in CASES[name]]  # type: ignore[misc]
    answers = list(in_child(jobs, SECONDS))
    assert [answer.reason for answer in answers if isinstance(answer, Failed)] == []
