"""A delegate's library if there is one, else the CPU."""

import numpy as np
from ai_edge_litert.interpreter import Interpreter, load_delegate

try:
    delegates = [load_delegate("libedgetpu.so.1", {"device": "usb"})]
except (ValueError, OSError):
    delegates = []
interpreter = Interpreter("image.tflite", experimental_delegates=delegates)
interpreter.allocate_tensors()
interpreter.set_tensor(interpreter.get_input_details()[0]["index"], np.ones((1, 8, 8, 3), np.float32))
interpreter.invoke()
outputs = [interpreter.get_tensor(interpreter.get_output_details()[0]["index"])]
