"""A model in BentoML: one worker process for each CPU, each with a batcher of its own.

    pip install . bentoml
    cd examples/serving && MODEL=/models/model.tflite bentoml serve bentoml_service:Served
    curl -d '{"row": [[[0.5, 0.5, 0.5]]]}' -H 'content-type: application/json' http://127.0.0.1:3000/predict

The row is that of the model's first input, without the axis of rows; the answer is that of the first output.
"""

from __future__ import annotations

import os
from typing import Any

import bentoml
import numpy as np

import jitdelegate


@bentoml.service(workers="cpu_count", resources={"cpu": "1"})
class Served:
    """One worker."""

    def __init__(self) -> None:
        self._model = jitdelegate.load(os.environ.get("MODEL", "model.tflite"), num_threads=1)
        self._batcher = jitdelegate.DynamicBatcher(self._model, max_batch_size=8)

    @bentoml.api
    async def predict(self, row: list[Any]) -> list[Any]:
        """The first output of one row."""
        port = self._model.inputs[0]
        try:
            outputs = await self._batcher({port.name: np.array(row, port.dtype)})
        except ValueError as error:
            raise bentoml.exceptions.InvalidArgument(str(error)) from error
        found: list[Any] = outputs[self._model.outputs[0].name].tolist()
        return found
