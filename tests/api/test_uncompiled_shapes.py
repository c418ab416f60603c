"""Operators behind one that is not compiled are compiled all the same, if LiteRT knows their shapes before a run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT

import jitdelegate
from jitdelegate.base.options import DelegateOptions
from jitdelegate.commands.analysis.survey import analyze
from jitdelegate.engine import load_path
from jitdelegate.engine.executable import Executable
from jitdelegate.ir.graph import Quant
from jitdelegate.ops import OPS
from jitdelegate.ops.call import Call
from jitdelegate.passes.litert_shapes import litert_shapes
from jitdelegate.tflite.write import ModelBuilder
from tests.api import partial_models as partial
from tests.api.partial_models import ROADS

EIGHTH = Quant((0.125,), (3,))
FAKE = {"min": -1.0, "max": 1.0, "num_bits": 8}
ALL = {"only_ops": None}


def row_set() -> bytes:
    """z = tanh(x); z[:, i] = y; exp(z)"""
    model = ModelBuilder()
    x, y, i = model.input((2, 5, 4)), model.input((2, 1, 4)), model.input((1, 1), "int32")
    update = model.subgraph("update")
    update.input(())
    update.output(update.input(()))
    options = {
        "update_window_dims": (0, 2),
        "inserted_window_dims": (1,),
        "scatter_dims_to_operand_dims": (1,),
        "index_vector_dim": 1,
        "update_computation_subgraph_index": 1,
    }
    z = model.op("TANH", [x], (2, 5, 4))
    written = model.op("STABLEHLO_SCATTER", [z, i, model.op("RELU", [y], (2, 1, 4))], (2, 5, 4), options=options)
    model.output(model.op("EXP", [written], (2, 5, 4)))
    return model.finish()


def quotient() -> bytes:
    """int8: x + 0.5, divided by y + 0.5, plus x."""
    model = ModelBuilder()
    x, y = (model.input((1, 3, 4), "int8", quant=EIGHTH) for _ in range(2))
    half = model.constant(np.full(4, 7, np.int8), quant=EIGHTH)
    sums = [model.op("ADD", [each, half], (1, 3, 4), dtype="int8", quant=EIGHTH) for each in (x, y)]
    over = model.op("DIV", sums, (1, 3, 4), dtype="int8", quant=EIGHTH)
    model.output(model.op("ADD", [over, x], (1, 3, 4), dtype="int8", quant=EIGHTH))
    return model.finish()


def attention() -> bytes:
    """int8 products of two activations, with additions around; the file's shapes of what they write are no good."""
    model = ModelBuilder()
    q, k = model.input((2, 3, 4), "int8", quant=EIGHTH), model.input((2, 5, 4), "int8", quant=EIGHTH)
    scores = model.op("BATCH_MATMUL", [q, k], (1,), dtype="int8", quant=EIGHTH, options={"adj_y": True})
    doubled = model.op("ADD", [scores, scores], (1,), dtype="int8", quant=EIGHTH)
    found = model.op("BATCH_MATMUL", [doubled, k], (), dtype="int8", quant=EIGHTH)
    model.output(model.op("ADD", [found, q], (7, 7), dtype="int8", quant=EIGHTH))
    return model.finish()


def rows(*, batch: int = 1) -> bytes:
    """Any number of rows; FAKE_QUANT and BUCKETIZE are LiteRT's, and sizes behind them are computed from shapes."""
    model = ModelBuilder()
    x = model.input((batch, 4), name="x", shape_signature=(-1, 4))
    rough = model.op("FAKE_QUANT", [model.op("TANH", [x], (1, 4))], (1, 4), options=FAKE)
    places = model.op("BUCKETIZE", [rough], (1, 4), dtype="int32", options={"boundaries": (-0.5, 0.0, 0.25)})
    real = model.op("CAST", [places], (1, 4), options={"in_data_type": "INT32", "out_data_type": "FLOAT32"})
    size = model.op("SHAPE", [real], (2,), dtype="int32", options={"out_type": "INT32"})
    twice = model.op("MUL", [size, model.constant(np.array([2, 0], np.int32))], (2,), dtype="int32")
    wanted = model.op("ADD", [twice, model.constant(np.array([0, 2], np.int32))], (2,), dtype="int32")
    halves = model.op("EXP", [model.op("RESHAPE", [rough, wanted], (2, 2))], (2, 2))
    model.output(model.op("ADD", [real, rough], (1, 4)), halves)
    return model.finish()


