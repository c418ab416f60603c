"""Finds faces with MediaPipe's short-range detector, and draws a box round each, with eyes, nose, mouth and ears.

    python examples/detect_faces.py face_detection_short_range.tflite astronaut.png --output faces.png

The model is part of MediaPipe: https://storage.googleapis.com/mediapipe-assets/face_detection_short_range.tflite, or
mediapipe/modules/face_detection in its wheel.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import jitdelegate

GRIDS = ((8, 2), (16, 6))
"""Pixels between the detector's anchors, and anchors at each place."""
OVERLAP = 0.3
"""Boxes that share more of their area are one face."""
SHOWN_HEIGHT = 400
COLOURS = 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--score", type=float, default=0.6, help="least score of a face, 0 to 1 (default: 0.6)")
    parser.add_argument("--output", type=Path, default=Path("faces.png"))
    arguments = parser.parse_args()

    picture = Image.open(arguments.picture).convert("RGB")
    with jitdelegate.load(arguments.model) as model:
        size = model.inputs[0].shape[1]
        image, side = padded(picture, size)
        boxes, logits = (np.asarray(output)[0] for output in model(image[None]))

    scores = 1 / (1 + np.exp(-np.clip(logits[:, 0], -50, 50)))
    # Each row is a box (x, y, width, height) and six points (x, y), in pixels from the anchor.
    points = boxes.reshape(-1, 8, 2) / size
    points[:, [0, 2, 3, 4, 5, 6, 7]] += anchors(size)[:, None]
    faces = [points[index] * side for index in separate(points, scores, arguments.score)]
    for face in faces:
        (x, y), (width, height) = face[:2]
        print(f"face at {x:.0f}, {y:.0f}, {width:.0f} by {height:.0f} pixels")
    draw(picture, faces).quantize(COLOURS).save(arguments.output, optimize=True)


def padded(picture: Image.Image, size: int) -> tuple[np.ndarray, int]:
    """(f32[size,size,3] from -1 to 1, pixels): the picture in the corner of a black square, and the square's side."""
    side = max(picture.size)
    square = Image.new("RGB", (side, side))
    square.paste(picture)
    pixels = np.asarray(square.resize((size, size), Image.Resampling.BOX), np.float32)
    return pixels / 127.5 - 1, side


def anchors(size: int) -> np.ndarray:
    """f32[anchors,2]: the middle of each anchor, from 0 to 1."""
    found = []
    for stride, count in GRIDS:
        middles = (np.arange(size // stride) + 0.5) * stride / size
        x, y = np.meshgrid(middles, middles)
        found.append(np.repeat(np.stack([x, y], -1).reshape(-1, 2), count, axis=0))
    return np.concatenate(found).astype(np.float32)


def separate(points: np.ndarray, scores: np.ndarray, least: float) -> list[int]:
    """The surest box of each face: those that overlap a surer one are left out."""
    kept: list[int] = []
    for index in np.argsort(-scores):
        if scores[index] < least:
            break
        if all(overlap(points[index], points[other]) < OVERLAP for other in kept):
            kept.append(int(index))
    return kept


def overlap(one: np.ndarray, other: np.ndarray) -> float:
    """The area that two boxes share, over the area that they cover together."""
    low = np.maximum(one[0] - one[1] / 2, other[0] - other[1] / 2)
    high = np.minimum(one[0] + one[1] / 2, other[0] + other[1] / 2)
    shared = float(np.prod(np.maximum(high - low, 0)))
    covered = float(np.prod(one[1]) + np.prod(other[1])) - shared
    return shared / max(covered, 1e-9)


def draw(picture: Image.Image, faces: list[np.ndarray]) -> Image.Image:
    """The picture with a box and six points for each face."""
    scale = SHOWN_HEIGHT / picture.height
    result = picture.resize((round(picture.width * scale), SHOWN_HEIGHT))
    pen, font = ImageDraw.Draw(result), ImageFont.load_default(20)
    for number, face in enumerate(faces, 1):
        middle, size = face[0] * scale, face[1] * scale
        low = middle - size / 2
        pen.rectangle((*low, *(middle + size / 2)), outline="#00e676", width=4)
        pen.text(
            (low[0], low[1] - 24), f"face {number}", fill="#00e676", font=font, stroke_width=2, stroke_fill="black"
        )
        for x, y in face[2:] * scale:
            pen.ellipse((x - 4, y - 4, x + 4, y + 4), fill="#ff1744")
    return result


if __name__ == "__main__":
    main()
