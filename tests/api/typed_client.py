"""A program of a user with a strict type checker; `test_types.py` checks it, and nothing runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import jitdelegate
from jitdelegate import BatchPredictor, DynamicBatcher, GpuDelegate, Interpreter, load, load_delegate
from jitdelegate.compiled_model import CompiledModel, GpuOptions, HardwareAccelerator, Options, TensorBuffer
from jitdelegate.options import QualcommLogLevel

messages: list[str] = []
options = jitdelegate.DelegateOptions(only_ops=["ADD"], profile=True)
assert_type(options.only_ops, tuple[str, ...] | None)


def called(path: Path) -> NDArray[Any]:
    with load(path, target="cpu", num_threads=2, serialization_dir=False) as model:
        assert_type(model.inputs[0].shape, tuple[int, ...])
        assert_type(model.report().to_dict(), dict[str, Any])
        assert_type(model(np.zeros(3, np.float32)), NDArray[Any])
        mean, variance = model([0.0, 1.0, 2.0])
        named = model.run({"x": np.zeros(3, np.float32)}, signature="serve")
        assert_type(named["y"], NDArray[Any])
        scaled: NDArray[Any] = (named["y"] - mean) / variance
        return scaled


def interpreted(path: Path) -> NDArray[Any]:
    delegates = [
        GpuDelegate(serialization_dir="cache", model_token="net", precision=None),
        load_delegate("jitdelegate", {"target": "cpu"}),
    ]
    interpreter = Interpreter(str(path), experimental_delegates=delegates[:1], extra_outputs=["hidden", 3])
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], np.zeros(3, np.float32))
    interpreter.invoke()
    found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    assert_type(found, NDArray[Any])
    assert_type(interpreter.get_signature_runner()(x=np.zeros(3)), dict[str, NDArray[Any]])
    return found


def compiled(path: Path, array: NDArray[Any]) -> NDArray[Any]:
    options = Options.create()
    options.hardware_accelerators = HardwareAccelerator.GPU | HardwareAccelerator.CPU
    options.gpu_options = GpuOptions(True, serialization_dir="cache", profile=True)
    options.gpu_options.serialization_dir = "cache"
    options.qualcomm_options.log_level = QualcommLogLevel.OFF
    with CompiledModel.from_file(str(path), options=options) as model:
        inputs = [TensorBuffer.create_from_host_memory(array)]
        outputs = model.create_output_buffers(0)
        model.run_by_index(0, inputs, outputs)
        assert_type(model.run(inputs), list[TensorBuffer])
        assert_type(model.run({"x": inputs[0]}, signature="serve"), dict[str, TensorBuffer])
        model.run(inputs, outputs)
        event = model.run_async(inputs, outputs)
        event.wait(1.0)
        return outputs[0].read(10, np.float32)


def created(path: Path) -> CompiledModel:
    return CompiledModel.create(path, HardwareAccelerator.CPU, extra_outputs="hidden", tuning=None)


async def awaited(model: CompiledModel, array: NDArray[Any]) -> NDArray[Any]:
    outputs = model.create_output_buffers()
    await model.run_async([TensorBuffer.create_from_dlpack(array)], outputs)
    return outputs[0].view()


def generated(model: jitdelegate.Model, token: NDArray[Any]) -> NDArray[Any]:
    session = model.session(state="kv_cache_*")
    return session.run("decode", {"token": token})["logits"]


def predicted(path: Path) -> object:
    return BatchPredictor(path, inputs={"x": "pixels"}, options={"num_threads": 1})({"pixels": np.zeros((2, 3))})


async def served(model: jitdelegate.Model, row: NDArray[Any]) -> NDArray[Any]:
    async with DynamicBatcher(model, max_batch_size=4) as batcher:
        return (await batcher({"x": row}))["y"]


jitdelegate.on_message(lambda message: messages.append(message.text))