MODELS: dict[str, Callable[[], bytes]] = {
    "row set": row_set,
    "quotient": quotient,
    "attention": attention,
    "rows": rows,
    "loop": partial.loop,
    "branch": partial.branch,
}
REFUSED = {"STABLEHLO_SCATTER", "DIV", "BATCH_MATMUL", "FAKE_QUANT", "BUCKETIZE", "WHILE", "IF"}
"""What may be left to LiteRT."""


@pytest.fixture(autouse=True)
def a_host() -> None:
    partial.skip_without_host()


def by_default(content: bytes, rounds: partial.Rounds) -> list[list[np.ndarray]]:
    """What LiteRT answers; compiled integers are those of its default delegate."""
    return partial.invoked(LiteRT(model_content=content), rounds)


def watched(monkeypatch: pytest.MonkeyPatch) -> list[Executable]:
    """Receives every program that is opened."""
    opened: list[Executable] = []
    monkeypatch.setattr(load_path, "DEBUG_LEVEL", 1)
    monkeypatch.setattr(load_path, "_log", opened.append)
    return opened


def left(operators: Any) -> list[str]:
    """Operators that LiteRT runs although it need not."""
    return [each.op for each in operators if each.place == "litert" and each.op not in REFUSED]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("loader", partial.LOADERS)
@pytest.mark.parametrize("road", ROADS)
def test_every_road_compiles_what_is_behind(name: str, loader: str, road: str, monkeypatch: pytest.MonkeyPatch) -> None:
    partial.choose_loader(monkeypatch, loader)
    content, opened = MODELS[name](), watched(monkeypatch)
    rounds = partial.rounds_for(content)
    partial.assert_same(ROADS[road](content, rounds, **ALL), by_default(content, rounds))
    assert [left(each.operators) for each in opened] == [[]] * len(opened)
    assert "cpu" in {each.place for executable in opened for each in executable.operators}


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("name", MODELS)
def test_every_target_compiles_what_is_behind(name: str, target: str) -> None:
    content = MODELS[name]()
    rounds = partial.rounds_for(content)
    with jitdelegate.load(content, options=partial.options(target=target, **ALL)) as model:
        assert left(model.report().operators) == []
        partial.assert_same(partial.called(model, rounds), by_default(content, rounds))


