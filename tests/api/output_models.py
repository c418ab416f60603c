"""Models whose outputs are not simply what the last operator of the first subgraph writes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from flatbuffers.flexbuffers import Builder

from jitdelegate.tflite.write import GraphBuilder, ModelBuilder
from tests.api.resource_models import assign, handle

SHAPE = (2, 3)


def _finish(model: ModelBuilder, x: int, *outputs: int) -> bytes:
    model.output(*outputs)
    model.signature("serve", {"x": x}, {f"y{place}": index for place, index in enumerate(dict.fromkeys(outputs))})
    return model.finish()


def _branch(model: ModelBuilder, write: Callable[[GraphBuilder, int], int]) -> None:
    graph = model.subgraph()
    graph.output(write(graph, graph.input(SHAPE)))


def add_composite(model: ModelBuilder, number: int, x: int, y: int) -> None:
    attributes = Builder()
    attributes.MapFromElements({})
    options = {
        "name": "odml.any",
        "decomposition_subgraph_index": number,
        "composite_attributes": bytes(attributes.Finish()),
    }
    model.node("STABLEHLO_COMPOSITE", [x], [y], options=options)


def _squared(graph: GraphBuilder, x: int) -> int:
    return graph.op("MUL", [x, x], SHAPE)


def composite() -> bytes:
    """A composite's decomposition makes the output."""
    model = ModelBuilder()
    x, y = model.input(SHAPE, name="x"), model.tensor(SHAPE, name="y")
    add_composite(model, 1, x, y)
    _branch(model, _squared)
    return _finish(model, x, y)


def composite_of_itself() -> bytes:
    """A composite hands on its input, and a second one answers a constant."""
    model = ModelBuilder()
    x, y, z = model.input(SHAPE, name="x"), model.tensor(SHAPE, name="y"), model.tensor(SHAPE, name="z")
    for number, output in ((1, y), (2, z)):
        add_composite(model, number, x, output)
    _branch(model, lambda graph, own: own)
    _branch(model, lambda graph, own: graph.constant(np.full(SHAPE, 3, np.float32)))
    return _finish(model, x, y, z)


def branch() -> bytes:
    """An IF whose condition is a constant makes the output."""
    model = ModelBuilder()
    x, y = model.input(SHAPE, name="x"), model.tensor(SHAPE, name="y")
    options = {"then_subgraph_index": 1, "else_subgraph_index": 2}
    model.node("IF", [model.constant(np.array(True)), x], [y], options=options)
    _branch(model, _squared)
    _branch(model, lambda graph, own: graph.op("NEG", [own], SHAPE))
    return _finish(model, x, y)


def loop(rounds: int) -> bytes:
    """A WHILE of so many rounds makes the output."""
    model = ModelBuilder()
    x, counter, y = model.input(SHAPE, name="x"), model.tensor((), "int32"), model.tensor(SHAPE, name="y")
    options = {"cond_subgraph_index": 1, "body_subgraph_index": 2}
    model.node("WHILE", [model.constant(np.int32(0)), x], [counter, y], options=options)
    condition, body = model.subgraph(), model.subgraph()
    count, _ = condition.input((), "int32"), condition.input(SHAPE)
    condition.output(condition.op("LESS", [count, condition.constant(np.int32(rounds))], (), dtype="bool"))
    count, value = body.input((), "int32"), body.input(SHAPE)
    body.output(body.op("ADD", [count, body.constant(np.int32(1))], (), dtype="int32"), _squared(body, value))
    return _finish(model, x, y)


def input_again() -> bytes:
    """The input is an output too, beside its square, which is answered twice."""
    model = ModelBuilder()
    x = model.input(SHAPE, name="x")
    y = _squared(model, x)
    return _finish(model, x, x, y, y)


def constant() -> bytes:
    """A constant is an output, and so is one that folds."""
    model = ModelBuilder()
    x, three = model.input(SHAPE, name="x"), model.constant(np.full(SHAPE, 3, np.float32), name="three")
    return _finish(model, x, _squared(model, x), three, model.op("NEG", [three], SHAPE))


def resource() -> bytes:
    """What a resource variable held before the run and what it holds after it are outputs."""
    model = ModelBuilder()
    model.node("CALL_ONCE", [], [], options={"init_subgraph_index": 1})
    x, kept = model.input(SHAPE, name="x"), handle(model, "kept")
    before = model.op("READ_VARIABLE", [kept], SHAPE)
    model.node("ASSIGN_VARIABLE", [kept, model.op("ADD", [before, x], SHAPE)], [])
    after = model.op("READ_VARIABLE", [kept], SHAPE)
    assign(model.subgraph(), "kept", np.full(SHAPE, 7, np.float32))
    return _finish(model, x, before, after)


def variable() -> bytes:
    """The state of an SVDF is an output beside its result."""
    model = ModelBuilder()
    x, state = model.input((1, 3), name="x"), model.variable((1, 4), name="state")
    filters = [
        model.constant(np.arange(1, 7, dtype=np.float32).reshape(2, 3)),
        model.constant(np.ones((2, 2), np.float32)),
    ]
    y = model.op("SVDF", [x, *filters, None, state], (1, 2), options={"rank": 1}, name="y")
    return _finish(model, x, y, state)


def between() -> bytes:
    """x + 3, called "between", is squared."""
    model = ModelBuilder()
    x, three = model.input(SHAPE, name="x"), model.constant(np.full(SHAPE, 3, np.float32), name="three")
    return _finish(model, x, _squared(model, model.op("ADD", [x, three], SHAPE, name="between")))


MODELS = {
    "composite": composite(),
    "composite of itself": composite_of_itself(),
    "branch": branch(),
    "loop": loop(3),
    "loop of no rounds": loop(0),
    "input": input_again(),
    "constant": constant(),
    "resource": resource(),
    "variable": variable(),
}
