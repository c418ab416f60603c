"""The example that generates text: its sampler, its tokenizers, and conversations with caches of their own."""

from __future__ import annotations

import runpy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitdelegate
from jitdelegate.commands import guide_models as models
from tests.docs.blocks import ROOT

LOGITS = np.log(np.array([0.1, 0.4, 0.05, 0.3, 0.15], np.float32))


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "examples" / "generate_text.py"))


@pytest.fixture(scope="module")
def model() -> Iterator[jitdelegate.Model]:
    with jitdelegate.load(models.decoder(), serialization_dir=False) as loaded:
        yield loaded


def most_probable(logits: np.ndarray) -> tuple[int, float]:
    return int(logits.argmax()), 1.0


def by_decoding(model: jitdelegate.Model, tokens: list[int], count: int) -> list[int]:
    """The tokens that follow, with one run of "decode" for every token."""
    session, made, known = model.session("kv_cache_*"), list[int](), [*tokens]
    while len(made) < count:
        for position in range(len(known) - 1 if made else 0, len(known)):
            inputs = {"tokens": [[known[position]]], "input_pos": [position]}
            logits = np.asarray(session.run("decode", inputs)["logits"])
        made.append(int(logits.argmax()))
        known.append(made[-1])
    return made


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "possible"),
    [
        (0.0, 0, 1.0, {1}),
        (1.0, 0, 1.0, {0, 1, 2, 3, 4}),
        (1.0, 2, 1.0, {1, 3}),
        (1.0, 0, 0.69, {1, 3}),
        (1.0, 0, 0.71, {1, 3, 4}),
        (1.0, 2, 0.1, {1}),
        (1.0, 0, 0.0, {1}),
    ],
)
def test_a_token_is_one_of_the_most_probable_ones(
    example: dict[str, Any], temperature: float, top_k: int, top_p: float, possible: set[int]
) -> None:
    dice = np.random.default_rng(0)
    found = [example["sample"](LOGITS, dice, temperature, top_k, top_p) for _ in range(400)]
    assert {token for token, _ in found} == possible
    assert all(probability == pytest.approx(float(np.exp(LOGITS[token])), rel=1e-5) for token, probability in found)


def test_a_higher_temperature_makes_rare_tokens_more_frequent(example: dict[str, Any]) -> None:
    counts = []
    for temperature in (0.5, 1.0, 4.0):
        dice = np.random.default_rng(0)
        found = Counter(example["sample"](LOGITS, dice, temperature, 0, 1.0)[0] for _ in range(2000))
        counts.append(found[2])
    assert counts[0] < counts[1] < counts[2] and counts[1] == pytest.approx(100, abs=40)


@pytest.mark.parametrize("text", ["a", "1234567", "12345678", "123456789", "a prompt of 21 tokens"])
def test_prompts_of_any_length_give_what_decoding_alone_gives(
    example: dict[str, Any], model: jitdelegate.Model, text: str
) -> None:
    conversation = example["Conversation"](model, example["Bytes"](), most_probable)
    pieces = [*conversation.say(text, 5)]
    assert "".join(pieces) == example["Bytes"]().decode(by_decoding(model, [*text.encode()], 5)).rstrip("\ufffd")


def test_a_conversation_goes_on_where_it_was_whatever_others_say(
    example: dict[str, Any], model: jitdelegate.Model
) -> None:
    ann, ben = (example["Conversation"](model, example["Bytes"](), most_probable) for _ in range(2))
    first = [*b"first "]
    first += by_decoding(model, first, 4)
    [*ann.say("first ", 4)]
    [*ben.say("something else", 6)]
    [*ann.say("second", 4)]
    expected = [*first, *b"second"]
    assert ann._tokens == expected + by_decoding(model, expected, 4)


def test_an_answer_comes_piece_by_piece_and_ends_at_a_stop_token(
    example: dict[str, Any], model: jitdelegate.Model
) -> None:
    chosen = iter([*"é!".encode(), 7, 65])
    conversation = example["Conversation"](model, example["Bytes"](), lambda logits: (next(chosen), 1.0))
    answer = conversation.say("x", 9, stop=(7,))
    assert next(answer) == "é"  # nothing for its first byte
    assert next(chosen) == ord("!")  # the rest was not computed
    assert [*answer] == [] and conversation._tokens[-1] == 7


def test_a_full_cache_ends_an_answer_with_the_reason(example: dict[str, Any], model: jitdelegate.Model) -> None:
    conversation = example["Conversation"](model, example["Bytes"](), lambda logits: (65, 1.0))
    pieces = [*conversation.say("x" * 20, 40)]
    assert pieces[:-1] == ["A"] * (models.CONTEXT - 19) and "beyond the rows of 'kv_cache_k_0'" in pieces[-1]


def test_a_tokenizer_of_hugging_face_is_read_from_its_file(example: dict[str, Any], tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"once": 0, "upon": 1}, unk_token="once"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "tokenizer.json"))
    read = example["read_tokenizer"](tmp_path / "tokenizer.json")
    assert read.encode("upon once") == [1, 0] and read.decode([1, 0]) == "upon once"
