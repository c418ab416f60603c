"""Whatever computes an output, signatures, indices and names find it, with LiteRT's values. An output is an array."""

from __future__ import annotations

import copy
import json
import operator
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT
from ai_edge_litert.interpreter import OpResolverType

import jitdelegate
from jitdelegate.errors import TensorError
from jitdelegate.runtime.buffers import ELEMENTS, tensor_class
from jitdelegate.tflite.write import ModelBuilder
from tests import imports
from tests.api.output_models import MODELS, between
from tests.api.test_signatures import forbid_litert
from tests.child import answer_of

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


BINARY = {
    name: getattr(operator, name)
    for name in (
        *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift", "and_", "or_", "xor"),
        *("eq", "ne", "lt", "le", "gt", "ge"),
    )
}
IN_PLACE = {
    name: getattr(operator, name)
    for name in (
        "iadd",
        "isub",
        "imul",
        "ifloordiv",
        "imod",
        "ipow",
        "imatmul",
        "ilshift",
        "irshift",
        "iand",
        "ior",
        "ixor",
    )
}
ARRAY_USES: dict[str, Callable[[Any], Any]] = {
    "one element": lambda x: x[0, 1],
    "row": lambda x: x[1],
    "slice": lambda x: x[:, ::-1],
    "mask": lambda x: x[x > 2],
    "iteration": list,
    "reversed": lambda x: list(reversed(x)),
    "length": len,
    "contains": lambda x: (3 in x, 30 in x),
    "negative": operator.neg,
    "positive": operator.pos,
    "absolute": abs,
    "divmod": lambda x: divmod(x, 3),
    "reflected divmod": lambda x: divmod(30, x),
    "mean": lambda x: x.mean(),
    "argmax of an axis": lambda x: x.argmax(axis=1),
    "reshape": lambda x: x.reshape(-1),
    "transposed": lambda x: x.T,
    "attributes": lambda x: (x.ndim, x.size, x.itemsize, x.strides),
    "function of numpy": lambda x: np.concatenate([x, x]),
    "reduction by numpy": lambda x: np.sum(x, axis=0),
    "ufunc": np.exp,
    "stack": lambda x: np.stack([x, x]),
    "copy": lambda x: x.copy(),
    "text": str,
    "text in a sentence": "{}".format,
}


def square(dtype: str) -> tuple[Any, np.ndarray]:
    """A tensor [2, 2] of 1 to 4, and the same as an array."""
    array = np.arange(1, 5).astype(dtype).reshape(2, 2)
    return tensor_class(dtype, (2, 2)).from_buffer_copy(array.tobytes()), array


def assert_equal(found: Any, expected: Any) -> None:
    np.testing.assert_equal(found, expected)
    assert type(found) is type(expected)


@pytest.mark.parametrize("use", ARRAY_USES.values(), ids=ARRAY_USES)
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_an_output_is_used_as_an_array(dtype: str, use: Callable[[Any], Any]) -> None:
    tensor, array = square(dtype)
    assert_equal(use(tensor), use(array))


@pytest.mark.parametrize("act", BINARY.values(), ids=BINARY)
def test_operators_are_the_array_s_on_both_sides(act: Callable[[Any, Any], Any]) -> None:
    tensor, array = square("int32")
    other = np.array([[2, 1], [3, 2]], np.int32)
    assert_equal(act(tensor, other), act(array, other))
    assert_equal(act(other, tensor), act(other, array))
    assert_equal(act(tensor, tensor), act(array, array))
    if act is not operator.matmul:
        assert_equal(act(tensor, 2), act(array, 2))
        assert_equal(act(2, tensor), act(2, array))


@pytest.mark.parametrize("act", IN_PLACE.values(), ids=IN_PLACE)
def test_in_place_operators_change_the_tensor_s_own_memory(act: Callable[[Any, Any], Any]) -> None:
    tensor, array = square("int32")
    view, other = np.asarray(tensor), np.array([[2, 1], [3, 2]], np.int32)
    assert act(tensor, other) is tensor
    np.testing.assert_array_equal(view, act(array, other))


