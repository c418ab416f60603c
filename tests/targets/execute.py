"""Runs a lowered graph on the CPU target through the runtime, as a compiled model does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xxhash import xxh3_128_hexdigest

from jitdelegate.ir.graph import Graph
from jitdelegate.program.program import Port, Program
from jitdelegate.runtime.cpu.session import Session
from jitdelegate.targets.cpu.generate import generate
from jitdelegate.targets.target import Generated


def program_of(graph: Graph, generated: Generated, features: str) -> Program:
    """A program without key, operators and notes."""
    return Program(
        key=(),
        target="cpu",
        features=features,
        loader=generated.loader,
        inputs=tuple(_port(graph, i) for i in graph.inputs),
        outputs=tuple(_port(graph, i) for i in graph.outputs),
        arena_bytes=generated.arena_bytes,
        scratch_bytes=generated.scratch_bytes,
        sync_bytes=generated.sync_bytes,
        entries=generated.entries,
        code=generated.code,
        weights=generated.weights,
        weights_hash=xxh3_128_hexdigest(generated.weights),
    )


def _port(graph: Graph, index: int) -> Port:
    tensor = graph.tensors[index]
    size = tensor.size * np.dtype(tensor.dtype).itemsize
    return Port(name=tensor.name, index=index, shape=tensor.shape, dtype=tensor.dtype, nbytes=size)


def execute(graph: Graph, feeds: Sequence[np.ndarray], features: str, *, threads: int = 1) -> list[np.ndarray]:
    """The outputs of a lowered graph; the arena is dirtied by a first run with other values."""
    session = Session(program_of(graph, generate(graph, features), features), threads)
    try:
        session.run([np.full_like(feed, 3) for feed in feeds])
        return [np.array(output) for output in session.run(list(feeds))]
    finally:
        session.close()
