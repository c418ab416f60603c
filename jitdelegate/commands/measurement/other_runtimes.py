"""Sides that need packages of other projects: OpenVINO."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from jitdelegate.commands.measurement.entry import Entry
from jitdelegate.commands.measurement.side import Side
from jitdelegate.errors import DeviceError, ModelError

OPENVINO = "openvino"
_HINTS = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
"""Of OpenVINO, which computes in bfloat16 by itself where the CPU can."""


class OpenVinoSide(Side):
    """OpenVINO's CPU plugin, tuned for latency."""

    def __init__(self, entry: Entry, threads: int) -> None:
        """
        Raises:
            DeviceError: OpenVINO is not installed, or cannot compile the model.
            ModelError: it runs main subgraphs only.
        """
        self.name, self.entry = OPENVINO, entry
        if entry.signature is not None:
            raise ModelError(f"OpenVINO runs the main subgraph of a model, but not signature {entry.signature!r}")
        try:
            import openvino
        except ImportError as error:
            raise DeviceError("OpenVINO is not installed: pip install openvino") from error
        try:
            model = _openvino_model(openvino.Core(), entry)
            model.reshape({port: list(each.shape) for port, each in zip(model.inputs, entry.inputs, strict=True)})
            self._request = (
                openvino.Core()
                .compile_model(model, "CPU", {**_HINTS, "INFERENCE_NUM_THREADS": threads})
                .create_infer_request()
            )
        except (RuntimeError, ValueError) as error:
            raise DeviceError(f"OpenVINO cannot run this model: {' '.join(str(error).split())}") from error
        self.run = self._request.infer

    def set_inputs(self, values: Sequence[np.ndarray]) -> None:
        for position, value in enumerate(values):
            self._request.get_input_tensor(position).data[...] = value

    def outputs(self) -> list[np.ndarray]:
        return [np.array(self._request.get_output_tensor(position).data) for position in range(len(self.entry.outputs))]


def _openvino_model(core: Any, entry: Entry) -> Any:
    """OpenVINO's model of the file; it reads .tflite from files only."""
    if isinstance(entry.source, str):
        return core.read_model(entry.source)
    with tempfile.TemporaryDirectory(prefix="jitdelegate-") as folder:
        path = os.path.join(folder, "model.tflite")
        with open(path, "wb") as file:
            file.write(entry.source)
        return core.read_model(path)
