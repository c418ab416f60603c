"""Python twins of LiteRT Next's C++ and Kotlin snippets, on the CPU and on a GPU whose kernels are simulated.

The snippets stand above their twins, shortened.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jitdelegate import Accelerator, CompiledModel, Environment, GpuOptions, Options, TensorBuffer
from tests.api import small_models
from tests.gpu.stub.install import install_simulated_gpu


@pytest.fixture(params=["cpu", "cuda"])
def accelerator(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The flag of a target; "cuda" puts the driver stub into this machine."""
    if request.param == "cpu":
        return Accelerator.CPU
    install_simulated_gpu(monkeypatch)
    return Accelerator.GPU


@pytest.fixture
def model_path(tmp_path: Path) -> Path:
    path = tmp_path / "model.tflite"
    path.write_bytes(small_models.two_signatures())
    return path


VALUES = np.array([[1.5, -2.5]], np.float32)


def test_create_and_run(accelerator: int, model_path: Path) -> None:
    """Kotlin:

    val model = CompiledModel.create(context.assets, "model.tflite", CompiledModel.Options(Accelerator.GPU), env)
    val inputBuffers = model.createInputBuffers()
    val outputBuffers = model.createOutputBuffers()
    inputBuffers.get(0).writeFloat(input0)
    model.run(inputBuffers, outputBuffers)
    val output = outputBuffers.get(0).readFloat()
    """
    environment = Environment.create()
    model = CompiledModel.create(model_path, Options(accelerator), environment=environment)
    input_buffers = model.create_input_buffers()
    output_buffers = model.create_output_buffers()
    input_buffers[0].write(VALUES)
    model.run(input_buffers, output_buffers)
    np.testing.assert_array_equal(output_buffers[0].read(), 2 * VALUES)
    (anew,) = model.run(input_buffers)
    np.testing.assert_array_equal(anew.read(), 2 * VALUES)
    assert model.report().target == ("cuda" if accelerator == Accelerator.GPU else "cpu")
    assert model.is_fully_accelerated()
    model.close()


def test_signatures(accelerator: int, model_path: Path) -> None:
    """C++:

    LITERT_ASSIGN_OR_RETURN(auto index, model.GetSignatureIndex("triple"));
    LITERT_ASSIGN_OR_RETURN(auto input_buffers, compiled_model.CreateInputBuffers("triple"));
    LITERT_ASSIGN_OR_RETURN(auto output_buffer, compiled_model.CreateOutputBuffer("triple", "y"));
    compiled_model.Run("triple", input_buffers, output_buffers);
    compiled_model.Run("triple", {{"x", ...}}, {{"y", ...}});
    """
    with CompiledModel.create(model_path, accelerator) as model:
        index = model.get_signature_index("triple")
        input_buffers = model.create_input_buffers("triple")
        output_buffers = [model.create_output_buffer_by_name("triple", "y")]
        input_buffers[0].write(VALUES)
        model.run(input_buffers, output_buffers, "triple")
        np.testing.assert_array_equal(output_buffers[0].read(), 3 * VALUES)
        for run in (
            lambda inputs, outputs: model.run(inputs, outputs, "triple"),
            lambda inputs, outputs: model.run_by_name("triple", inputs, outputs),
        ):
            output_buffers[0].write(np.zeros_like(VALUES))
            run({"x": input_buffers[0]}, {"y": output_buffers[0]})
            np.testing.assert_array_equal(output_buffers[0].read(), 3 * VALUES)
        model.run_by_index(1 - index, input_buffers, output_buffers)
        np.testing.assert_array_equal(output_buffers[0].read(), 2 * VALUES)


