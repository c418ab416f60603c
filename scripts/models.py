"""Models that a command names, and interpreters that are ready to run them."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def models_in(path: Path) -> list[Path]:
    """The .tflite files at a path, nested ones too."""
    return sorted(path.rglob("*.tflite")) if path.is_dir() else [path] * path.exists()


def ready(interpreter: Any) -> Any:
    """The interpreter with tensors allocated and seeded random input; integers that are no quantized numbers are
    indices, 0 or 1."""
    import numpy as np

    interpreter.allocate_tensors()
    values = np.random.default_rng(0)
    for detail in interpreter.get_input_details():
        value = values.uniform(-1, 1, detail["shape"])
        if np.issubdtype(detail["dtype"], np.integer):
            value = value * 100 if detail["quantization"][0] else value > 0
        interpreter.set_tensor(detail["index"], value.astype(detail["dtype"]))
    return interpreter
