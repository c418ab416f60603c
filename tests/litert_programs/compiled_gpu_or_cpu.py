"""The GPU with the CPU's help if there is one, else the CPU alone."""

import numpy as np
from ai_edge_litert.compiled_model import CompiledModel, HardwareAccelerator

try:
    model = CompiledModel.from_file("image.tflite", HardwareAccelerator.GPU | HardwareAccelerator.CPU)
except RuntimeError:
    model = CompiledModel.from_file("image.tflite", hardware_accel=HardwareAccelerator.CPU)
assert model.is_fully_accelerated()
inputs, results = model.create_input_buffers(0), model.create_output_buffers(0)
inputs[0].write(np.ones((1, 8, 8, 3), np.float32))
model.run_by_index(0, inputs, results)
outputs = [results[0].read(64, np.float32)]
