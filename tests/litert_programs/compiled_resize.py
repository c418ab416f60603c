"""Dynamic shapes of a CompiledModel."""

import numpy as np
from ai_edge_litert.compiled_model import CompiledModel

model = CompiledModel.from_file("signatures.tflite")
key = model.get_signature_by_index(1)["key"]
outputs = []
for batch in (3, 5):
    model.resize_input_tensor_by_name(key, "x", [batch, 2])
    assert model.get_output_tensor_details(key)["y"]["shape"] == [batch, 2]
    inputs, results = model.create_input_buffers(1), model.create_output_buffers(1)
    inputs[0].write(np.arange(2 * batch, dtype=np.float32))
    model.run_by_index(1, inputs, results)
    outputs.append(results[0].read(2 * batch, np.float32))
try:
    model.resize_input_tensor(0, [3, 7], 1)
except RuntimeError:
    outputs.append(np.zeros(1))
