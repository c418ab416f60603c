"""Every example runs and draws its picture: with small models of random weights, and with real ones where they are."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from skimage import data
from skimage.io import imread, imsave

from jitdelegate.commands import guide_models as models
from tests.docs.blocks import ROOT

EXAMPLES = ROOT / "examples"
SOUND = EXAMPLES / "words.wav"
COLOURS = 8
"""A picture that shows anything has more."""

SMALL = {
    "classify": (models.classifier, "coffee", ()),
    "detect_faces": (models.detector, "astronaut", ("--score", "0.95")),
    "segment": (models.segmenter, "astronaut", ()),
    "spot_keywords": (models.FILES["keywords.tflite"], "", ("--score", "0")),
    "generate_text": (models.decoder, "", ("--say", "ann", "a prompt", "--temperature", "0.8", "--top-k", "9")),
}
"""By example: its small model, its picture, and further arguments."""
REAL = {
    "classify": ("tf2_mobilenet_v2_1.0_224_ptq", "coffee", "espresso"),
    "detect_faces": ("face_detection_short_range", "astronaut", "face at 2"),
    "segment": ("deeplabv3_257_mv_gpu", "astronaut", "person"),
    "spot_keywords": ("kws_ref_model", "", "yes left right go"),
    "generate_text": ("qwen3_f32_ekv256", "", "ann: Hi<917>L<614><614> tokens:"),
}
"""By example: its real model, its picture, and the words that it prints, in order."""
GIVEN = {"generate_text": ("--say", "ann", "Hi")}
"""Further arguments for real models."""


def run(example: str, model: Path, picture: str, further: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The picture that an example drew."""
    folder = model.parent
    source = SOUND
    if picture:
        source = folder / "picture.png"
        imsave(source, getattr(data, picture)(), check_contrast=False)
    output = folder / "result.png"
    inputs = [] if example == "generate_text" else [str(source)]
    arguments = [f"{example}.py", str(model), *inputs, *further, "--output", str(output)]
    monkeypatch.setattr(sys, "argv", arguments)
    runpy.run_path(str(EXAMPLES / arguments[0]), run_name="__main__")
    return output


def test_every_example_is_run() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    assert names == set(SMALL) == set(REAL)


@pytest.mark.parametrize("example", SMALL)
def test_an_example_draws_a_picture(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, picture, further = SMALL[example]
    model = tmp_path / "model.tflite"
    model.write_bytes(make())
    found = imread(run(example, model, picture, further, monkeypatch))
    assert len(np.unique(found.reshape(-1, found.shape[-1]), axis=0)) > COLOURS


@pytest.mark.parametrize("example", REAL)
def test_an_example_finds_what_is_there(
    example: str, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name, picture, words = REAL[example]
    model = tmp_path / "model.tflite"
    model.symlink_to(next(models.rglob(f"{name}.tflite")))
    run(example, model, picture, GIVEN.get(example, ()), monkeypatch)
    said = capsys.readouterr().out
    places = [said.find(word) for word in words.split()]
    assert -1 not in places
    assert places == sorted(places)
