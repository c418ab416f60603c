"""Colours the things in a picture by their kind: semantic segmentation with DeepLab.

    python examples/segment.py deeplabv3.tflite astronaut.png --output segments.png

Any model from [1,H,W,3] to scores of [1,H,W,classes] or classes of [1,H,W] will do: for instance LiteRT's
https://storage.googleapis.com/download.tensorflow.org/models/tflite/gpu/deeplabv3_257_mv_gpu.tflite.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import jitdelegate

PASCAL = (
    *("background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("dining table", "dog", "horse", "motorbike", "person", "potted plant", "sheep", "sofa", "train", "monitor"),
)
"""Classes of models that were trained on PASCAL VOC."""
HEIGHT = 320
COLOURS = 128
SMALLEST = 0.005
"""Share of the picture from which on a class is named."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--output", type=Path, default=Path("segments.png"))
    arguments = parser.parse_args()

    picture = Image.open(arguments.picture).convert("RGB")
    with jitdelegate.load(arguments.model, quantize_inputs=True) as model:
        _, height, width, _ = model.inputs[0].shape
        pixels = np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR), np.float32)
        scores = np.asarray(model(pixels[None] / 127.5 - 1))[0]
    classes = scores.argmax(-1) if scores.ndim == 3 else scores

    shares = {int(kind): float((classes == kind).mean()) for kind in np.unique(classes)}
    named = {kind: share for kind, share in shares.items() if share >= SMALLEST}
    for kind, share in named.items():
        print(f"{share:6.1%}  {name_of(kind)}")
    draw(picture, classes, list(named)).quantize(COLOURS).save(arguments.output, optimize=True)


def name_of(kind: int) -> str:
    return PASCAL[kind] if kind < len(PASCAL) else f"class {kind}"


def palette(count: int = 256) -> np.ndarray:
    """u8[count,3]: PASCAL VOC's colours, which spread the bits of a class over red, green and blue; 0 is black."""
    kinds = np.arange(count)
    colours = np.zeros((count, 3), np.uint8)
    for bit in range(8):
        for channel in range(3):
            colours[:, channel] |= (((kinds >> (3 * bit + channel)) & 1) << (7 - bit)).astype(np.uint8)
    return colours


def draw(picture: Image.Image, classes: np.ndarray, kinds: list[int]) -> Image.Image:
    """The picture, the picture under its colours, and the names of the colours."""
    size = (round(picture.width * HEIGHT / picture.height), HEIGHT)
    colours = palette()
    plain = picture.resize(size)
    mask = Image.fromarray(colours[classes.astype(np.uint8)]).resize(size, Image.Resampling.NEAREST)
    result = Image.new("RGB", (2 * size[0], HEIGHT), "white")
    result.paste(plain)
    result.paste(Image.blend(plain, mask, 0.6), (size[0], 0))
    pen, font = ImageDraw.Draw(result), ImageFont.load_default(18)
    for place, kind in enumerate(kinds[:12]):
        left, top = size[0] + 10, 10 + 28 * place
        pen.rectangle((left, top, left + 20, top + 20), fill=tuple(colours[kind].tolist()), outline="white")
        pen.text((left + 28, top - 1), name_of(kind), fill="white", font=font, stroke_width=2, stroke_fill="black")
    return result


if __name__ == "__main__":
    main()
