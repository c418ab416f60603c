"""Tokens and positions: integers of any type are taken where they fit, since numpy and torch make int64 of Python's."""

from __future__ import annotations

import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT

import jitdelegate
from jitdelegate.errors import TensorError
from jitdelegate.ir.graph import Quant
from jitdelegate.tflite.write import ModelBuilder
from tests.api import cached_models

TOKENS = np.array([[3, 1, 2, 0]], np.int32)
GIVEN: dict[str, Callable[[np.ndarray], Any]] = {
    "int64": lambda tokens: tokens.astype(np.int64),
    "int16": lambda tokens: tokens.astype(np.int16),
    "uint8": lambda tokens: tokens.astype(np.uint8),
    "uint64": lambda tokens: tokens.astype(np.uint64),
    "every other one": lambda tokens: np.repeat(tokens.astype(np.int64), 2, axis=1)[:, ::2],
    "array.array": lambda tokens: array.array("q", tokens.ravel().tolist()),
    "list": lambda tokens: tokens.tolist(),
}
OUTSIDE: dict[str, tuple[str, Any, str]] = {
    "above": (
        "int32",
        np.array([[3, 1, 2**31, 0]], np.int64),
        r"'tokens': found 2147483648 at \[0, 2\], expected int32",
    ),
    "below": ("int32", np.array([[-(2**31) - 1, 1, 2, 0]], np.int64), r"found -2147483649 at \[0, 0\], expected int32"),
    "unsigned": ("int64", np.array([[3, 2**63, 2, 0]], np.uint64), r"found 9223372036854775808 at \[0, 1\]"),
}


def embedding(dtype: str = "int32", *, open_length: bool = False, signature: bool = True) -> bytes:
    """int[1,4] -> rows of a table of four."""
    model = ModelBuilder()
    tokens = model.input((1, 4), dtype, name="tokens", shape_signature=(1, -1) if open_length else None)
    table = model.constant(np.arange(12, dtype=np.float32).reshape(4, 3))
    rows = model.op("GATHER", [table, tokens], (1, 4, 3), name="rows")
    model.output(rows)
    if signature:
        model.signature("serve", {"tokens": tokens}, {"rows": rows})
    return model.finish()


def by_call(model: jitdelegate.Model, value: Any) -> Any:
    return model(value)


def by_run(model: jitdelegate.Model, value: Any) -> Any:
    return model.run({"tokens": value})["rows"]


def by_signature(model: jitdelegate.Model, value: Any) -> Any:
    return model.run({"tokens": value}, "serve")["rows"]


WAYS = [by_call, by_run, by_signature]


@pytest.mark.parametrize("target", ["cpu", "litert"])
@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_of_any_type_are_tokens(dtype: str, given: str, target: str) -> None:
    expected = np.arange(12, dtype=np.float32).reshape(4, 3)[TOKENS]
    with jitdelegate.load(embedding(dtype), target=target, serialization_dir=False) as model:
        for way in WAYS:
            for _ in range(2):  # the second array of a kind takes another way
                np.testing.assert_array_equal(way(model, GIVEN[given](TOKENS)), expected)
                np.testing.assert_array_equal(way(model, TOKENS.astype(dtype)), expected)


@pytest.mark.parametrize("target", ["cpu", "litert"])
@pytest.mark.parametrize("case", OUTSIDE)
def test_an_integer_that_does_not_fit_is_named_with_its_input(case: str, target: str) -> None:
    dtype, value, words = OUTSIDE[case]
    with jitdelegate.load(embedding(dtype), target=target, serialization_dir=False) as model:
        for way in WAYS:
            with pytest.raises(TensorError, match=words):
                way(model, value)


@pytest.mark.parametrize("target", ["cpu", "litert"])
def test_an_open_length_is_that_of_the_tokens_whatever_their_type(target: str) -> None:
    with jitdelegate.load(embedding(open_length=True), target=target, serialization_dir=False) as model:
        assert model(np.array([[3, 1, 2]])).shape == (1, 3, 3)
        assert model.run({"tokens": np.array([[3]])}, "serve")["rows"].shape == (1, 1, 3)


def test_other_shapes_and_types_are_refused_as_before() -> None:
    with jitdelegate.load(embedding(), serialization_dir=False) as model:
        for value in (np.zeros((1, 5), np.int64), TOKENS.astype(np.float32), TOKENS.astype(bool)):
            with pytest.raises(TensorError, match=r"'tokens': found .* expected int32\[1, 4\]"):
                model(value)


def test_quantized_inputs_take_their_own_type_only() -> None:
    model = ModelBuilder()
    x = model.input((1, 4), "int32", name="x", quant=Quant((0.5,), (0,)))
    model.output(model.op("RESHAPE", [x, model.constant(np.int32([4]))], (4,)))
    with jitdelegate.load(model.finish(), serialization_dir=False) as loaded, pytest.raises(TensorError):
        loaded(TOKENS.astype(np.int64))


@pytest.mark.parametrize("target", ["cpu", "litert"])
def test_signature_runners_take_them_and_set_tensor_refuses_them_as_in_litert(target: str) -> None:
    content, wide = embedding(), TOKENS.astype(np.int64)
    interpreter = jitdelegate.Interpreter(
        model_content=content, experimental_delegates=[jitdelegate.GpuDelegate(target=target, serialization_dir=False)]
    )
    runner = interpreter.get_signature_runner("serve")
    np.testing.assert_array_equal(runner(tokens=wide)["rows"], runner(tokens=TOKENS)["rows"])
    with pytest.raises(TensorError, match=r"'tokens': found 4294967296 at \[0, 0\], expected int32"):
        runner(tokens=wide + 2**32 - 3)
    litert = LiteRT(model_content=content)
    for each in (interpreter, litert):
        each.allocate_tensors()
        with pytest.raises(ValueError, match=r"INT64.*INT32"):
            each.set_tensor(each.get_input_details()[0]["index"], wide)


def test_memory_for_outputs_has_their_type() -> None:
    model = ModelBuilder()
    x = model.input((1, 4), "int32", name="x")
    model.output(model.op("ADD", [x, x], (1, 4), name="y"))
    with jitdelegate.load(model.finish(), serialization_dir=False) as loaded, pytest.raises(TensorError, match="int64"):
        loaded.run({"x": TOKENS}, out={"y": np.zeros((1, 4), np.int64)})


@pytest.mark.parametrize("negates", [False, True])
@pytest.mark.parametrize("target", ["cpu", "litert"])
def test_sessions_take_them_in_turns_with_int32(target: str, negates: bool) -> None:
    only = None if not negates else ("CONCATENATION", "DYNAMIC_UPDATE_SLICE", "SLICE")
    options: dict[str, Any] = {"target": target, "serialization_dir": False, "only_ops": only, "partitioning": "all"}
    with jitdelegate.load(cached_models.decoder(negates=negates), options=options) as model:
        one, other = model.session("cache_*"), model.session("cache_*")
        for place in range(4):
            rows = np.full((1, 1, cached_models.WIDTH), place, np.float32)
            narrow = np.array([place], np.int32)
            found = one.run("decode", rows=rows, place=narrow if place == 2 else narrow.astype(np.int64))
            expected = other.run("decode", rows=rows, place=narrow)
            np.testing.assert_array_equal(found["seen"], expected["seen"])
        for name, cache in one.state.items():
            np.testing.assert_array_equal(cache, other.state[name])
        with pytest.raises(TensorError, match=r"found 4294967296 at \[0\], expected int32"):
            one.run("decode", rows=rows, place=np.array([2**32]))
