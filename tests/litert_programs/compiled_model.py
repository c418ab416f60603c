"""CompiledModel's first example: buffers in, buffers out."""

import numpy as np
from ai_edge_litert.compiled_model import CompiledModel

model = CompiledModel.from_file("image.tflite")

signature_index = 0
input_buffers = model.create_input_buffers(signature_index)
output_buffers = model.create_output_buffers(signature_index)

input_data = np.linspace(0, 1, 8 * 8 * 3, dtype=np.float32).reshape(1, 8, 8, 3)
input_buffers[0].write(input_data)

model.run_by_index(signature_index, input_buffers, output_buffers)

requirements = model.get_output_buffer_requirements(0, signature_index)
num_elements = requirements["buffer_size"] // np.dtype(np.float32).itemsize
outputs = [output_buffers[0].read(num_elements, np.float32)]
