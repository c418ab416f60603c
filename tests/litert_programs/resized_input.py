"""Another batch size for each inference."""

import numpy as np
from ai_edge_litert.interpreter import Interpreter

interpreter = Interpreter(model_path="batches.tflite")
(detail,) = interpreter.get_input_details()
outputs = []
for batch in (1, 4, 2):
    interpreter.resize_tensor_input(detail["index"], [batch, *detail["shape"][1:]], strict=True)
    interpreter.allocate_tensors()
    data = np.linspace(-1, 1, batch * 8 * 8 * 3, dtype=np.float32).reshape(batch, 8, 8, 3)
    interpreter.set_tensor(detail["index"], data)
    interpreter.invoke()
    (output,) = interpreter.get_output_details()
    assert output["shape"][0] == batch
    outputs.append(interpreter.get_tensor(output["index"]))
