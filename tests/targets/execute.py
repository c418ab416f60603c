"""Runs a lowered graph on the CPU target through the runtime, as a compiled model does."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from xxhash import xxh3_128_hexdigest

from jitdelegate.base.targets import EXACT
from jitdelegate.errors import RefusedValueError
from jitdelegate.ir.graph import Graph
from jitdelegate.program.program import Port, Program
from jitdelegate.runtime.cpu.session import Session
from jitdelegate.runtime.io_binding import IOBinding
from jitdelegate.targets.cpu.generate import generate
from jitdelegate.targets.target import Generated


def program_of(graph: Graph, generated: Generated, features: str, target: str = "cpu") -> Program:
    """A program without operators and notes."""
    return Program(
        key=(("model", "0" * 32), ("target", target)),
        target=target,
        features=features,
        inputs=tuple(port_of(graph, i) for i in graph.inputs),
        outputs=tuple(port_of(graph, i) for i in graph.outputs),
        weights_hash=xxh3_128_hexdigest(generated.weights),
        **generated.of_program(),
    )


def port_of(graph: Graph, index: int) -> Port:
    """The port of an input or output of a program."""
    tensor = graph.tensors[index]
    size = tensor.size * np.dtype(tensor.dtype).itemsize
    return Port(name=tensor.name, index=index, shape=tensor.shape, dtype=whole(tensor.dtype), nbytes=size)


def whole(dtype: str) -> str:
    """Complex numbers, which programs do not exchange with callers, as integers of 64 bits."""
    return "int64" if dtype == "complex64" else dtype


def run(session: IOBinding, graph: Graph, feeds: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a session of the graph."""
    outputs = session.run([feed.view(whole(str(feed.dtype))) for feed in feeds])
    types = [graph.tensors[index].dtype for index in graph.returned]
    return [np.array(output).view(dtype) for output, dtype in zip(outputs, types, strict=True)]


def execute(
    graph: Graph, feeds: Sequence[np.ndarray], features: str, *, threads: int = 1, precision: str = EXACT
) -> list[np.ndarray]:
    """The outputs of a lowered graph; the arena is dirtied by a first run with other values."""
    session = Session(program_of(graph, generate(graph, features, precision=precision), features), threads)
    try:
        with suppress(RefusedValueError):  # 3 may be no index of what it indexes
            run(session, graph, [np.full_like(feed, 3) for feed in feeds])
        return run(session, graph, feeds)
    finally:
        session.close()
