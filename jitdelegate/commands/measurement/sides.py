"""Sides: ways to run a model that are compared with each other, all behind the same few methods.

"jitdelegate" is ours with the user's options, "reference" ours evaluated with numpy, "litert" LiteRT's interpreter with
its default kernels (XNNPACK), "litert-builtin" without XNNPACK, "litert-reference" its reference kernels, "openvino"
OpenVINO's CPU plugin, "onnxruntime" ONNX Runtime's CPU provider, if they are installed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jitdelegate.api.delegate import GpuDelegate
from jitdelegate.api.interpreter import Interpreter
from jitdelegate.api.kernel_times import KernelTime, kernel_times
from jitdelegate.api.report import Report, model_report
from jitdelegate.base.options import DelegateOptions
from jitdelegate.commands.measurement.entry import Entry
from jitdelegate.commands.measurement.other_runtimes import ONNX, OPENVINO, OnnxSide, OpenVinoSide
from jitdelegate.commands.measurement.side import Side
from jitdelegate.engine.executable import Executable
from jitdelegate.errors import DeviceError
from jitdelegate.runtime.fallback import Fallback
from jitdelegate.tflite.read import read
from jitdelegate.tflite.svdf_states import narrow_states, widened

OURS, LITERT = "jitdelegate", "litert"
REFERENCE = "reference"
_RESOLVERS = {
    LITERT: None,
    "litert-builtin": "BUILTIN_WITHOUT_DEFAULT_DELEGATES",
    "litert-reference": "BUILTIN_REF",
}
NAMES = (OURS, REFERENCE, *_RESOLVERS, OPENVINO, ONNX)


class _Interpreted(Side):
    """A side with the methods of LiteRT's interpreter, in which a subgraph runs by indices, a signature by names."""

    _interpreter: Any

    def _begin(self, invoke: Callable[[], object]) -> None:
        """After the tensors are allocated; `invoke` runs the subgraph."""
        self._invoke_all = invoke
        self._runner: Any = None
        self._found: dict[str, np.ndarray] = {}
        self._values: dict[str, np.ndarray] = {}
        self.run = self._invoke
        if self.entry.signature is not None:
            self._runner = self._interpreter.get_signature_runner(self.entry.signature)
            self.run = self._call

    def _invoke(self) -> None:
        try:
            self._invoke_all()
        except RuntimeError as error:
            raise self._failure(error) from error

    def _call(self) -> None:
        try:
            self._found = self._runner(**self._values)
        except (ValueError, RuntimeError) as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> DeviceError:
        """LiteRT's error as ours."""
        return DeviceError(f"{self.name} cannot run this model: {' '.join(str(error).split())}")

    def set_inputs(self, values: Sequence[np.ndarray]) -> None:
        if self._runner is not None:
            self._values = {port.name: value for port, value in zip(self.entry.inputs, values, strict=True)}
            return
        try:
            for each, value in zip(self.entry.inputs, values, strict=True):
                self._interpreter.set_tensor(each.index, value)
        except ValueError as error:
            raise self._failure(error) from error

    def outputs(self) -> list[np.ndarray]:
        if self._runner is not None:
            return [np.array(self._found[port.name]) for port in self.entry.outputs]
        return [self._interpreter.get_tensor(port.index) for port in self.entry.outputs]

    def _resizes(self) -> list[tuple[int, tuple[int, ...]]]:
        """Inputs with other sizes than the file's; a signature's runner follows its values' sizes itself."""
        if self.entry.signature is not None:
            return []
        tensors = self.entry.graph.tensors
        return [(port.index, port.shape) for port in self.entry.inputs if port.shape != tensors[port.index].shape]


class OwnSide(_Interpreted):
    """`jitdelegate.Interpreter` with options."""

    def __init__(self, name: str, entry: Entry, options: DelegateOptions, threads: int) -> None:
        """
        Raises:
            JitDelegateError: the model, the options or the machine do not go together.
        """
        self.name, self.entry = name, entry
        source = {"model_path": entry.source} if isinstance(entry.source, str) else {"model_content": entry.source}
        self._interpreter: Any = Interpreter(
            **source, num_threads=threads, experimental_delegates=[GpuDelegate.from_options(options)]
        )
        for index, shape in self._resizes():
            self._interpreter.resize_tensor_input(index, shape)
        self._interpreter.allocate_tensors()
        self._begin(self._interpreter.invoke)

    def _executable(self) -> Executable:
        """The program that runs."""
        graph = self._interpreter._graph(self.entry.subgraph)  # None where the whole model is LiteRT's
        return self._interpreter._opened if graph is None else graph.executable  # type: ignore[no-any-return]

    def report(self) -> Report:
        """Where each operator of the subgraph runs and why."""
        return model_report(self._interpreter._specializations, self._executable())

    def kernel_times(self) -> Sequence[KernelTime]:
        """With the option `profile`, the time of each kernel in the last runs."""
        return kernel_times(self._executable())

    def partitions(self) -> int:
        """Number of compiled partitions."""
        executable = self._executable()
        if executable.target == LITERT:
            return 0
        return sum(partition.place != LITERT for partition in executable.program.partitions) or 1


class LiteRTSide(_Interpreted):
    """LiteRT's own interpreter."""

    def __init__(self, name: str, entry: Entry, threads: int) -> None:
        """
        Raises:
            ModelError, DeviceError: LiteRT cannot open or prepare the model.
        """
        self.name, self.entry = name, entry
        resolver, arguments = _RESOLVERS[name], {}
        if resolver is not None:
            from ai_edge_litert.interpreter import OpResolverType

            arguments["experimental_op_resolver_type"] = OpResolverType[resolver]
        model = entry.source
        if narrow_states(read(entry.content)):  # LiteRT's kernel would write past their end
            model = widened(entry.content)
        self._fallback = Fallback(model, num_threads=threads, arguments=arguments)
        for index, shape in self._resizes():
            self._fallback.resize(index, shape)
        if entry.signature is None:
            self._fallback.allocate()
        self._begin(self._fallback.invoke)

    @property
    def _interpreter(self) -> Any:
        return self._fallback.interpreter

    def _call(self) -> None:
        try:
            self._found = self._runner(**self._values)
        except (ValueError, RuntimeError) as error:
            self._fallback.recover(error)
            self._runner = self._interpreter.get_signature_runner(self.entry.signature)
            super()._call()


def open_side(name: str, entry: Entry, options: DelegateOptions, threads: int) -> Side:
    """A side by its name.

    Args:
        options: of ours; the reference target takes those that are not about a target.
    Raises:
        JitDelegateError: it cannot run the model; the message says why.
    """
    if name in (OPENVINO, ONNX):
        return (OpenVinoSide if name == OPENVINO else OnnxSide)(entry, threads)
    if name in _RESOLVERS:
        return LiteRTSide(name, entry, threads)
    if name == REFERENCE:
        options = options.altered(target=REFERENCE, serialization_dir=False)
    return OwnSide(name, entry, options, threads)
