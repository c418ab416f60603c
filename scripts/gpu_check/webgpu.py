"""The example network on LiteRT's own WebGPU accelerator, where LiteRT and Vulkan work, interleaved with ours."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from scripts.gpu_check.bundle import Bundle
from scripts.gpu_check.gpu import example_here, open_session
from scripts.gpu_check.row import RATIO, Row, measured
from scripts.gpu_check.sides import Ours, interleave, timed

SECTION = "WebGPU"
LITERT = "LiteRT WebGPU"
CALL = "a call"
ROUNDS = 60
PRECISIONS = ("float32", "float16")


def rows(bundle: Bundle) -> Iterator[Row]:
    """One call of each, from values on the host to values on the host, and the ratios of the rounds."""
    try:
        litert = _LiteRt()
    except (ImportError, RuntimeError, ValueError, OSError) as error:
        yield Row(SECTION, LITERT, CALL, note=f"{type(error).__name__}: {str(error).strip()[:300]}")
        return
    yield Row(SECTION, LITERT, "operators", note="all on the GPU" if litert.is_whole else "not all on the GPU")
    ours = {precision: Ours(open_session(example_here(bundle, precision))) for precision in PRECISIONS}
    measures = {LITERT: litert.call_seconds, **{name: side.call_seconds for name, side in ours.items()}}
    seconds = interleave(measures, ROUNDS)
    yield measured(SECTION, LITERT, CALL, seconds[LITERT])
    for precision in PRECISIONS:
        ratios = [a / b for a, b in zip(seconds[precision], seconds[LITERT], strict=True)]
        yield measured(SECTION, f"jitdelegate {precision}", CALL, seconds[precision])
        yield measured(SECTION, f"jitdelegate {precision} / {LITERT}", CALL, ratios, unit=RATIO)


class _LiteRt:
    """The network compiled by LiteRT for its GPU accelerator.

    Attributes:
        is_whole: all operators run there.
    """

    def __init__(self) -> None:
        import numpy
        from ai_edge_litert.compiled_model import CompiledModel
        from ai_edge_litert.hardware_accelerator import HardwareAccelerator

        from jitdelegate.commands.demo_model import CLASSES, mobilenet_v1

        self._folder = tempfile.TemporaryDirectory(prefix="gpu-check-")
        path = Path(self._folder.name) / "model.tflite"
        path.write_bytes(mobilenet_v1())
        self._model: Any = CompiledModel.from_file(str(path), hardware_accel=HardwareAccelerator.GPU)
        self.is_whole = bool(self._model.is_fully_accelerated())
        self._inputs, self._outputs = self._model.create_input_buffers(0), self._model.create_output_buffers(0)
        self._image = numpy.random.default_rng(0).random((1, 224, 224, 3), numpy.float32)
        self._read: Callable[[], Any] = lambda: self._outputs[0].read(CLASSES, numpy.float32)
        self._call()

    def call_seconds(self) -> float:
        return timed(self._call)

    def _call(self) -> None:
        self._inputs[0].write(self._image)
        self._model.run_by_index(0, self._inputs, self._outputs)
        self._read()
