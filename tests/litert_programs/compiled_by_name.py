"""Signatures, inputs and outputs of a CompiledModel by name."""

import numpy as np
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.hardware_accelerator import HardwareAccelerator

outputs = []
with open("signatures.tflite", "rb") as file, CompiledModel.from_buffer(file.read(), HardwareAccelerator.CPU) as model:
    for key, names in model.get_signature_list().items():
        assert model.get_signature_by_index(model.get_signature_index(key))["inputs"] == names["inputs"]
        inputs = {name: model.create_input_buffer_by_name(key, name) for name in names["inputs"]}
        results = {name: model.create_output_buffer_by_name(key, name) for name in names["outputs"]}
        details = model.get_input_tensor_details(key)
        for name, buffer in inputs.items():
            buffer.write(np.full(details[name]["shape"], 4, details[name]["dtype"]))
        model.run_by_name(key, inputs, results)
        for name, detail in model.get_output_tensor_details(key).items():
            outputs.append(results[name].read(int(np.prod(detail["shape"])), np.float32))
