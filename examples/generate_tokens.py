"""Generates tokens with a decoder and its KV cache, and draws how sure it was of each.

    python examples/generate_tokens.py model.tflite --prompt 1 17 42 --tokens 24 --output tokens.png

The model has the signatures and names of LiteRT's converters: "prefill_N" and "decode" with tokens, input_pos and
kv_cache_*. https://huggingface.co/litert-community has such models, and litert-torch's generative examples make them.
Tokens are numbers; the model's tokenizer turns texts into them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import jitdelegate

PREFIX = "prefill_"
COLOURS = 128
BAR, HEIGHT, MARGIN = 36, 180, 40
"""Of the result, in pixels: the width of a token, the height of the highest bar, and the space around."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--prompt", type=int, nargs="+", default=[1, 2, 3], metavar="TOKEN")
    parser.add_argument("--tokens", type=int, default=16, help="how many to generate (default: 16)")
    parser.add_argument("--output", type=Path, default=Path("tokens.png"))
    arguments = parser.parse_args()

    with jitdelegate.load(arguments.model) as model:
        model.prepare()  # all signatures, so that no token waits for a compiler
        start = time.perf_counter()
        found = list(generate(model, arguments.prompt, arguments.tokens))
        seconds = time.perf_counter() - start
    print("tokens:", *(token for token, _ in found))
    print(f"{len(found) / seconds:.0f} tokens a second")
    draw(found).quantize(COLOURS).save(arguments.output, optimize=True)


def generate(model: jitdelegate.Model, prompt: list[int], count: int) -> Iterator[tuple[int, float]]:
    """(token, probability) of the most probable token after the prompt, and after each that was generated."""
    session = model.session(state="kv_cache_*")
    prefill, size = longest_prefill(model)
    before = prompt[:-1]
    for start in range(0, len(before), size):  # all but the last token, in pieces of the signature's size
        # the last piece begins earlier, over rows with the same values: filled up, it might not fit into the cache
        first = max(0, min(start, len(before) - size))
        piece = before[first : first + size]
        tokens = np.zeros((1, size), np.int32)
        tokens[0, : len(piece)] = piece
        session.run(prefill, tokens=tokens, input_pos=np.arange(first, first + size, dtype=np.int32))
    token = prompt[-1]
    for position in range(len(prompt) - 1, len(prompt) - 1 + count):
        inputs = {"tokens": np.array([[token]], np.int32), "input_pos": np.array([position], np.int32)}
        logits = np.asarray(session.run("decode", inputs)["logits"]).reshape(-1)
        token = int(logits.argmax())
        yield token, float(1 / np.exp(logits - logits[token]).sum())


def longest_prefill(model: jitdelegate.Model) -> tuple[str, int]:
    """The signature that takes most tokens of a prompt at once, and how many."""
    sizes = {key: int(key.removeprefix(PREFIX)) for key in model.signatures if key.startswith(PREFIX)}
    return max(sizes.items(), key=lambda item: item[1])


def draw(found: list[tuple[int, float]]) -> Image.Image:
    """A bar for each token, as high as it was probable, over its number."""
    highest = max((probability for _, probability in found), default=1.0)
    result = Image.new("RGB", (BAR * len(found) + 2 * MARGIN, HEIGHT + 2 * MARGIN), "white")
    pen, font = ImageDraw.Draw(result), ImageFont.load_default(12)
    pen.text(
        (MARGIN, 10), f"probability of each token, up to {highest:.1%}", fill="black", font=ImageFont.load_default(16)
    )
    bottom = HEIGHT + MARGIN
    for place, (token, probability) in enumerate(found):
        left = MARGIN + place * BAR
        pen.rectangle((left, bottom - HEIGHT * probability / highest, left + BAR - 6, bottom), fill="#3f51b5")
        pen.text((left + (BAR - 6) / 2, bottom + 6), str(token), fill="black", font=font, anchor="ma")
    return result


if __name__ == "__main__":
    main()
