"""Spots spoken words in a wave file, and draws them over its sound.

    python examples/spot_keywords.py kws_ref_model.tflite words.wav --output keywords.png

The model is that of MLPerf Tiny, trained on Speech Commands:
https://github.com/mlcommons/tiny/tree/master/benchmark/training/keyword_spotting/trained_models. It looks at one second
of sound: 49 frames of 10 mel-frequency cepstral coefficients.
"""

from __future__ import annotations

import argparse
import wave
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import jitdelegate

WORDS = ("down", "go", "left", "no", "off", "on", "right", "stop", "up", "yes", "(silence)", "(unknown)")
SPOKEN = 10
"""The first so many of WORDS are words."""
RATE = 16000
WINDOW, STEP, LENGTH = 480, 320, 512
"""Samples of a frame, between frames, and of a Fourier transform."""
MELS, COEFFICIENTS, LOWEST, HIGHEST = 40, 10, 20.0, 4000.0
HOP = 0.25
"""Seconds from one look at the sound to the next."""
SIZE = (900, 260)
COLOURS = 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("sound", type=Path, help="a wave file of 16-bit samples, 16,000 a second")
    parser.add_argument("--score", type=float, default=0.8, help="least score of a word, 0 to 1 (default: 0.8)")
    parser.add_argument("--output", type=Path, default=Path("keywords.png"))
    arguments = parser.parse_args()

    sound = read(arguments.sound)
    with jitdelegate.load(arguments.model, quantize_inputs=True, dequantize_outputs=True) as model:
        found = spot(model, sound, arguments.score)
    for start, word, score in found:
        print(f"{start:5.2f} s  {word}  {score:.0%}")
    draw(sound, found).quantize(COLOURS).save(arguments.output, optimize=True)


def read(path: Path) -> np.ndarray:
    """f32[samples], from -1 to 1; at least a second."""
    with wave.open(str(path)) as file:
        if (file.getframerate(), file.getsampwidth()) != (RATE, 2):
            raise SystemExit(f"{path} has {file.getframerate()} samples a second of {file.getsampwidth()} bytes")
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, file.getnchannels())
    sound = samples[:, 0].astype(np.float32) / 32768
    return np.pad(sound, (0, max(0, RATE - len(sound))))


def spot(model: jitdelegate.Model, sound: np.ndarray, least: float) -> list[tuple[float, str, float]]:
    """(seconds from the start, word, score) of each word: the surest of neighbouring looks that heard the same."""
    found: list[tuple[float, str, float]] = []
    for start in range(0, len(sound) - RATE + 1, int(HOP * RATE)):
        second = sound[start : start + RATE]
        scores = np.asarray(model(features(second)[None, :, :, None]))[0]
        kind, score = int(scores.argmax()), float(scores.max())
        if kind >= SPOKEN or score < least:
            continue
        heard = (start / RATE, WORDS[kind], score)
        if found and found[-1][1] == heard[1] and heard[0] - found[-1][0] < 1:
            found[-1] = max(found[-1], heard, key=lambda each: each[2])
        else:
            found.append(heard)
    return found


def features(second: np.ndarray) -> np.ndarray:
    """f32[49,10]: mel-frequency cepstral coefficients of a second of sound, as TensorFlow computes them."""
    second = second / max(float(np.abs(second).max()), 1e-3)
    frames = np.lib.stride_tricks.sliding_window_view(second, WINDOW)[::STEP]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    spectrum = np.abs(np.fft.rfft(frames * hann, LENGTH))
    loudness = np.log(spectrum @ mel_filters() + 1e-6)
    row, column = np.arange(COEFFICIENTS)[:, None], np.arange(MELS)
    cosines = 2 * np.cos(np.pi * row * (2 * column + 1) / (2 * MELS)) / np.sqrt(2 * MELS)
    return (loudness @ cosines.T).astype(np.float32)


def mel_filters() -> np.ndarray:
    """f64[257,40]: overlapping triangles, evenly spaced on the mel scale."""

    def mel(hertz: np.ndarray | float) -> np.ndarray:
        return 1127 * np.log1p(np.asarray(hertz) / 700)

    bins = mel(np.linspace(0, RATE / 2, LENGTH // 2 + 1))[:, None]
    edges = np.linspace(mel(LOWEST), mel(HIGHEST), MELS + 2)
    low, middle, high = edges[:-2], edges[1:-1], edges[2:]
    filters = np.maximum(0, np.minimum((bins - low) / (middle - low), (high - bins) / (high - middle)))
    filters[0] = 0  # no constant part
    return filters


def draw(sound: np.ndarray, found: list[tuple[float, str, float]]) -> Image.Image:
    """The sound's outline, with a coloured band and a word for each that was spotted."""
    width, height = SIZE
    result = Image.new("RGB", SIZE, "white")
    pen, font = ImageDraw.Draw(result), ImageFont.load_default(20)
    pixels_per_second = width * RATE / len(sound)
    for place, (start, word, score) in enumerate(found):
        left, right = start * pixels_per_second, (start + 1) * pixels_per_second
        pen.rectangle((left, 0, right, height), fill=("#e8eaf6", "#fff3e0")[place % 2])
        pen.text((left + 6, 6), word, fill="#1a237e", font=font)
        pen.text((left + 6, 30), f"{score:.0%}", fill="#5c6bc0", font=ImageFont.load_default(14))
    middle, columns = height * 0.6, np.array_split(np.abs(sound), width)
    scale = 0.36 * height / max(float(np.abs(sound).max()), 1e-3)
    for x, column in enumerate(columns):
        tall = scale * float(column.max())
        pen.line((x, middle - tall, x, middle + tall), fill="#3f51b5")
    return result


if __name__ == "__main__":
    main()
