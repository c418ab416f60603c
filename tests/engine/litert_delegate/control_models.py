"""Models whose subgraphs call each other, share variables or are entered by signatures."""

from __future__ import annotations

import numpy as np

from jitdelegate.tflite.write import GraphBuilder, ModelBuilder

SHAPE = (2, 3)
RESOURCE = {"container": "", "shared_name": "kept"}


def loop() -> bytes:
    """x is doubled and added to until a counter reaches the input's value."""
    model = ModelBuilder()
    condition, body = model.subgraph("condition"), model.subgraph("body")
    limit = model.input((), "int32", name="limit")
    x = model.input(SHAPE, name="x")
    start = model.constant(np.int32(0))
    results = [model.tensor(shape, dtype) for shape, dtype in (((), "int32"), ((), "int32"), (SHAPE, "float32"))]
    options = {"cond_subgraph_index": 1, "body_subgraph_index": 2}
    model.node("WHILE", [start, limit, x], results, options=options)
    one = model.constant(np.float32(1))
    model.output(model.op("ADD", [results[2], one], SHAPE))
    counter, limit, _ = _state(condition)
    condition.output(condition.op("LESS", [counter, limit], (), dtype="bool"))
    counter, limit, x = _state(body)
    body.output(body.op("ADD", [counter, body.constant(np.int32(1))], (), dtype="int32"), limit)
    body.output(body.op("MUL", [body.op("ABS", [x], SHAPE), body.constant(np.float32(1.5))], SHAPE))
    return model.finish()


def _state(graph: GraphBuilder) -> tuple[int, int, int]:
    return graph.input((), "int32"), graph.input((), "int32"), graph.input(SHAPE)


def choice() -> bytes:
    """x + 1 or x * 2, as the first input says."""
    model = ModelBuilder()
    branches = model.subgraph("then"), model.subgraph("else")
    decision = model.input((), "bool", name="decision")
    x = model.input(SHAPE, name="x")
    result = model.tensor(SHAPE)
    model.node("IF", [decision, x], [result], options={"then_subgraph_index": 1, "else_subgraph_index": 2})
    model.output(result)
    for branch, op in zip(branches, ("ADD", "MUL"), strict=True):
        branch.output(branch.op(op, [branch.input(SHAPE), branch.constant(np.float32(3))], SHAPE))
    return model.finish()


def variable() -> bytes:
    """A sum of all inputs so far, beginning with seven."""
    model = ModelBuilder()
    first = model.subgraph("first")
    x = model.input(SHAPE, name="x")
    model.node("CALL_ONCE", [], [], options={"init_subgraph_index": 1})
    handle = model.op("VAR_HANDLE", [], (), dtype="resource", options=RESOURCE)
    total = model.op("ADD", [model.op("READ_VARIABLE", [handle], SHAPE), x], SHAPE)
    model.node("ASSIGN_VARIABLE", [handle, total], [])
    model.output(model.op("MUL", [total, x], SHAPE))
    handle = first.op("VAR_HANDLE", [], (), dtype="resource", options=RESOURCE)
    first.node("ASSIGN_VARIABLE", [handle, first.constant(np.full(SHAPE, 7, np.float32))], [])
    return model.finish()


def signatures(skipped: bool = False) -> bytes:
    """Two subgraphs, entered as "add" and "multiply"; between them perhaps one that LiteRT offers to no delegate."""
    model = ModelBuilder()
    graphs = [model, *([model.subgraph("VALIDATION:main")] if skipped else []), model.subgraph("second")]
    for number, graph in enumerate(graphs):
        last = number == len(graphs) - 1
        x = graph.input(SHAPE, name=f"x{number}")
        result = graph.op("MUL" if last else "ADD", [x, graph.constant(np.float32(3))], SHAPE)
        graph.output(result)
        if graph is model or last:
            model.signature("multiply" if last else "add", {"x": x}, {"y": result}, number)
    return model.finish()


def late_shape() -> bytes:
    """The places of positive numbers, doubled: how many there are, only the data says."""
    model = ModelBuilder()
    x = model.input((6,), name="x")
    zero = model.constant(np.float32(0))
    places = model.op("WHERE", [model.op("GREATER", [x, zero], (6,), dtype="bool")], (1, 1), dtype="int64")
    model.output(model.op("ADD", [places, places], (1, 1), dtype="int64"))
    return model.finish()
