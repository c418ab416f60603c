"""Input shapes that a model cannot run with: one error that names the input and the operator, before any compiling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT

import jitdelegate
from jitdelegate.compiler import compile as compiler
from jitdelegate.compiler import misfit
from jitdelegate.compiler.compilation import Compilation
from jitdelegate.errors import DeviceError
from jitdelegate.ir.graph import Graph, Model
from jitdelegate.runtime.cache.key import Key
from jitdelegate.tflite.write import GraphBuilder, ModelBuilder
from tests.api import partial_models as partial
from tests.api.output_models import add_composite

HEADS = (1, 2, 8, 4)
SMALL = (1, 16, 4)


def _attend(graph: GraphBuilder, cache: int) -> int:
    heads = graph.op("RESHAPE", [cache, graph.constant(np.array(HEADS, np.int32))], HEADS, options={"new_shape": HEADS})
    turned = graph.op("TRANSPOSE", [heads, graph.constant(np.array([0, 1, 3, 2], np.int32))], (1, 2, 4, 8))
    return graph.op("SOFTMAX", [turned], (1, 2, 4, 8), options={"beta": 1.0})


def decoder() -> bytes:
    """Eight tokens and a cache; a composite splits the cache into heads. Signature "decode" runs a copy of it."""
    model = ModelBuilder()
    for graph in (model, model.subgraph("decode")):
        tokens, cache = graph.input((1, 8), name="tokens"), graph.input(SMALL, name="cache")
        row = graph.op("RESHAPE", [tokens, graph.constant(np.array([8], np.int32))], (8,), options={"new_shape": [8]})
        scaled = graph.op("TANH", [cache], SMALL)
        heads = graph.tensor((1, 2, 4, 8), name="heads")
        add_composite(graph, 2, scaled, heads)
        sum_ = graph.op("ADD", [heads, row], (1, 2, 4, 8), name="y")
        graph.output(sum_)
    inside = model.subgraph("attention")
    inside.output(_attend(inside, inside.input(SMALL)))
    model.signature("decode", {"tokens": tokens, "cache": cache}, {"y": sum_}, graph=1)
    return model.finish()


TOKENS = "'tokens' of [1, 5] does not fit, the model has [1, 8]: operator 0, RESHAPE: [1, 5] does not reshape to [8]"
HEADS_TOLD = (
    "'cache' of [1, 32, 4] does not fit, the model has [1, 16, 4]: operator 2, STABLEHLO_COMPOSITE: "
    "RESHAPE: [1, 32, 4] does not reshape to [1, 2, 8, 4]"
)
MISFITS = [("tokens", (1, 5), TOKENS), ("cache", (1, 32, 4), HEADS_TOLD)]


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Receives an entry whenever code is made."""
    calls: list[Any] = []
    program = compiler._own_program

    def counted(one: Compilation, *arguments: Any, **keywords: Any) -> Any:
        calls.append(one.key.parts)
        return program(one, *arguments, **keywords)

    monkeypatch.setattr(compiler, "_own_program", counted)
    return calls


@pytest.mark.parametrize(("name", "shape", "told"), MISFITS)
def test_an_interpreter_says_which_input_does_not_fit(
    tmp_path: Path, compiled: list[Any], name: str, shape: tuple[int, ...], told: str
) -> None:
    interpreter = jitdelegate.Interpreter(
        model_content=decoder(), experimental_delegates=[jitdelegate.GpuDelegate(serialization_dir=tmp_path)]
    )
    index = next(each["index"] for each in interpreter.get_input_details() if each["name"] == name)
    interpreter.resize_tensor_input(index, shape)
    with pytest.raises(DeviceError) as caught:
        interpreter.allocate_tensors()
    assert str(caught.value) == told
    assert len(compiled) == len([*tmp_path.glob("*.jitd")]) == 1, "nothing was compiled for these shapes"


@pytest.mark.parametrize(("name", "shape", "told"), MISFITS)
def test_a_signature_runner_says_it_too(
    tmp_path: Path, compiled: list[Any], name: str, shape: tuple[int, ...], told: str
) -> None:
    interpreter = jitdelegate.Interpreter(
        model_content=decoder(), experimental_delegates=[jitdelegate.GpuDelegate(serialization_dir=tmp_path)]
    )
    feeds = {"tokens": np.zeros((1, 8), np.float32), "cache": np.zeros(SMALL, np.float32)}
    with pytest.raises(DeviceError) as caught:
        interpreter.get_signature_runner("decode")(**(feeds | {name: np.zeros(shape, np.float32)}))
    assert str(caught.value) == told
    assert not [parts for parts in compiled if dict(parts).get("shapes")]


@pytest.mark.parametrize(("name", "shape", "told"), MISFITS)
def test_so_does_litert_with_the_delegate(
    tmp_path: Path, compiled: list[Any], name: str, shape: tuple[int, ...], told: str
) -> None:
    partial.skip_without_host()
    delegate = jitdelegate.GpuDelegate(serialization_dir=tmp_path, partitioning="all")
    interpreter = LiteRT(model_content=decoder(), experimental_delegates=[delegate])
    index = next(each["index"] for each in interpreter.get_input_details() if each["name"] == name)
    interpreter.resize_tensor_input(index, shape)
    with pytest.raises(RuntimeError) as caught:
        interpreter.allocate_tensors()
    assert told in str(caught.value)
    assert not [parts for parts in compiled if dict(parts).get("shapes")]


def test_the_file_s_shapes_are_only_inferred_up_to_the_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inferred: list[int] = []
    infer = misfit._inferred

    def counted(model: Model, key: Key, shapes: Any) -> Graph:
        inferred.append(len(model.graphs[0].nodes))
        return infer(model, key, shapes)

    monkeypatch.setattr(misfit, "_inferred", counted)
    delegate = jitdelegate.GpuDelegate(target="cpu", serialization_dir=tmp_path)
    interpreter = jitdelegate.Interpreter(model_content=decoder(), experimental_delegates=[delegate])
    interpreter.resize_tensor_input(0, (1, 5))
    with pytest.raises(RuntimeError, match="operator 0"):
        interpreter.allocate_tensors()
    assert inferred == [4, 1]


def test_a_shape_that_fits_is_compiled_without_further_questions(
    tmp_path: Path, compiled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ModelBuilder()
    x = model.input((1, 8), name="x")
    model.output(model.op("TANH", [x], (1, 8)))
    interpreter = jitdelegate.Interpreter(
        model_content=model.finish(), experimental_delegates=[jitdelegate.GpuDelegate(serialization_dir=tmp_path)]
    )
    asked: list[Any] = []
    monkeypatch.setattr(misfit, "misfit", lambda *arguments: asked.append(arguments))
    interpreter.resize_tensor_input(0, (3, 5))
    interpreter.allocate_tensors()
    assert len(compiled) == 2
    assert not asked


def test_what_only_we_refuse_is_left_to_litert(tmp_path: Path) -> None:
    """A rank that no kernel has, but LiteRT's."""
    model = ModelBuilder()
    x = model.input((2, 3), name="x")
    model.output(model.op("ABS", [model.op("NEG", [x], (2, 3))], (2, 3)))
    shape = (1,) * 8 + (2,)
    interpreter = jitdelegate.Interpreter(
        model_content=model.finish(), experimental_delegates=[jitdelegate.GpuDelegate(serialization_dir=tmp_path)]
    )
    interpreter.resize_tensor_input(0, shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, np.full(shape, -2, np.float32))
    interpreter.invoke()
    assert (interpreter.get_tensor(interpreter.get_output_details()[0]["index"]) == 2).all()