@pytest.mark.parametrize("road", ["load", "interpreter", "litert"])
@pytest.mark.parametrize("loader", partial.LOADERS)
def test_other_numbers_of_rows_have_other_shapes(road: str, loader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    partial.choose_loader(monkeypatch, loader)
    content, dice = rows(), np.random.default_rng(4)
    opened = watched(monkeypatch)
    rounds = [[dice.normal(size=(batch, 4)).astype(np.float32)] for batch in (1, 3, 8, 1)]
    partial.assert_same(ROADS[road](content, rounds, **ALL), by_default(content, rounds))
    assert len({each.shapes for each in opened}) == 3
    assert [left(each.operators) for each in opened] == [[]] * len(opened)


def mixed() -> bytes:
    """Operators of many kinds in one chain, whose shapes in the file are placeholders."""
    model, dice = ModelBuilder(), np.random.default_rng(6)
    x = model.input((1, 8, 8, 4))

    def weights(*shape: int) -> int:
        return model.constant(dice.normal(size=shape).astype(np.float32) / 4)

    def ints(*values: Any) -> int:
        return model.constant(np.array(values, np.int32))

    window = {"padding": "SAME", "stride_w": 1, "stride_h": 1}
    pool = {"padding": "VALID", "stride_w": 2, "stride_h": 2, "filter_width": 2, "filter_height": 2}
    y = model.op("CONV_2D", [x, weights(6, 3, 3, 4), weights(6)], (1, 1, 1, 1), options=window)
    y = model.op(
        "DEPTHWISE_CONV_2D", [y, weights(1, 3, 3, 6), weights(6)], (), options=window | {"depth_multiplier": 1}
    )
    y = model.op("MAX_POOL_2D", [y], (1,), options=pool)
    y = model.op("PAD", [y, ints((0, 0), (1, 1), (1, 1), (0, 0))], (1,))
    y = model.op("TRANSPOSE", [y, ints(0, 3, 1, 2)], (1, 1))
    y = model.op("STRIDED_SLICE", [y, ints(0, 0, 1, 1), ints(1, 6, 5, 5), ints(1, 1, 1, 1)], (1,))
    y = model.op("RESHAPE", [y, ints(1, 6, 16)], (1,))
    y = model.op("CONCATENATION", [y, y], (2,), options={"axis": 2})
    y = model.op("BATCH_MATMUL", [y, weights(1, 32, 5)], (1,))
    y = model.op("SOFTMAX", [y], (1,), options={"beta": 1.0})
    first, second = model.tensor((1,)), model.tensor((1,))
    model.node("SPLIT", [model.constant(np.int32(1)), y], [first, second], options={"num_splits": 2})
    y = model.op("SUB", [first, second], (1,))
    y = model.op("GATHER", [y, ints(4, 2, 0)], (1,), options={"axis": 2})
    y = model.op("MEAN", [y, ints(1)], (1,), options={"keep_dims": False})
    y = model.op("FULLY_CONNECTED", [y, weights(7, 3), weights(7)], (1,))
    model.output(model.op("LOGISTIC", [y], (1,)))
    return model.finish()


MIXED = ("CONV_2D", "DEPTHWISE_CONV_2D", "MAX_POOL_2D", "PAD", "TRANSPOSE", "STRIDED_SLICE", "RESHAPE", "CONCATENATION")
MIXED += ("BATCH_MATMUL", "SOFTMAX", "SPLIT", "SUB", "GATHER", "MEAN", "FULLY_CONNECTED", "LOGISTIC")


@pytest.mark.parametrize("op", MIXED)
def test_whatever_type_is_refused_all_others_are_compiled(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(OPS, op)
    content = mixed()
    rounds = partial.rounds_for(content, 2)
    with jitdelegate.load(content, options=partial.options(**ALL)) as model:
        assert {each.op for each in model.report().operators if each.place == "litert"} == {op}
        partial.assert_same(partial.called(model, rounds), partial.expected(content, rounds))


def scarce() -> bytes:
    """WHERE, of whose result LiteRT knows no shape before a run, and SHAPE of that; beside FAKE_QUANT and EXP."""
    model = ModelBuilder()
    soft = model.op("TANH", [model.input((2, 3))], (2, 3))
    above = model.op("GREATER", [soft, model.constant(np.float32(0))], (2, 3), dtype="bool")
    places = model.op("WHERE", [above], (0, 2), dtype="int64")
    count = model.op("SHAPE", [places], (2,), dtype="int32", options={"out_type": "INT32"})
    model.output(model.op("EXP", [model.op("FAKE_QUANT", [soft], (2, 3), options=FAKE)], (2, 3)), count)
    return model.finish()


@pytest.mark.parametrize("loader", partial.LOADERS)
@pytest.mark.parametrize("road", ROADS)
def test_what_follows_from_values_stays_with_litert(road: str, loader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    partial.choose_loader(monkeypatch, loader)
    content = scarce()
    rounds = partial.rounds_for(content)
    partial.assert_same(ROADS[road](content, rounds, **ALL), partial.expected(content, rounds))
    with jitdelegate.load(content, options=partial.options(**ALL)) as model:
        places = {each.op: each.place for each in model.report().operators}
    assert places == {
        "TANH": "cpu",
        "GREATER": "cpu",
        "WHERE": "litert",
        "SHAPE": "litert",
        "FAKE_QUANT": "litert",
        "EXP": "cpu",
    }


@pytest.mark.parametrize("loader", partial.LOADERS)
@pytest.mark.parametrize("road", ROADS)
def test_a_wrong_shape_costs_time_and_never_an_answer(road: str, loader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Should LiteRT find another shape as it runs than it said before."""

    def lie(call: Call, graphs: Any = ()) -> tuple[tuple[int, ...], ...] | None:
        found = litert_shapes(call, graphs)
        return found and tuple((*shape[:-1], shape[-1] + 1) for shape in found)

    partial.choose_loader(monkeypatch, loader)
    monkeypatch.setattr(sys.modules["jitdelegate.passes.infer_shapes"], "litert_shapes", lie)
    model = ModelBuilder()
    rough = model.op("FAKE_QUANT", [model.op("TANH", [model.input((2, 3))], (2, 3))], (2, 3), options=FAKE)
    model.output(model.op("EXP", [rough], (2, 3)))
    content = model.finish()
    rounds = partial.rounds_for(content)
    partial.assert_same(ROADS[road](content, rounds, **ALL), partial.expected(content, rounds))


def test_analysis_agrees(tmp_path: Path) -> None:
    for name, make in MODELS.items():
        path = tmp_path / f"{name}.tflite"
        path.write_bytes(make())
        subgraphs = analyze(str(path), DelegateOptions(**partial.options(**ALL))).subgraphs
        assert [left(subgraph.nodes) for subgraph in subgraphs] == [[]] * len(subgraphs), name
