"""Every signature of a model, with inputs of another batch size."""

import numpy as np
from ai_edge_litert.interpreter import Interpreter

interpreter = Interpreter(model_path="signatures.tflite")
outputs = []
for key, names in interpreter.get_signature_list().items():
    runner = interpreter.get_signature_runner(key)
    data = np.arange(6, dtype=np.float32).reshape(3, 2)
    found = runner(**dict.fromkeys(names["inputs"], data))
    outputs += [found[name] for name in names["outputs"]]
