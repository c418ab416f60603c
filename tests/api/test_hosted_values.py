"""Shapes, signatures and variables of models in LiteRT's interpreter with compiled partitions in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT

import jitdelegate
from jitdelegate.engine.litert_delegate import callbacks
from jitdelegate.tflite.write import ModelBuilder
from tests.api import partial_models as partial
from tests.api import resource_models
from tests.api.partial_models import ROADS


@pytest.fixture(autouse=True)
def a_host() -> None:
    partial.skip_without_host()


def test_inputs_are_resized_to_other_shapes_and_back() -> None:
    content, dice = partial.alternating(open_batch=True), np.random.default_rng(2)
    rounds = [[dice.normal(size=(batch, 4)).astype(np.float32)] for batch in (1, 3, 7, 1, 3, 2, 5, 4, 9, 8, 1)]
    before = callbacks.python_invocations
    partial.assert_same(partial.by_litert(content, rounds), partial.expected(content, rounds))
    assert callbacks.python_invocations == before
    rounds = [[np.zeros((0, 4), np.float32)], rounds[1]]
    partial.assert_same(partial.by_litert(content, rounds), partial.expected(content, rounds))


def test_a_signature_runs_with_the_shapes_of_its_arguments() -> None:
    content, dice = partial.alternating(open_batch=True, signature=True), np.random.default_rng(3)
    ours, theirs = partial.litert(content), LiteRT(model_content=content)
    for batch in (1, 4, 2, 4, 1):
        x = dice.normal(size=(batch, 4)).astype(np.float32)
        wanted = theirs.get_signature_runner("serve")(x=x)
        found = ours.get_signature_runner("serve")(x=x)
        partial.assert_same([[found[name] for name in sorted(wanted)]], [[wanted[name] for name in sorted(wanted)]])


@pytest.mark.parametrize("make", [partial.litert, partial.interpreter])
def test_variables_are_reset_as_in_litert(make: Callable[[bytes], Any]) -> None:
    content = partial.remembering()
    rounds = partial.rounds_for(content, 9)
    pair = LiteRT(model_content=content), make(content)
    answers: list[list[Any]] = [[], []]
    for turn, values in enumerate(rounds):
        for interpreter, found in zip(pair, answers, strict=True):
            if turn in (0, 6):
                interpreter.allocate_tensors()
            if turn in (3, 7):
                interpreter.reset_all_variables()
            interpreter.set_tensor(interpreter.get_input_details()[0]["index"], values[0])
            interpreter.invoke()
            found.append([interpreter.get_tensor(each["index"]) for each in interpreter.get_output_details()])
    partial.assert_same(answers[1], answers[0])


def shape_inputs() -> bytes:
    """f32[4], i32[2] -> TANH, NEG, TANH of a RESHAPE to what the second says."""
    model = ModelBuilder()
    shaped = model.op("RESHAPE", [model.input((4,)), model.input((2,), "int32")], (2, 2))
    for op in ("TANH", "NEG", "TANH"):
        shaped = model.op(op, [shaped], (2, 2))
    model.output(shaped)
    return model.finish()


@pytest.mark.parametrize("api", ["load", "interpreter"])
def test_an_interpreter_with_values_in_it_is_not_replaced(api: str) -> None:
    rounds = [[np.arange(4, dtype=np.float32) / 3, np.array(s, np.int32)] for s in ((2, 2), (4, 1), (1, 4), (2, 2))]
    content = shape_inputs()
    found = ROADS[api](content, rounds, only_ops=("TANH", "RESHAPE"))
    partial.assert_same(found, partial.expected(content, rounds))


def remembered() -> bytes:
    """Two signatures over one resource variable: LiteRT runs all of "left", "both" has compiled parts as well."""
    model = ModelBuilder()
    both, first = model.subgraph("both"), model.subgraph("first")
    resource_models.assign(first, "sum", np.full((1, 4), -0.5, np.float32))
    for key, graph in (("left", model), ("both", both)):
        graph.node("CALL_ONCE", [], [], options={"init_subgraph_index": 2})
        handle = resource_models.handle(graph, "sum")
        x = graph.input((1, 4), name=f"{key} x")
        value = graph.op("TANH", [x], (1, 4)) if key == "both" else x
        found = graph.op("NEG", [graph.op("READ_VARIABLE", [handle], (1, 4))], (1, 4))
        total = graph.op("MAXIMUM", [found, value], (1, 4), name=f"{key} total")
        graph.node("ASSIGN_VARIABLE", [handle, total], [])
        graph.output(total)
        model.signature(key, {"x": x}, {"total": total}, int(key == "both"))
    return model.finish()


@pytest.mark.parametrize("api", ["load", "interpreter"])
def test_variables_outlive_the_first_run_of_another_signature(api: str) -> None:
    content = remembered()
    runners: list[Callable[[str, np.ndarray], Any]] = []
    theirs = LiteRT(model_content=content)
    runners.append(lambda key, x: theirs.get_signature_runner(key)(x=x)["total"])
    if api == "load":
        model = jitdelegate.load(content, options=partial.options())
        runners.append(lambda key, x: np.asarray(model.run({"x": x}, key)["total"]))
    else:
        ours = partial.interpreter(content)
        runners.append(lambda key, x: ours.get_signature_runner(key)(x=x)["total"])
    dice = np.random.default_rng(8)
    for key in ("left", "left", "both", "left", "both"):
        x = dice.normal(size=(1, 4)).astype(np.float32)
        wanted, found = (runner(key, x) for runner in runners)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_a_loaded_model_with_variables_in_litert_is_reset() -> None:
    for content in (partial.remembering(), resource_models.streaming()):
        rounds = partial.rounds_for(content, 4)
        wanted = partial.expected(content, rounds)
        with jitdelegate.load(content, options=partial.options()) as model:
            for _ in range(2):
                partial.assert_same(partial.called(model, rounds), wanted)
                model.reset_all_variables()


def test_other_shapes_keep_resource_variables_where_litert_hosts() -> None:
    model = ModelBuilder()
    x = model.input((1, 2), name="x", shape_signature=(-1, 2))
    soft = model.op("TANH", [x], (1, 2))
    model.node("CALL_ONCE", [], [], options={"init_subgraph_index": 1})
    handle = resource_models.handle(model, "count")
    one = model.constant(np.ones(1, np.float32))
    more = model.op("ADD", [model.op("READ_VARIABLE", [handle], (1,)), one], (1,))
    model.node("ASSIGN_VARIABLE", [handle, more], [])
    model.output(model.op("NEG", [soft], (1, 2)), more)
    start = model.subgraph("start")
    resource_models.assign(start, "count", np.zeros(1, np.float32))
    content = model.finish()
    rounds = [[np.ones((batch, 2), np.float32)] for batch in (1, 3, 1, 2, 3, 4, 5, 1)]
    wanted = partial.expected(content, rounds)
    assert [each[1].tolist() for each in wanted] == [[count] for count in range(1, 9)]
    for api in ROADS:
        partial.assert_same(ROADS[api](content, rounds, only_ops=("TANH",)), wanted)


def counting() -> bytes:
    """Signatures "count" and "double" of two subgraphs, the first of which counts its runs in a resource variable."""
    model = ModelBuilder()
    x = model.input((1, 2), name="x")
    model.node("CALL_ONCE", [], [], options={"init_subgraph_index": 2})
    handle = resource_models.handle(model, "count")
    more = model.op(
        "ADD", [model.op("READ_VARIABLE", [handle], (1,)), model.constant(np.ones(1, np.float32))], (1,), name="more"
    )
    model.node("ASSIGN_VARIABLE", [handle, more], [])
    model.output(model.op("NEG", [model.op("TANH", [x], (1, 2))], (1, 2), name="y"), more)
    model.signature("count", {"x": x}, {"more": more})
    second, start = model.subgraph("second"), model.subgraph("start")
    v = second.input((1, 2), name="v")
    w = second.op("MUL", [second.op("NEG", [second.op("TANH", [v], (1, 2))], (1, 2)), v], (1, 2), name="w")
    second.output(w)
    model.signature("double", {"v": v}, {"w": w}, 1)
    resource_models.assign(start, "count", np.zeros(1, np.float32))
    return model.finish()


def test_other_signatures_leave_variables_where_they_are() -> None:
    value = np.ones((1, 2), np.float32)
    content = counting()
    interpreter = partial.interpreter(content, only_ops=("TANH", "MUL"))
    with jitdelegate.load(content, options=partial.options(only_ops=("TANH", "MUL"))) as model:
        assert model._opened.program.loader == "delegate"
        for turn in range(1, 4):
            assert np.asarray(model.run({"x": value}, "count")["more"]).tolist() == [turn]
            assert interpreter.get_signature_runner("count")(x=value)["more"].tolist() == [turn]
            wanted = LiteRT(model_content=content).get_signature_runner("double")(v=value)["w"]
            np.testing.assert_allclose(np.asarray(model.run({"v": value}, "double")["w"]), wanted, rtol=1e-5)
            np.testing.assert_allclose(interpreter.get_signature_runner("double")(v=value)["w"], wanted, rtol=1e-5)


def test_the_interpreter_itself_follows_other_shapes() -> None:
    content = partial.alternating(open_batch=True)
    with jitdelegate.load(content, options=partial.options()) as model:
        assert model._opened.program.loader == "delegate"
        for batch in (3, 1, 5, 7, 9):
            rounds = [[np.ones((batch, 4), np.float32)]]
            partial.assert_same(partial.called(model, rounds), partial.expected(content, rounds))
        assert not model.report().notes
