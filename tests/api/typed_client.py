"""A program of a user with a strict type checker; `test_types.py` checks it, and nothing runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

import numpy as np

import jitdelegate
from jitdelegate import BatchPredictor, DynamicBatcher, GpuDelegate, Interpreter, load, load_delegate
from jitdelegate.compiled_model import CompiledModel, HardwareAccelerator, Options, TensorBuffer

messages: list[str] = []
options = jitdelegate.DelegateOptions(only_ops=["ADD"], profile=True)
assert_type(options.only_ops, tuple[str, ...] | None)


def called(path: Path) -> np.ndarray:
    with load(path, target="cpu", num_threads=2, serialization_dir=False) as model:
        assert_type(model.inputs[0].shape, tuple[int, ...])
        assert_type(model.report().to_dict(), dict[str, Any])
        named = model.run({"x": np.zeros(3, np.float32)}, signature="serve")
        return np.asarray(named["y"])


def interpreted(path: Path) -> np.ndarray:
    delegates = [
        GpuDelegate(serialization_dir="cache", model_token="net", precision=None),
        load_delegate("jitdelegate", {"target": "cpu"}),
    ]
    interpreter = Interpreter(str(path), experimental_delegates=delegates[:1])
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], np.zeros(3, np.float32))
    interpreter.invoke()
    found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    assert_type(found, np.ndarray)
    return found


def compiled(path: Path, array: np.ndarray) -> np.ndarray:
    options = Options.create()
    options.hardware_accelerators = HardwareAccelerator.GPU | HardwareAccelerator.CPU
    options.gpu_options.serialization_dir = "cache"
    with CompiledModel.from_file(str(path), options=options) as model:
        inputs = [TensorBuffer.create_from_host_memory(array)]
        outputs = model.create_output_buffers(0)
        model.run_by_index(0, inputs, outputs)
        event = model.run_async(inputs, outputs)
        event.wait(1.0)
        return outputs[0].read(10, np.float32)


async def awaited(model: CompiledModel, array: np.ndarray) -> np.ndarray:
    outputs = model.create_output_buffers()
    await model.run_async([TensorBuffer.create_from_dlpack(array)], outputs)
    return outputs[0].view()


def generated(model: jitdelegate.Model, token: np.ndarray) -> np.ndarray:
    session = model.session(state="kv_cache_*")
    return np.asarray(session.run("decode", {"token": token})["logits"])


def predicted(path: Path) -> object:
    return BatchPredictor(path, inputs={"x": "pixels"}, options={"num_threads": 1})({"pixels": np.zeros((2, 3))})


async def served(model: jitdelegate.Model, row: np.ndarray) -> np.ndarray:
    async with DynamicBatcher(model, max_batch_size=4) as batcher:
        return (await batcher({"x": row}))["y"]


jitdelegate.on_message(lambda message: messages.append(message.text))
