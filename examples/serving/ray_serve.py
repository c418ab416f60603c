"""A model in Ray Serve: each replica is a process with a batcher of its own.

    pip install . 'ray[serve]'
    cd examples/serving && MODEL=/models/model.tflite serve run ray_serve:app
    curl -d '{"image": [[[0.5, 0.5, 0.5]]]}' http://127.0.0.1:8000/

The body is a JSON object with a value for each of the model's inputs, without the axis of rows; so is the answer, with
the outputs.
"""

from __future__ import annotations

import os

import numpy as np
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse

import jitdelegate


@serve.deployment(num_replicas=1, ray_actor_options={"num_cpus": 1}, max_ongoing_requests=64)
class Served:
    """One replica. Programs come from a prebuilt folder that every node has (docs/fleets.md)."""

    def __init__(self, path: str) -> None:
        self._model = jitdelegate.load(path, num_threads=1)
        self._batcher = jitdelegate.DynamicBatcher(self._model, max_batch_size=8)

    async def __call__(self, request: Request) -> JSONResponse:
        """Answer one HTTP request."""
        try:
            given = await request.json()
            row = {port.name: np.array(given[port.name], port.dtype) for port in self._model.inputs}
            outputs = await self._batcher(row)
        except (KeyError, TypeError, ValueError) as error:
            return JSONResponse({"error": str(error)}, status_code=400)
        return JSONResponse({name: value.tolist() for name, value in outputs.items()})


app = Served.bind(os.environ.get("MODEL", "model.tflite"))  # type: ignore[attr-defined]  # the decorator adds it
