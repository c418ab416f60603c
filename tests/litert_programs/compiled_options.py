"""Options of a CompiledModel, and one Environment for two models."""

import numpy as np
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.environment import Environment
from ai_edge_litert.options import CpuOptions, GpuOptions, HardwareAccelerator, Options

options = Options.create()
options.hardware_accelerators = HardwareAccelerator.CPU
options.cpu_options.num_threads = 2
other = Options(cpu_options=CpuOptions(num_threads=1), gpu_options=GpuOptions(enforce_f32=True))
outputs = []
with Environment.create() as environment:
    for name, each in (("image.tflite", options), ("signed.tflite", other)):
        model = CompiledModel.from_file(name, environment=environment, options=each)
        assert model.environment is environment
        inputs, results = model.create_input_buffers(0), model.create_output_buffers(0)
        inputs[0].write(np.full((1, 8, 8, 3), 0.25, np.float32))
        model.run_by_index(0, inputs, results)
        outputs.append(results[0].read(64, np.float32))
