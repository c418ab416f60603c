"""Whatever makes an output, signatures, indices and names find it, and LiteRT's answer in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT
from ai_edge_litert.interpreter import OpResolverType

import jitdelegate
from jitdelegate.errors import TensorError
from tests.api.output_models import MODELS, between
from tests.api.test_signatures import forbid_litert

CASES = pytest.mark.parametrize("content", MODELS.values(), ids=MODELS)
RUNS = 3


def values(content: bytes) -> list[np.ndarray]:
    """One input for each of some runs."""
    random = np.random.default_rng(0)
    shape = reference(content).get_input_details()[0]["shape"]
    return [random.uniform(-2, 2, shape).astype(np.float32) for _ in range(RUNS)]


def reference(content: bytes) -> Any:
    return LiteRT(model_content=content, experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)


def ours(content: bytes, cache: Path) -> jitdelegate.Interpreter:
    delegate = jitdelegate.GpuDelegate(target="cpu", serialization_dir=cache)
    return jitdelegate.Interpreter(model_content=content, experimental_delegates=[delegate])


def answers(interpreter: Any, feeds: list[np.ndarray]) -> list[np.ndarray]:
    """All outputs of some runs, by their indices."""
    interpreter.allocate_tensors()
    found = []
    for feed in feeds:
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], feed)
        interpreter.invoke()
        found += [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]
    return found


def assert_same(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    assert len(found) == len(expected)
    for mine, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-6, atol=1e-6)


@CASES
def test_indices_find_every_output(content: bytes, tmp_path: Path) -> None:
    pair = ours(content, tmp_path), reference(content)
    assert_same(*(answers(interpreter, values(content)) for interpreter in pair))
    for describe in ("get_input_details", "get_output_details"):
        known = [[(each["index"], each["name"]) for each in getattr(one, describe)()] for one in pair]
        assert known[0] == known[1]
    assert pair[0].report().target == "cpu"


@CASES
def test_signatures_find_every_output(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = reference(content).get_signature_runner("serve")
    answered = [expected(x=feed) for feed in values(content)]
    forbid_litert(monkeypatch)
    runner = ours(content, tmp_path).get_signature_runner("serve")
    with jitdelegate.load(content, target="cpu", serialization_dir=tmp_path) as model:
        for feed, known in zip(values(content), answered, strict=True):
            for found in (runner(x=feed), model.run({"x": feed}, "serve")):
                assert list(found) == list(known)
                assert_same([np.asarray(value) for value in found.values()], list(known.values()))


@CASES
def test_litert_s_interpreter_answers_the_same_with_the_delegate(content: bytes, tmp_path: Path) -> None:
    delegate = jitdelegate.GpuDelegate(target="cpu", serialization_dir=tmp_path)
    hosted = LiteRT(model_content=content, experimental_delegates=[delegate])
    assert_same(answers(hosted, values(content)), answers(reference(content), values(content)))


def test_what_lies_between_inputs_and_outputs_is_not_answered(tmp_path: Path) -> None:
    """It would be memory that nobody has written."""
    content = between()
    interpreter, other = ours(content, tmp_path), reference(content)
    interpreter.allocate_tensors()
    other.allocate_tensors()
    names = {detail["name"]: detail["index"] for detail in other.get_tensor_details()}
    np.testing.assert_array_equal(interpreter.get_tensor(names["three"]), other.get_tensor(names["three"]))
    with pytest.raises(TensorError, match="keeps no other tensor"):
        interpreter.get_tensor(names["between"])
