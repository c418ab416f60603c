"""Runs a lowered graph on the reference target through its program and session."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xxhash import xxh3_128_hexdigest

from jitdelegate.compiler.program_metadata import ports, states
from jitdelegate.ir.graph import Graph
from jitdelegate.program.program import Program
from jitdelegate.targets.reference.generate import generate
from jitdelegate.targets.reference.session import ReferenceSession
from tests.targets.execute import run, whole


def program_of(graph: Graph) -> Program:
    """A program without key, operators and notes."""
    generated = generate(graph, "reference")
    found = states(graph, generated.weights)
    return Program(
        key=(),
        target="reference",
        loader=generated.loader,
        inputs=tuple(port.altered(dtype=whole(port.dtype)) for port in ports(graph, graph.given)),
        outputs=tuple(port.altered(dtype=whole(port.dtype)) for port in ports(graph, graph.returned)),
        states=found,
        code=generated.code,
        weights=generated.weights,
        weights_hash=xxh3_128_hexdigest(generated.weights),
    )


def execute(graph: Graph, feeds: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a lowered graph."""
    session = ReferenceSession(program_of(graph))
    try:
        return run(session, graph, feeds)
    finally:
        session.close()
