"""Sides that need packages of other projects: OpenVINO, and ONNX Runtime, whose models lie beside the .tflite files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from jitdelegate.commands.measurement.entry import Entry
from jitdelegate.commands.measurement.side import Side
from jitdelegate.errors import DeviceError, ModelError

OPENVINO, ONNX = "openvino", "onnxruntime"
PACKAGES = {OPENVINO: "OpenVINO", ONNX: "ONNX Runtime"}
"""Names of sides, which are those of their packages -> names of the projects."""
_HINTS = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
"""Of OpenVINO, which computes in bfloat16 by itself where the CPU can."""


def is_installed(name: str) -> bool:
    """Whether a side's package is there, if it needs one."""
    return name not in PACKAGES or find_spec(name) is not None


def absence(name: str) -> str:
    """A sentence about a package that is not installed."""
    return f"{PACKAGES[name]} is not installed: pip install {name}"


def onnx_file(model: str | bytes) -> str | None:
    """The .onnx file of the same name beside a model's file; None where there is none."""
    path = os.path.splitext(model)[0] + ".onnx" if isinstance(model, str) else ""
    return path if os.path.isfile(path) else None


def _check(name: str, entry: Entry) -> None:
    """
    Raises:
        DeviceError: the package of a side is not installed.
        ModelError: the side runs main subgraphs only.
    """
    if not is_installed(name):
        raise DeviceError(absence(name))
    if entry.signature is not None:
        raise ModelError(f"{PACKAGES[name]} runs the main subgraph of a model, but not signature {entry.signature!r}")


class OpenVinoSide(Side):
    """OpenVINO's CPU plugin, tuned for latency."""

    def __init__(self, entry: Entry, threads: int) -> None:
        """
        Raises:
            DeviceError: OpenVINO is not installed, or cannot compile the model.
            ModelError: it runs main subgraphs only.
        """
        self.name, self.entry = OPENVINO, entry
        _check(OPENVINO, entry)
        import openvino

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


class OnnxSide(Side):
    """ONNX Runtime's CPU provider, on the model that `onnx_file` finds."""

    def __init__(self, entry: Entry, threads: int) -> None:
        """
        Raises:
            DeviceError: ONNX Runtime is not installed, or cannot open the model.
            ModelError: there is no .onnx file, or it has other inputs; it runs main subgraphs only.
        """
        self.name, self.entry = ONNX, entry
        _check(ONNX, entry)
        path = onnx_file(entry.source)
        if path is None:
            raise ModelError("ONNX Runtime needs a .onnx file of the same name beside the .tflite file")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        try:
            self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise self._failure(error) from error
        self._binding = self._session.io_binding()
        self.run = self._run

    def _failure(self, error: Exception) -> DeviceError:
        return DeviceError(f"ONNX Runtime cannot run this model: {' '.join(str(error).split())}")

    def _run(self) -> None:
        try:
            self._session.run_with_iobinding(self._binding)
        except Exception as error:
            raise self._failure(error) from error

    def set_inputs(self, values: Sequence[np.ndarray]) -> None:
        """Take values by the names of inputs, or, where these are others, in their order."""
        given = {port.name: value for port, value in zip(self.entry.inputs, values, strict=True)}
        names = [each.name for each in self._session.get_inputs()]
        if len(names) != len(values):
            raise ModelError(f"the .onnx file has {len(names)} inputs, but the model has {len(values)}")
        given = given if {*names} == {*given} else dict(zip(names, values, strict=True))
        try:
            for name in names:
                self._binding.bind_cpu_input(name, np.ascontiguousarray(given[name]))
            for each in self._session.get_outputs():
                self._binding.bind_output(each.name)
        except Exception as error:
            raise self._failure(error) from error

    def outputs(self) -> list[np.ndarray]:
        """By the names of outputs, or, where these are others, in their order."""
        values = self._binding.copy_outputs_to_cpu()
        found = dict(zip((each.name for each in self._session.get_outputs()), values, strict=True))
        names = [port.name for port in self.entry.outputs]
        return [found[name] for name in names] if {*names} == {*found} else [*found.values()]
