"""Quantized operators compiled for a machine with another CPU round as LiteRT does there."""

from __future__ import annotations

import json
from pathlib import Path
from zlib import crc32

import pytest

from jitdelegate.base.targets import AARCH64, X86_64
from jitdelegate.ops.rounding import ARM, RULES
from jitdelegate.runtime.cache.key import machine_with
from jitdelegate.targets.cpu import target as cpu
from jitdelegate.targets.reference import target as reference
from scripts.litert_answers import digest
from scripts.one_op_models import one_op_model
from scripts.quantized_inputs import hostile
from scripts.quantized_models import input_tensors
from scripts.quantized_runs import run_ours

ANSWERS: dict[str, dict[str, tuple[str, str]]] = json.loads(
    Path(__file__).with_name("litert_on_aarch64.json").read_text(encoding="utf-8")
)


def ours(op: str, seed: int, target: str = "reference") -> str:
    """The digest of our answers."""
    content = one_op_model(op, seed).content
    ran = run_ours(content, list(hostile(input_tensors(content))), target)
    assert not ran.refused
    return digest(ran.outputs)


@pytest.fixture
def compiled_for(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of programs name Linux on this CPU."""
    for module in (cpu, reference):
        monkeypatch.setattr(module, "this_machine", lambda: machine_with(request.param))


@pytest.mark.parametrize("compiled_for", [AARCH64], indirect=True)
@pytest.mark.parametrize("op", ANSWERS)
def test_results_are_those_of_litert_on_aarch64(op: str, compiled_for: None) -> None:
    for seed, (model, answers) in ANSWERS[op].items():
        made = crc32(one_op_model(op, int(seed)).content)
        assert f"{made:08x}" == model, "the models changed: run scripts/litert_answers.py on aarch64"
        assert ours(op, int(seed)) == answers, f"{op}, seed {seed}"


@pytest.mark.parametrize("compiled_for", [X86_64], indirect=True)
@pytest.mark.parametrize("op", ANSWERS)
def test_they_are_others_on_x86_64(op: str, compiled_for: None) -> None:
    assert all(ours(op, int(seed)) != answers for seed, (_, answers) in ANSWERS[op].items())


@pytest.mark.parametrize("compiled_for", [AARCH64], indirect=True)
@pytest.mark.parametrize("op", ["SOFTMAX", "MUL", "CONV_2D"])
def test_compiled_code_follows_the_cpu_of_its_key(op: str, compiled_for: None) -> None:
    seed, (_, answers) = next(iter(ANSWERS[op].items()))
    assert ours(op, int(seed), "cpu") == answers


def test_every_rule_for_aarch64_differs_from_that_for_x86_64() -> None:
    assert all(RULES[key] != rule for key, rule in ARM.items())
