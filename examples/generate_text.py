"""Continues texts with a decoder and its KV cache, and draws how sure it was of each token.

    python examples/generate_text.py model.tflite --tokenizer tokenizer.json --say ann "Once upon a time" \
        --say ben "Dear diary," --say ann "And then" --temperature 0.8 --output tokens.png

Every name after --say is a conversation with a cache of its own, and every --say of this name continues it. The model
has the signatures and names of LiteRT's converters: "prefill_N" and "decode" with tokens, input_pos and kv_cache_*.
https://huggingface.co/litert-community has such models. Its tokenizer.json is read by Hugging Face's `tokenizers`
(pip install tokenizers); without one, tokens are the bytes of the text, for models that were trained so. Models that
follow instructions expect the turns of a chat in a format of their own, as a part of the text.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import jitdelegate

PREFIX = "prefill_"
UNFINISHED = "\N{REPLACEMENT CHARACTER}"
"""At the end of a text whose last character has further bytes in the next token."""
COLOURS = 128
BAR, HEIGHT, MARGIN = 36, 180, 40
"""Of the picture, in pixels: the width of a token, the height of the highest bar, and the space around."""

Sampler = Callable[[np.ndarray], tuple[int, float]]
"""Gives the next token for f32[vocabulary] logits, and its probability among those that could be chosen."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokenizer", type=Path, help="a Hugging Face tokenizer.json; without it, tokens are bytes")
    parser.add_argument("--say", nargs=2, action="append", metavar=("NAME", "TEXT"), help="continue a conversation")
    parser.add_argument("--tokens", type=int, default=16, help="most tokens of an answer (default: 16)")
    parser.add_argument("--stop", type=int, nargs="*", default=[], metavar="TOKEN", help="tokens that end an answer")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 takes the most probable token (default)")
    parser.add_argument("--top-k", type=int, default=0, help="choose among so many tokens; 0 is all (default)")
    parser.add_argument("--top-p", type=float, default=1.0, help="choose among the most probable with this sum")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("tokens.png"))
    arguments = parser.parse_args()

    tokenizer = read_tokenizer(arguments.tokenizer)
    dice = np.random.default_rng(arguments.seed)
    chosen: list[tuple[int, float]] = []

    def sampler(logits: np.ndarray) -> tuple[int, float]:
        chosen.append(sample(logits, dice, arguments.temperature, arguments.top_k, arguments.top_p))
        return chosen[-1]

    conversations: dict[str, Conversation] = {}
    with jitdelegate.load(arguments.model) as model:
        model.prepare()  # compiles all signatures now: else the first run of each waits for the compiler
        for name, text in arguments.say or [("ann", "Once upon a time")]:
            if name not in conversations:
                conversations[name] = Conversation(model, tokenizer, sampler)
            before, start = len(chosen), time.perf_counter()
            print(f"{name}: {text}", end="", flush=True)
            for piece in conversations[name].say(text, arguments.tokens, arguments.stop):
                print(piece, end="", flush=True)
            made, seconds = chosen[before:], time.perf_counter() - start
            print("\ntokens:", *(token for token, _ in made), f"({len(made) / seconds:.0f} a second)")
    draw(chosen, tokenizer).quantize(COLOURS).save(arguments.output, optimize=True)


