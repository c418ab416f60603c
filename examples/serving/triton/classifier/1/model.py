"""A model in the Python backend of Triton Inference Server, which collects requests for a batch itself.

Put the model beside this file as `model.tflite`, and into `config.pbtxt` the names, types and shapes of its inputs and
outputs. Options of `jitdelegate.load` are `parameters` there. The requests that the server hands over together run as
one batch.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from jitdelegate import BatchPredictor


class TritonPythonModel:
    """The class that the server looks for."""

    def initialize(self, args: dict[str, str]) -> None:
        """Open the model and run it once; an error here is the server's reason why it does not load."""
        config = json.loads(args["model_config"])
        options = {name: value["string_value"] for name, value in config.get("parameters", {}).items()}
        self._inputs = [each["name"] for each in config["input"]]
        self._outputs = [each["name"] for each in config["output"]]
        path = Path(args["model_repository"]) / args["model_version"] / "model.tflite"
        self._predictor = BatchPredictor(path, options=options, batch_size=config["max_batch_size"])
        types = {each["name"]: pb_utils.triton_string_to_numpy(each["data_type"]) for each in config["input"]}
        sizes = {each["name"]: [max(1, int(size)) for size in each["dims"]] for each in config["input"]}
        self._predictor({name: np.zeros((1, *sizes[name]), types[name]) for name in self._inputs})

    def execute(self, requests: list[Any]) -> list[Any]:
        """One response for each request, in their order."""
        given = [{name: _array(request, name) for name in self._inputs} for request in requests]
        rows = [len(each[self._inputs[0]]) for each in given]
        try:
            batch = self._predictor({name: np.concatenate([each[name] for each in given]) for name in self._inputs})
        except Exception as error:  # noqa: BLE001 the server wants a response, whatever happened
            failure = pb_utils.TritonError(str(error))
            return [pb_utils.InferenceResponse(output_tensors=[], error=failure) for _ in requests]
        ends = np.cumsum(rows)[:-1]
        parts = {name: np.split(np.asarray(batch[name]), ends) for name in self._outputs}
        return [
            pb_utils.InferenceResponse(
                output_tensors=[pb_utils.Tensor(name, parts[name][number]) for name in self._outputs]
            )
            for number in range(len(requests))
        ]


def _array(request: Any, name: str) -> np.ndarray[Any, Any]:
    array: np.ndarray[Any, Any] = pb_utils.get_input_tensor_by_name(request, name).as_numpy()
    return array