def test_elements_are_set_in_shared_memory() -> None:
    tensor, array = square("float32")
    view = np.asarray(tensor)
    for each in (tensor, array):
        each[0] = [7, 8]
        each[1, 1] = 9
    np.testing.assert_array_equal(view, array)
    assert tensor.tolist() == array.tolist()


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize("dtype", ELEMENTS)
def test_one_element_is_a_number(dtype: str, shape: tuple[int, ...]) -> None:
    tensor = tensor_class(dtype, shape).from_buffer_copy(np.array(1).astype(dtype).tobytes())
    assert (float(tensor), int(tensor), complex(tensor), bool(tensor)) == (1.0, 1, 1 + 0j, True)
    assert bytes(tensor) == np.array(1).astype(dtype).tobytes()
    if "int" in dtype:
        assert operator.index(tensor) == 1
    else:
        with pytest.raises(TypeError):
            operator.index(tensor)


def test_several_elements_are_neither_a_number_nor_a_truth_nor_a_key() -> None:
    tensor, _ = square("int32")
    for make, error in ((float, ValueError), (int, ValueError), (bool, ValueError), (hash, TypeError)):
        with pytest.raises(error):
            make(tensor)
    with pytest.raises(TypeError):
        operator.index(tensor)
    with pytest.raises(AttributeError, match="no_such_method"):
        tensor.no_such_method()


@pytest.mark.parametrize("dtype", ELEMENTS)
def test_the_element_type_is_a_name_and_numpy_s_type(dtype: str) -> None:
    found, expected = tensor_class(dtype, (2,)).dtype, np.dtype(dtype)
    for same in (dtype, expected, expected.type):
        assert found == same and same == found
    for other in ("complex64", np.complex64, np.dtype(np.complex64), 7):
        assert found != other and other != found
    assert (found.kind, found.itemsize, found.name) == (expected.kind, expected.itemsize, expected.name)
    assert {dtype: 1}[found] == 1
    assert json.loads(json.dumps(found)) == dtype


def test_a_number_is_formatted_as_a_number() -> None:
    assert f"{tensor_class('float32', ())(1.25):.1f}" == "1.2"


def test_completion_knows_an_array_s_methods() -> None:
    tensor, array = square("float32")
    assert {name for name in dir(array) if name[0] != "_"} < set(dir(tensor))


@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3)])
@pytest.mark.parametrize("dtype", ELEMENTS)
def test_protocols_share_the_memory(dtype: str, shape: tuple[int, ...]) -> None:
    tensor = tensor_class(dtype, shape)()
    holder = type("Holder", (), {"__array_interface__": tensor.__array_interface__})()
    assert tensor.__dlpack_device__() == (1, 0)
    for view in (np.asarray(tensor), np.asarray(holder), np.from_dlpack(tensor)):
        assert (view.dtype.name, view.shape) == (dtype, shape)
        np.asarray(tensor)[...] = 1
        np.testing.assert_array_equal(view, np.ones(shape, dtype))
        tensor[...] = 0
        np.testing.assert_array_equal(view, np.zeros(shape, dtype))


def test_torch_shares_the_memory() -> None:
    torch = pytest.importorskip("torch")
    tensor, array = square("float32")
    shared = torch.from_dlpack(tensor)
    tensor += 1
    np.testing.assert_array_equal(shared.numpy(), array + 1)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_is_a_tensor_with_memory_of_its_own(again: Callable[[Any], Any]) -> None:
    tensor, array = square("float32")
    other = again(tensor)
    tensor += 1
    assert type(other) is type(tensor)
    np.testing.assert_array_equal(other, array)


def test_a_view_outlives_output_and_model() -> None:
    builder = ModelBuilder()
    builder.output(builder.op("NEG", [builder.input((1000,))], (1000,)))
    feed = np.arange(1000, dtype=np.float32)

    def views() -> list[np.ndarray]:
        with jitdelegate.load(builder.finish(), target="cpu", serialization_dir=False) as model:
            output = model(feed)
            return [np.asarray(output), np.from_dlpack(output), output[:], memoryview(output)]

    kept = views()
    for _ in range(100):
        tensor_class("float32", (1000,))()  # of the same size: takes memory that is free
    for view in kept:
        np.testing.assert_array_equal(view, -feed)


def test_numpy_is_imported_by_the_first_use_as_an_array() -> None:
    answer_of(imports.an_output)
