"""A real picture through a real face detector: the same box through our interpreter as through LiteRT's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT
from skimage.data import astronaut
from skimage.transform import resize

import jitdelegate

SIZE = 128
STRIDES = ((8, 2), (16, 6))
"""Of the detector's two grids: pixels per cell, and anchors per cell."""


def anchors() -> np.ndarray:
    """f32[896,2]: the middle of each anchor's cell, x and y from 0 to 1."""
    middles = []
    for stride, count in STRIDES:
        cells = SIZE // stride
        for y in range(cells):
            for x in range(cells):
                middles += [((x + 0.5) / cells, (y + 0.5) / cells)] * count
    return np.array(middles, np.float32)


def detect(interpreter: Any, image: np.ndarray) -> tuple[float, np.ndarray]:
    """(score, box as x, y, width, height from 0 to 1) of the surest face."""
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], image)
    interpreter.invoke()
    by_size = {detail["shape"][-1]: detail["index"] for detail in interpreter.get_output_details()}
    boxes, scores = (interpreter.get_tensor(by_size[size])[0] for size in (16, 1))
    best = int(scores[:, 0].argmax())
    middle = anchors()[best] + boxes[best, :2] / SIZE
    size = boxes[best, 2:4] / SIZE
    return float(1 / (1 + np.exp(-scores[best, 0]))), np.concatenate([middle - size / 2, size])


def test_the_astronaut_s_face_is_found_in_the_same_box(models: Path, tmp_path: Path) -> None:
    path = models / "real/face_detection_short_range.tflite"
    image = (2 * resize(astronaut(), (SIZE, SIZE), anti_aliasing=True)[None] - 1).astype(np.float32)
    delegate = jitdelegate.GpuDelegate(serialization_dir=tmp_path)
    interpreter = jitdelegate.Interpreter(path, experimental_delegates=[delegate])
    assert interpreter.report().fully_delegated
    score, box = detect(interpreter, image)
    expected_score, expected_box = detect(LiteRT(str(path)), image)
    np.testing.assert_allclose(box, expected_box, atol=1e-4)
    assert score == pytest.approx(expected_score, abs=1e-4)
    assert score > 0.8
    x, y, width, height = box
    assert 0.3 < x < x + width < 0.6  # where the face is in the picture
    assert 0.0 < y < y + height < 0.5
