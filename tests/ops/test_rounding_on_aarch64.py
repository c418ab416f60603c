"""Quantized operators compiled for a machine with another CPU round as LiteRT does there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pytest

from jitdelegate import passes
from jitdelegate.base.targets import AARCH64, X86_64
from jitdelegate.ir.graph import QuantizedOptions
from jitdelegate.ops.rounding import ARM, RULES
from jitdelegate.passes.specialize_subgraph import specialize_subgraph
from jitdelegate.tflite.read import read
from scripts.litert_answers import digest, ours
from scripts.one_op_models import one_op_model
from scripts.quantized_inputs import hostile
from scripts.quantized_models import input_tensors

ANSWERS: dict[str, dict[str, tuple[str, str]]] = json.loads(
    Path(__file__).with_name("litert_on_aarch64.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("op", ANSWERS)
def test_results_are_those_of_litert_on_aarch64_and_others_on_x86_64(op: str) -> None:
    assert ANSWERS[op]
    for seed, (model, answers) in ANSWERS[op].items():
        content = one_op_model(op, int(seed)).content
        assert f"{crc32(content):08x}" == model, "the models changed: run scripts/litert_answers.py on aarch64"
        assert ours(content, AARCH64) == answers, f"{op}, seed {seed}"
        assert ours(content, X86_64) not in ("", answers)


@pytest.mark.parametrize("op", ["SOFTMAX", "MUL", "CONV_2D"])
def test_compiled_code_follows_the_cpu_of_its_key(op: str) -> None:
    seed, (_, answers) = next(iter(ANSWERS[op].items()))
    assert ours(one_op_model(op, int(seed)).content, AARCH64, "cpu") == answers


@pytest.mark.parametrize("op", ["SOFTMAX", "MUL"])
def test_a_gpu_beside_such_a_cpu_rounds_as_litert_there(op: str) -> None:
    pytest.importorskip("numba.cuda", reason="needs numba-cuda, the extra 'cuda'")
    from tests.targets.cuda_execute import run

    seed, (_, answers) = next(iter(ANSWERS[op].items()))
    content = one_op_model(op, int(seed)).content
    graph = replace(specialize_subgraph(read(content)).graphs[0], quantized=QuantizedOptions(cpu=AARCH64))
    lowered = passes.run(passes.run(graph, passes=passes.FOLD), passes=passes.REWRITE)
    assert digest([run(lowered, each) for each in hostile(input_tensors(content))]) == answers


def test_every_rule_for_aarch64_differs_from_that_for_x86_64() -> None:
    assert all(RULES[key] != rule for key, rule in ARM.items())
