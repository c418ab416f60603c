"""The Interpreter's first example: one inference on random data."""

import numpy as np
from ai_edge_litert.interpreter import Interpreter

interpreter = Interpreter(model_path="image.tflite")
interpreter.allocate_tensors()

input_details = interpreter.get_input_details()
output_details = interpreter.get_output_details()

input_shape = input_details[0]["shape"]
input_data = np.array(np.random.default_rng(0).random(input_shape), dtype=np.float32)
interpreter.set_tensor(input_details[0]["index"], input_data)

interpreter.invoke()

outputs = [interpreter.get_tensor(output_details[0]["index"])]
