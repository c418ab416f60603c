"""A signature by name."""

import numpy as np
from ai_edge_litert.interpreter import Interpreter

interpreter = Interpreter("signed.tflite")
signatures = interpreter.get_signature_list()
runner = interpreter.get_signature_runner("serve")
shape = runner.get_input_details()["picture"]["shape"]
result = runner(picture=np.full(shape, 0.5, np.float32))
outputs = [result[name] for name in signatures["serve"]["outputs"]]
