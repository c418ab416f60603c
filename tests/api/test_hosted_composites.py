"""Composites in LiteRT's own interpreter: compiled like other operators, and what comes behind them too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT

import jitdelegate
from jitdelegate.engine.litert_delegate import callbacks
from jitdelegate.tflite.write import GraphBuilder, ModelBuilder
from tests.api import partial_models as partial
from tests.api.output_models import MODELS, SHAPE, add_composite

VALUES = [np.linspace(-2, 2, 6, dtype=np.float32).reshape(SHAPE) * scale for scale in (1, -3, 0.5)]


@pytest.fixture(autouse=True)
def a_host() -> None:
    partial.skip_without_host()


def between(unknown: str = "SQUARE") -> bytes:
    """TANH, a composite of two operators, EXP behind it; `unknown` is one of the composite's."""
    model = ModelBuilder()
    x, inside = model.input(SHAPE, name="x"), model.tensor(SHAPE, name="inside")
    add_composite(model, 1, model.op("TANH", [x], SHAPE), inside)
    model.output(model.op("EXP", [inside], SHAPE, name="y"))
    decomposition: GraphBuilder = model.subgraph("decomposition")
    own = decomposition.input(SHAPE)
    options = {"min": -1.0, "max": 1.0, "num_bits": 8} if unknown == "FAKE_QUANT" else {}
    decomposition.output(decomposition.op("NEG", [decomposition.op(unknown, [own], SHAPE, options=options)], SHAPE))
    return model.finish()


def hosted(content: bytes, cache: Path | bool) -> tuple[LiteRT, jitdelegate.GpuDelegate]:
    delegate = jitdelegate.GpuDelegate(target="cpu", serialization_dir=cache, partitioning="all")
    return LiteRT(model_content=content, experimental_delegates=[delegate]), delegate


def test_a_composite_and_what_is_behind_it_are_one_partition(tmp_path: Path) -> None:
    before = set(callbacks.kernels)
    interpreter, delegate = hosted(between(), tmp_path)
    rounds = [[value] for value in VALUES]
    partial.assert_same(partial.invoked(interpreter, rounds), partial.expected(between(), rounds))
    assert [callbacks.kernels[number].nodes for number in set(callbacks.kernels) - before] == [(0, 1, 2)]
    report = delegate.report()
    assert report is not None and report.fully_delegated


def test_a_decomposition_is_no_program(tmp_path: Path) -> None:
    """LiteRT offers it to delegates, and never runs it."""
    for name in ("composite", "composite of itself"):
        interpreter, _ = hosted(MODELS[name], tmp_path / name)
        partial.invoked(interpreter, [[VALUES[0]]])
        assert len([*(tmp_path / name).glob("*.jitd")]) == 1


def test_a_composite_that_is_not_compiled_whole_is_litert_s() -> None:
    content = between("FAKE_QUANT")
    interpreter, delegate = hosted(content, False)
    rounds = [[value] for value in VALUES]
    partial.assert_same(partial.invoked(interpreter, rounds), partial.expected(content, rounds))
    report = delegate.report()
    assert report is not None
    assert [(one.op, one.place) for one in report.operators] == [
        ("TANH", "cpu"),
        ("STABLEHLO_COMPOSITE", "litert"),
        ("EXP", "cpu"),
    ]


@pytest.mark.parametrize("content", [between(), between("FAKE_QUANT")], ids=["whole", "part"])
def test_every_road_answers_the_same(content: bytes) -> None:
    rounds = [[value] for value in VALUES]
    for road in partial.ROADS.values():
        partial.assert_same(road(content, rounds, only_ops=None), partial.expected(content, rounds))
