"""Which signatures of a model the decoder benchmark takes for which."""

from __future__ import annotations

import numpy as np
import pytest

from scripts.bench_decoders import Step, steps

CACHES = {"kv_cache_k_0": ((1, 8, 2, 4), "float32"), "kv_cache_v_0": ((1, 8, 2, 4), "float32")}
LOGITS = {"logits": ((1, 1, 16), "float32")}


def reader(count: int, **more: tuple[tuple[int, ...], str]) -> dict[str, tuple[tuple[int, ...], str]]:
    """The inputs of a signature that reads `count` tokens."""
    return {**CACHES, "tokens": ((1, count), "int32"), "input_pos": ((count,), "int32"), **more}


def test_the_longest_prefill_and_the_decoder_are_found() -> None:
    signatures = {
        "prefill_2": (reader(2), CACHES),
        "decode": (reader(1), {**CACHES, **LOGITS}),
        "prefill_4": (reader(4), CACHES),
        "encode": ({"x": ((1, 4), "float32")}, LOGITS),
    }
    prefill, decode = steps(signatures)
    assert (prefill.key, prefill.count, prefill.logits) == ("prefill_4", 4, "")
    assert (decode.key, decode.logits, decode.numbers, dict(decode.caches)) == ("decode", "logits", 16, CACHES)
    with pytest.raises(ValueError, match="no signature takes one token"):
        steps({"prefill_4": signatures["prefill_4"]})


def test_a_mask_lets_tokens_see_themselves_and_what_came_before() -> None:
    step = Step.of("prefill", reader(2, mask=((1, 1, 2, 8), "float32")), CACHES)
    assert step is not None
    given = step.inputs([5, 6], 3)
    np.testing.assert_array_equal(given["tokens"], [[5, 6]])
    np.testing.assert_array_equal(given["input_pos"], [3, 4])
    np.testing.assert_array_equal(given["mask"][0, 0] == 0, np.tri(2, 8, 3, dtype=bool))
