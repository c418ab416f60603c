"""Models with resource variables, as converters write streaming networks."""

from __future__ import annotations

import numpy as np

from jitdelegate.tflite.write import GraphBuilder, ModelBuilder

FRAMES, CHANNELS = 3, 4


def streaming(*, first: float = 0.25, initialized: bool = True) -> bytes:
    """f32[1,1,4] -> the sum, weighted by channel and time, of the last three frames; and how many frames there were.

    The frames and their number are resource variables; CALL_ONCE sets them unless `initialized` is False.
    """
    model = ModelBuilder()
    if initialized:
        model.node("CALL_ONCE", [], [], options={"init_subgraph_index": 1})
    frame = model.input((1, 1, CHANNELS), name="frame")
    frames = handle(model, "frames")
    before = model.op("READ_VARIABLE", [frames], (1, FRAMES, CHANNELS))
    joined = model.op("CONCATENATION", [before, frame], (1, FRAMES + 1, CHANNELS), options={"axis": 1})
    begin, size = model.constant(np.array([0, 1, 0], np.int32)), model.constant(np.array([-1, -1, -1], np.int32))
    kept = model.op("SLICE", [joined, begin, size], (1, FRAMES, CHANNELS))
    model.node("ASSIGN_VARIABLE", [frames, kept], [])
    counter = handle(model, "count")
    one, count = model.constant(np.ones(1, np.float32)), model.op("READ_VARIABLE", [counter], (1,))
    more = model.op("ADD", [count, one], (1,))
    model.node("ASSIGN_VARIABLE", [counter, more], [])
    weights = np.arange(1, 1 + FRAMES * CHANNELS, dtype=np.float32).reshape(1, FRAMES, CHANNELS)
    weighted = model.op("MUL", [kept, model.constant(weights)], weights.shape)
    axes = model.constant(np.array([1, 2], np.int32))
    total = model.op("SUM", [weighted, axes], (1,), options={"keep_dims": False})
    model.output(model.op("ADD", [total, more], (1,)))
    start = model.subgraph("init")
    assign(start, "frames", np.full((1, FRAMES, CHANNELS), first, np.float32))
    assign(start, "count", np.zeros(1, np.float32))
    return model.finish()


def ring(rows: int = 6) -> bytes:
    """f32[1,1,4], i32[3] -> the sums of the rows of a resource variable, of which the first replaces one."""
    model = ModelBuilder()
    model.node("CALL_ONCE", [], [], options={"init_subgraph_index": 1})
    row, place = model.input((1, 1, CHANNELS), name="row"), model.input((3,), "int32", name="place")
    kept = handle(model, "rows")
    before = model.op("READ_VARIABLE", [kept], (1, rows, CHANNELS))
    after = model.op("DYNAMIC_UPDATE_SLICE", [before, row, place], (1, rows, CHANNELS))
    model.node("ASSIGN_VARIABLE", [kept, after], [])
    axes = model.constant(np.array([1], np.int32))
    model.output(model.op("SUM", [after, axes], (1, CHANNELS), options={"keep_dims": False}, name="sums"))
    assign(model.subgraph("init"), "rows", np.full((1, rows, CHANNELS), 0.5, np.float32))
    return model.finish()


def handle(graph: GraphBuilder, name: str) -> int:
    return graph.op("VAR_HANDLE", [], (), dtype="resource", options={"container": "", "shared_name": name})


def assign(graph: GraphBuilder, name: str, value: np.ndarray) -> None:
    graph.node("ASSIGN_VARIABLE", [handle(graph, name), graph.constant(value)], [])