def test_host_memory_in_place(accelerator: int, model_path: Path) -> None:
    """C++:

    auto input_buffer = TensorBuffer::CreateFromHostMemory(tensor_type, aligned_memory, size);
    compiled_model.Run({input_buffer}, {output_buffer});
    """
    room = np.zeros(64, np.float32)
    memory = room[-room.ctypes.data % 64 // 4 :][:2].reshape(1, 2)
    input_buffer = TensorBuffer.create_from_host_memory(memory)
    assert input_buffer.place.address == memory.ctypes.data
    with CompiledModel.create(model_path, accelerator) as model:
        outputs = model.create_output_buffers()
        for factor in (1, 2, 3):
            memory[:] = factor * VALUES
            model.run([input_buffer], outputs)
            np.testing.assert_array_equal(outputs[0].read(), 2 * factor * VALUES)


def test_a_program_cache(accelerator: int, model_path: Path, tmp_path: Path) -> None:
    """C++:

    LITERT_ASSIGN_OR_RETURN(auto& gpu_options, options.GetGpuOptions());
    gpu_options.SetSerializationDir(kCacheDir);
    gpu_options.SetModelCacheKey("my_model");
    gpu_options.SetSerializeProgramCache(true);
    """
    options = Options.create()
    options.hardware_accelerators = accelerator
    options.gpu_options.serialization_dir = str(tmp_path / "cache")
    options.gpu_options.model_cache_key = "my_model"
    options.gpu_options.serialize_program_cache = True
    outcomes = []
    for _ in range(2):
        with CompiledModel.from_file(str(model_path), options=options) as model:
            (output,) = model.run([TensorBuffer.create_from_host_memory(VALUES)])
            np.testing.assert_array_equal(output.read(), 2 * VALUES)
            outcomes.append(model.report().cache.outcome)
    assert outcomes == ["miss", "hit"]


def test_dynamic_shapes(accelerator: int, model_path: Path) -> None:
    """C++:

    compiled_model.ResizeInputTensor(signature_index, 0, absl::MakeConstSpan({3, 2}));
    """
    with CompiledModel.create(model_path, Options(accelerator, gpu_options=GpuOptions(enforce_f32=True))) as model:
        model.resize_input_tensor(0, [3, 2])
        inputs, outputs = model.create_input_buffers(), model.create_output_buffers()
        inputs[0].write(np.arange(6, dtype=np.float32))
        model.run(inputs, outputs)
        np.testing.assert_array_equal(outputs[0].read(), 2 * np.arange(6, dtype=np.float32).reshape(3, 2))


def test_asynchronous_execution(accelerator: int, model_path: Path) -> None:
    """C++:

    bool async = true;
    compiled_model.RunAsync(0, input_buffers, output_buffers, async);
    if (async) { output_buffers[0].GetEvent().Wait(); }
    output_buffers[0].Read<float>(data);
    """
    with CompiledModel.create(model_path, accelerator, requests_in_flight=2) as model:
        sides = [(model.create_input_buffers(), model.create_output_buffers()) for _ in range(3)]
        for turn in range(4):
            for factor, (inputs, outputs) in enumerate(sides, turn):
                inputs[0].write(factor * VALUES)
                event = model.run_async(inputs, outputs)
                assert outputs[0].get_event() is event
            event.wait()
            for factor, (_, outputs) in enumerate(sides, turn):
                np.testing.assert_array_equal(outputs[0].read(), 2 * factor * VALUES)
                assert not outputs[0].has_event()


def test_memory_of_the_device(accelerator: int, model_path: Path) -> None:
    """C++:

    // Buffers in the memory that the accelerator asks for; no data is copied between two models on it.
    first_model.Run(input_buffers, buffers_between);
    second_model.Run(buffers_between, output_buffers);
    """
    with CompiledModel.create(model_path, accelerator) as model:
        (given,) = model.create_input_buffers("double", on_device=True)
        (between,) = model.create_output_buffers("double", on_device=True)
        (made,) = model.create_output_buffers("triple")
        assert (between.place.gpu >= 0) == (accelerator == Accelerator.GPU)
        given.write(VALUES)
        model.run([given], [between], "double")
        model.run([between], [made], "triple")
        np.testing.assert_array_equal(made.read(), 6 * VALUES)
