"""CompiledModel on prepared programs, from a filled cache: buffers of the host and of the GPU, runs that are waited for
and asynchronous ones; outputs that are inputs of the next step stay where they are."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from jitdelegate.compiled_model import CompiledModel
from jitdelegate.errors import JitDelegateError
from jitdelegate.hardware_accelerator import HardwareAccelerator
from scripts.gpu_check.bundle import MODEL, Bundle, Prepared
from scripts.gpu_check.correctness import difference
from scripts.gpu_check.filled_cache import filled_cache
from scripts.gpu_check.gpu import prepared_here
from scripts.gpu_check.row import NRMSE, Row

SECTION = "CompiledModel"
WAYS = {
    "buffers of the host": (False, False),
    "buffers of the GPU": (True, False),
    "asynchronously": (True, True),
}
"""By name, whether buffers are in the GPU's memory, and whether runs are asynchronous."""


def rows(bundle: Bundle) -> Iterator[Row]:
    """Per network, precision and way the worst output's NRMSE; of networks as their files have them."""
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as name:
        for prepared in prepared_here(bundle, MODEL):
            if prepared.case.model and not prepared.case.shapes:
                yield from _of_program(prepared, Path(name))


def _of_program(prepared: Prepared, folder: Path) -> Iterator[Row]:
    for way, (on_device, is_async) in WAYS.items():
        value, note = None, ""
        try:
            model, cache = filled_cache(prepared, folder)
            options = {"precision": prepared.precision, "serialization_dir": str(cache)}
            with CompiledModel.create(str(model), HardwareAccelerator.GPU, **options) as opened:  # type: ignore[arg-type]
                value = _worst(prepared, opened, on_device=on_device, is_async=is_async)
                report = opened.report()
            if (report.target, report.cache.outcome) != ("cuda", "hit"):  # right, but by other code than was prepared
                value, note = None, f"it ran on {report.target}, the cache answered {report.cache.outcome!r}"
        except JitDelegateError as error:
            note = str(error)
        yield Row(SECTION, prepared.name, way, value, NRMSE, limit=prepared.limit, note=note)


def _worst(prepared: Prepared, model: CompiledModel, *, on_device: bool, is_async: bool) -> float:
    """The worst output's NRMSE after all steps."""
    inputs = model.create_input_buffers(0, on_device=on_device)
    outputs = model.create_output_buffers(0, on_device=on_device)
    values = prepared.inputs
    for step in range(prepared.case.steps):
        for position, place in prepared.case.carried if step else ():
            inputs[position], outputs[place] = outputs[place], inputs[position]
        for position, value in prepared.fed(values, step):
            inputs[position].write(np.frombuffer(value, inputs[position].dtype))
        if is_async:
            model.run_async(inputs, outputs)
        else:
            model.run(inputs, outputs)
    found = [buffer.read().tobytes() for buffer in outputs]
    return max(map(difference, [buffer.dtype for buffer in outputs], found, prepared.outputs))
