"""TensorBuffers on the program's own arrays."""

import numpy as np
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.tensor_buffer import TensorBuffer


def aligned(size: int) -> np.ndarray:
    """Zeros at a multiple of 64 bytes."""
    room = np.zeros(size + 16, np.float32)
    return room[-room.ctypes.data % 64 // 4 :][:size]


model = CompiledModel.from_file("vector.tflite")
given, made = aligned(16), aligned(16)
input_buffer, output_buffer = map(TensorBuffer.create_from_host_memory, (given, made))
outputs = []
for step in range(3):
    given[:] = np.arange(16) - 5 * step
    model.run_by_index(0, [input_buffer], [output_buffer])
    outputs += [made.copy(), output_buffer.read(16, np.float32)]
assert input_buffer.get_tensor_details() == {"dtype": "float32", "shape": [16]}
output_buffer.destroy()
try:
    model.run_by_index(0, [input_buffer], [output_buffer])
except ValueError as error:
    assert "destroyed" in str(error)
