"""Quantizes a float32 .tflite file by ai-edge-quantizer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

RECIPES = {
    "int8": "dynamic_wi8_afp32",
    "int4": "dynamic_wi4b32_afp32",
    "static_int8": "static_wi8_ai8",
    "static_int16": "static_wi8_ai16",
}
KINDS = tuple(RECIPES)
CALIBRATIONS = 3
"""Random inputs of each signature from which a static recipe takes its ranges."""


def quantize(model: Path, kind: str) -> None:
    """Writes NETWORK.KIND.tflite beside NETWORK.tflite, whole or not at all."""
    from ai_edge_quantizer import quantizer, recipe

    work = quantizer.Quantizer(str(model))
    work.load_quantization_recipe(getattr(recipe, RECIPES[kind])())
    ranges = work.calibrate(_random_inputs(model)) if kind.startswith("static") else None
    target = model.with_suffix(f".{kind}.tflite")
    temporary = target.with_name(f".{target.stem}.{os.getpid()}.tflite")
    work.quantize(ranges).export_model(str(temporary))
    temporary.rename(target)


def _random_inputs(model: Path) -> dict[str, list[dict[str, Any]]]:
    """By signature: normal numbers for floats, numbers below 100 for tokens."""
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(model))
    random = np.random.default_rng(0)

    def draw(details: dict[str, Any]) -> Any:
        shape, dtype = details["shape"], np.dtype(details["dtype"])
        values = random.normal(size=shape) if dtype.kind == "f" else random.integers(0, 100, shape)
        return values.astype(dtype)

    inputs = {}
    for key in interpreter.get_signature_list():
        details = interpreter.get_signature_runner(key).get_input_details()
        inputs[key] = [{name: draw(value) for name, value in details.items()} for _ in range(CALIBRATIONS)]
    return inputs
