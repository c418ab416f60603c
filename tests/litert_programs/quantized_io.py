"""A quantized model: real values by scale and zero point, and the largest outputs."""

import numpy as np
from ai_edge_litert.interpreter import Interpreter

interpreter = Interpreter(model_path="quantized.tflite")
interpreter.allocate_tensors()
detail = interpreter.get_input_details()[0]
scale, zero_point = detail["quantization"]
image = np.random.default_rng(1).normal(size=detail["shape"])
info = np.iinfo(detail["dtype"])
stored = np.clip(np.round(image / scale) + zero_point, info.min, info.max)
interpreter.set_tensor(detail["index"], stored.astype(detail["dtype"]))
interpreter.invoke()
output = interpreter.get_output_details()[0]
scale, zero_point = output["quantization"]
results = np.squeeze(scale * (interpreter.get_tensor(output["index"]).astype(np.int64) - zero_point))
outputs = [results, np.sort(results)[-5:][::-1]]
