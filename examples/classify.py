"""Classifies a picture, and draws its most probable classes beside it.

    python examples/classify.py mobilenet.tflite coffee.png --output classes.png

Any image classifier with one input of [1,H,W,3] will do, float or quantized: for instance
https://github.com/google-coral/test_data/blob/master/tf2_mobilenet_v2_1.0_224_ptq.tflite. Names of classes are taken
from the model's metadata, or from a text file with one name a line.
"""

from __future__ import annotations

import argparse
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import jitdelegate

SHOWN = 5
COLOURS = 128
HEIGHT, BAR, MARGIN = 320, 300, 20
"""Of the result, in pixels: its height, the longest bar, and the space around."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--labels", type=Path, help="one class a line (default: the model's metadata)")
    parser.add_argument("--output", type=Path, default=Path("classes.png"))
    arguments = parser.parse_args()

    # Quantized models take and return floats as well, so that one program does for all of them.
    with jitdelegate.load(arguments.model, quantize_inputs=True, dequantize_outputs=True) as model:
        picture = square(Image.open(arguments.picture).convert("RGB"))
        _, height, width, _ = model.inputs[0].shape
        pixels = np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR), np.float32)
        probabilities = np.asarray(model(pixels[None] / 127.5 - 1))[0]

    names = class_names(arguments.model, arguments.labels)
    best = [int(index) for index in np.argsort(-probabilities)[:SHOWN]]
    found = [(names.get(index, f"class {index}"), float(probabilities[index])) for index in best]
    for name, probability in found:
        print(f"{probability:6.1%}  {name}")
    draw(picture, found).quantize(COLOURS).save(arguments.output, optimize=True)


def square(picture: Image.Image) -> Image.Image:
    """The largest square in the middle of a picture."""
    size = min(picture.size)
    left, top = (picture.width - size) // 2, (picture.height - size) // 2
    return picture.crop((left, top, left + size, top + size))


def class_names(model: Path, labels: Path | None) -> dict[int, str]:
    """Names by class, from a file, or from the archive that TFLite appends to a model as its metadata."""
    if labels is not None:
        return dict(enumerate(labels.read_text().splitlines()))
    if not zipfile.is_zipfile(model):
        return {}
    with zipfile.ZipFile(model) as archive:
        texts = [archive.read(name).decode() for name in archive.namelist() if name.endswith(".txt")]
    return dict(enumerate(texts[0].splitlines())) if texts else {}


def draw(picture: Image.Image, found: list[tuple[str, float]]) -> Image.Image:
    """The picture, and a bar for each class."""
    result = Image.new("RGB", (HEIGHT + BAR + 2 * MARGIN, HEIGHT), "white")
    result.paste(picture.resize((HEIGHT, HEIGHT)))
    pen, font = ImageDraw.Draw(result), ImageFont.load_default(18)
    step = HEIGHT // SHOWN
    for place, (name, probability) in enumerate(found):
        left, top = HEIGHT + MARGIN, place * step + MARGIN // 2
        pen.text((left, top), f"{name[:24]}  {probability:.1%}", fill="black", font=font)
        pen.rectangle((left, top + 28, left + max(1, BAR * probability), top + 48), fill="#3f51b5")
    return result


if __name__ == "__main__":
    main()
