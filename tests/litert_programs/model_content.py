"""A model from memory, several threads, and views of tensors."""

from pathlib import Path

import numpy as np
from ai_edge_litert import interpreter as tflite

interpreter = tflite.Interpreter(model_content=Path("image.tflite").read_bytes(), num_threads=2)
interpreter.allocate_tensors()
input_view = interpreter.tensor(interpreter.get_input_details()[0]["index"])
output_view = interpreter.tensor(interpreter.get_output_details()[0]["index"])
outputs = []
for step in range(3):
    input_view().fill(0.1 * step)
    interpreter.invoke()
    outputs.append(np.copy(output_view()))
