"""Quantized operators drawn at random answer bit for bit what LiteRT's default interpreter answers."""

from __future__ import annotations

import pytest

from scripts.one_op_models import MAKERS, OneOp, one_op_models
from scripts.quantized_inputs import hostile
from scripts.quantized_models import input_tensors, steps
from scripts.quantized_runs import compared, run_litert, run_ours

DECLINED = (
    "the filter 't0' in groups has the zero point",
    "of int16 with scales that are powers of two is not supported",
    "in another way",
    "rises so steeply",
)
"""Why some models are left to LiteRT."""
SEEDS = {"reference": 12, "cpu": 3}
"""Target -> models of each operator: the types take turns."""


@pytest.mark.parametrize("target", SEEDS)
@pytest.mark.parametrize("op", MAKERS)
def test_results_equal_litert_s_bit_for_bit(op: str, target: str) -> None:
    ran = [differing(model, target) for model in one_op_models([op], SEEDS[target])]
    assert not any(ran)
    assert any(each == "" for each in ran)


@pytest.mark.parametrize("op", ["BATCH_MATMUL", "DIV"])
def test_a_gpu_rounds_as_litert_too(op: str) -> None:
    assert not any(differing(model, "simulator") for model in one_op_models([op], 3))


def differing(model: OneOp, target: str, rounding: str = "litert") -> str | None:
    """Where the model's results differ, "" if nowhere, None where LiteRT refuses it or it is left to LiteRT."""
    inputs = list(hostile(input_tensors(model.content)))
    try:
        expected = run_litert(model.content, inputs, rounding)
    except RuntimeError:
        return None
    ran = run_ours(model.content, inputs, target, rounding)
    if ran.refused:
        ((_, reason),) = ran.refused
        assert any(words in reason for words in DECLINED), f"{model.what}: {reason}"
        return None
    found = compared(ran.outputs, expected, steps(model.content))
    return f"{model.what}: {found.differing} of {found.elements}, {found.example}" if found.differing else ""
