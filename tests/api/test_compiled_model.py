"""CompiledModel against LiteRT's own, call by call: the same dictionaries, results, and classes of errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import compiled_model as litert

from jitdelegate import CompiledModel, TensorBuffer
from jitdelegate.tflite.write import ModelBuilder
from tests.api import small_models

KEY = "<placeholder signature>"


def reordered() -> bytes:
    """RELU of f32[1,2] and of f32[1,3]; the signature's names are not in the order of the tensors."""
    model = ModelBuilder()
    left, right = model.input((1, 2), name="left"), model.input((1, 3), name="right")
    results = [model.op("RELU", [left], (1, 2)), model.op("RELU", [right], (1, 3))]
    model.output(*results)
    model.signature("serve", {"z": left, "b": right}, {"zo": results[0], "ao": results[1]})
    return model.finish()


MODELS: dict[str, Callable[[], bytes]] = {
    "unsigned": small_models.convolution,
    "signed": lambda: small_models.convolution(signature=True),
    "two signatures": small_models.two_signatures,
    "two outputs": small_models.two_outputs,
    "on LiteRT": small_models.uncompiled,
    "integers": small_models.integers,
    "reordered": reordered,
    "int8": lambda: small_models.integers_and_floats("int8"),
}


@pytest.fixture(params=MODELS)
def both(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """LiteRT's CompiledModel and ours, of the same model."""
    content = MODELS[request.param]()
    return litert.CompiledModel.from_buffer(content), CompiledModel.from_buffer(content)


pytestmark = pytest.mark.filterwarnings("ignore::jitdelegate.DelegateWarning")


def test_descriptions_are_litert_s(both: tuple[Any, Any]) -> None:
    def described(model: Any) -> list[Any]:
        signatures = model.get_signature_list()
        found: list[Any] = [signatures, model.get_num_signatures(), model.get_signature_index("nope")]
        for index, (key, names) in enumerate(signatures.items()):
            found += [model.get_signature_by_index(index), model.get_signature_index(key)]
            found += [model.get_input_tensor_details(key), model.get_output_tensor_details(key)]
            found += [model.get_input_buffer_requirements(at, index) for at in range(len(names["inputs"]))]
            found += [model.get_output_buffer_requirements(at, index) for at in range(len(names["outputs"]))]
            found += [each.get_tensor_details() for each in model.create_input_buffers(index)]
            found += [each.get_tensor_details() for each in model.create_output_buffers(index)]
            found += [model.create_input_buffer_by_name(key, name).get_tensor_details() for name in names["inputs"]]
            found += [model.create_output_buffer_by_name(key, name).get_tensor_details() for name in names["outputs"]]
        return found

    theirs, ours = map(described, both)
    assert ours == theirs


def fill(buffers: list[Any], seed: int = 0) -> None:
    """The same random values for both sides."""
    dice = np.random.default_rng(seed)
    for buffer in buffers:
        details = buffer.get_tensor_details()
        buffer.write(dice.uniform(-4, 40, details["shape"]).astype(details["dtype"]))


def values(buffers: list[Any]) -> list[np.ndarray]:
    found = [each.get_tensor_details() for each in buffers]
    return [each.read(int(np.prod(one["shape"])), one["dtype"]) for each, one in zip(buffers, found, strict=True)]


def test_results_are_litert_s_by_index_and_by_name(both: tuple[Any, Any]) -> None:
    theirs, ours = both
    for index, (key, names) in enumerate(theirs.get_signature_list().items()):
        results = []
        for model in (theirs, ours):
            inputs, outputs = model.create_input_buffers(index), model.create_output_buffers(index)
            for seed in (0, 1):
                fill(inputs, seed)
                model.run_by_index(index, inputs, outputs)
                first = values(outputs)
                given = dict(zip(names["inputs"], inputs, strict=True))
                model.run_by_name(key, given, dict(zip(names["outputs"], outputs, strict=True)))
                results.append([first, values(outputs)])
        for expected, found in zip(results[:2], results[2:], strict=True):
            for side, other in zip([*expected[0], *expected[1]], [*found[0], *found[1]], strict=True):
                np.testing.assert_allclose(other, side, rtol=1e-4, atol=1e-4)


ERRORS = (RuntimeError, ValueError, AttributeError, TypeError)


def attempt(call: Callable[[], object]) -> Exception | None:
    """The error that a call raises; None for none."""
    try:
        call()
    except ERRORS as error:
        return error
    return None


def calls(model: Any, buffer_class: Any) -> dict[str, Callable[[], object]]:
    """Wrong calls, and some that look wrong, on the model "signed"; LiteRT survives all of them."""
    inputs, outputs = model.create_input_buffers(0), model.create_output_buffers(0)

    def host(size: int) -> Any:
        return buffer_class.create_from_host_memory(np.zeros(size, np.float32))

    destroyed = model.create_input_buffers(0)
    destroyed[0].destroy()
    given, made = {"picture": inputs[0]}, {"found": outputs[0]}
    return {
        "no input": lambda: model.run_by_index(0, [], outputs),
        "two inputs": lambda: model.run_by_index(0, inputs * 2, outputs),
        "no output": lambda: model.run_by_index(0, inputs, []),
        "tuples": lambda: model.run_by_index(0, tuple(inputs), tuple(outputs)),
        "no such signature": lambda: model.run_by_index(3, inputs, outputs),
        "negative signature": lambda: model.run_by_index(-1, inputs, outputs),
        "swapped": lambda: model.run_by_index(0, outputs, inputs),
        "small input": lambda: model.run_by_index(0, [host(16)], outputs),
        "large input": lambda: model.run_by_index(0, [host(1600)], outputs),
        "small output": lambda: model.run_by_index(0, inputs, [host(1)]),
        "large output": lambda: model.run_by_index(0, inputs, [host(1600)]),
        "flat output": lambda: model.run_by_index(0, inputs, [host(64)]),
        "by name": lambda: model.run_by_name("serve", given, made),
        "first key": lambda: model.run_by_name("", given, made),
        "further names": lambda: model.run_by_name("serve", {**given, "z": inputs[0]}, {**made, "z": outputs[0]}),
        "missing output": lambda: model.run_by_name("serve", given, {}),
        "unknown key": lambda: model.run_by_name("nope", given, made),
        "details of an unknown key": lambda: model.get_input_tensor_details("nope"),
        "key that is no string": lambda: model.get_signature_index(None),
        "buffers of an unknown signature": lambda: model.create_input_buffers(2),
        "buffer of an unknown key": lambda: model.create_input_buffer_by_name("nope", "picture"),
        "buffer of an unknown name": lambda: model.create_output_buffer_by_name("serve", "picture"),
        "requirements of no input": lambda: model.get_input_buffer_requirements(1),
        "requirements of no signature": lambda: model.get_output_buffer_requirements(0, 1),
        "fixed size": lambda: model.resize_input_tensor(0, [2, 8, 8, 3]),
        "negative size": lambda: model.resize_input_tensor(0, [-1, 8, 8, 3], 0, False),
        "no size": lambda: model.resize_input_tensor(0, [0, 8, 8, 3], 0, False),
        "broken size": lambda: model.resize_input_tensor(0, [1.0, 8, 8, 3], 0, False),
        "no such input": lambda: model.resize_input_tensor(4, [1, 8, 8, 3], 0, False),
        "resize no signature": lambda: model.resize_input_tensor(0, [1, 8, 8, 3], 4, False),
        "resize an unknown key": lambda: model.resize_input_tensor_by_name("nope", "picture", [1, 8, 8, 3]),
        "resize an unknown name": lambda: model.resize_input_tensor_by_name("serve", "nope", [1, 8, 8, 3]),
        "destroyed": lambda: model.run_by_index(0, destroyed, outputs),
        "still good": lambda: model.run_by_index(0, inputs, outputs),
    }


LITERT_CALLS = [*calls(CompiledModel.from_buffer(small_models.convolution(signature=True), 1), TensorBuffer)]


@pytest.fixture(scope="module")
def theirs_and_ours() -> list[dict[str, Callable[[], object]]]:
    content = small_models.convolution(signature=True)
    return [
        calls(litert.CompiledModel.from_buffer(content), litert.TensorBuffer),
        calls(CompiledModel.create(content, serialization_dir=False), TensorBuffer),
    ]


@pytest.mark.parametrize("name", LITERT_CALLS)
def test_a_wrong_call_raises_what_litert_raises(
    name: str, theirs_and_ours: list[dict[str, Callable[[], object]]]
) -> None:
    theirs, ours = (attempt(side[name]) for side in theirs_and_ours)
    assert isinstance(ours, type(theirs)), (theirs, ours)