class Conversation:
    """Continues texts; its cache has a row for each token so far."""

    def __init__(self, model: jitdelegate.Model, tokenizer: Any, sampler: Sampler) -> None:
        self._session = model.session(state="kv_cache_*")
        self._tokenizer = tokenizer
        self._sampler = sampler
        self._tokens: list[int] = []
        self._rows = 0
        sizes = [int(key.removeprefix(PREFIX)) for key in model.signatures if key.startswith(PREFIX)]
        self._sizes = sorted(sizes)

    def say(self, text: str, count: int, stop: Sequence[int] = ()) -> Iterator[str]:
        """The answer to a text in pieces, as soon as each is there: at most `count` tokens, fewer at one of `stop` and
        where the cache is full."""
        self._tokens += self._tokenizer.encode(text)
        answer: list[int] = []
        told = ""
        try:
            self._prefill(self._tokens[:-1])
            while len(answer) < count:
                token, _ = self._sampler(self._decode(self._tokens[-1], len(self._tokens) - 1))
                self._tokens.append(token)
                if token in stop:
                    break
                answer.append(token)
                found = self._tokenizer.decode(answer)  # of all: a character may have bytes of several tokens
                if not found.endswith(UNFINISHED):
                    yield found[len(told) :]
                    told = found
        except jitdelegate.TensorError as error:  # the session refuses to write beyond the last row
            yield f"\n[{error}]"

    def _prefill(self, tokens: list[int]) -> None:
        """Write the rows of all tokens that have none yet, many at a time."""
        while self._rows < len(tokens):
            left = len(tokens) - self._rows
            size = next((size for size in self._sizes if size >= left), self._sizes[-1])
            # the last piece begins earlier, over rows with the same values: filled up, it might not fit into the cache
            first = max(0, min(self._rows, len(tokens) - size))
            piece = np.zeros((1, size), np.int32)
            piece[0, : len(tokens) - first] = tokens[first : first + size]
            self._session.run(f"{PREFIX}{size}", tokens=piece, input_pos=np.arange(first, first + size))
            self._rows = min(first + size, len(tokens))

    def _decode(self, token: int, position: int) -> np.ndarray:
        """f32[vocabulary]: logits of the token after this one."""
        found = self._session.run("decode", tokens=np.array([[token]]), input_pos=np.array([position]))
        self._rows = position + 1
        return np.asarray(found["logits"]).reshape(-1)


def sample(logits: np.ndarray, dice: np.random.Generator, temperature: float, top_k: int, top_p: float) -> Any:
    """(token, probability): one of the `top_k` most probable tokens, or of the fewest whose probabilities add up to
    `top_p`, by chance."""
    if temperature <= 0:
        temperature, top_k = 1.0, 1
    order = np.argsort(-logits, kind="stable")[: top_k or None]
    every = np.exp((logits - logits.max()) / temperature)
    probabilities = every[order] / every.sum()
    before = np.cumsum(probabilities) - probabilities
    kept = probabilities[before < max(top_p, np.finfo(np.float32).tiny)]
    choice = dice.choice(len(kept), p=kept.astype(np.float64) / kept.sum(dtype=np.float64))
    return int(order[choice]), float(probabilities[choice])


class Bytes:
    """A tokenizer whose tokens are the bytes of a text in UTF-8."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        """The text; tokens that are no bytes as their numbers."""
        parts = [bytes([token]) if token < 256 else f"<{token}>".encode() for token in tokens]
        return b"".join(parts).decode(errors="replace")


class HuggingFace:
    """A tokenizer of the package `tokenizers`."""

    def __init__(self, path: Path) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(path))

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=False))


def read_tokenizer(path: Path | None) -> Bytes | HuggingFace:
    return Bytes() if path is None else HuggingFace(path)


def draw(found: list[tuple[int, float]], tokenizer: Bytes | HuggingFace) -> Image.Image:
    """A bar for each token, as high as it was probable, over its text."""
    highest = max((probability for _, probability in found), default=1.0)
    result = Image.new("RGB", (BAR * len(found) + 2 * MARGIN, HEIGHT + 2 * MARGIN), "white")
    pen, font = ImageDraw.Draw(result), ImageFont.load_default(12)
    pen.text(
        (MARGIN, 10), f"probability of each token, up to {highest:.1%}", fill="black", font=ImageFont.load_default(16)
    )
    bottom = HEIGHT + MARGIN
    for number, (token, probability) in enumerate(found):
        left = MARGIN + number * BAR
        pen.rectangle((left, bottom - HEIGHT * probability / highest, left + BAR - 6, bottom), fill="#3f51b5")
        text = "".join(each for each in tokenizer.decode([token]) if each.isprintable()).replace(UNFINISHED, "")
        pen.text((left + (BAR - 6) / 2, bottom + 6), text.strip() or str(token), fill="black", font=font, anchor="ma")
    return result


if __name__ == "__main__":
    main()
