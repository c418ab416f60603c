"""A sample of random quantized graphs; and that the fuzz finds what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from jitdelegate.ops import xnnpack
from jitdelegate.ops.rounding import AWAY, EVEN, RULES, Rule
from jitdelegate.tflite.read import read
from scripts import fuzz_quantized
from scripts.one_op_models import MAKERS
from scripts.quantized_graphs import quantized_graph

SAMPLE, SEED = 10, 500_000


def test_a_sample_of_graphs_is_litert_s_bit_for_bit(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz_quantized.main(["--graphs", str(SAMPLE), "--seed", str(SEED)]) == 0
    counts = dict(reversed(line.split(maxsplit=1)) for line in capsys.readouterr().out.splitlines())
    assert int(counts["ok"]) >= SAMPLE // 2


def test_every_operator_is_drawn() -> None:
    drawn = {node.op for seed in range(450) for node in read(quantized_graph(seed)[0]).graphs[0].nodes}
    assert drawn == set(MAKERS)


def test_a_wrong_rounding_is_found_shrunk_and_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = {**RULES, ("ADD", "int8"): Rule(AWAY, AWAY, AWAY), ("ADD", "uint8"): Rule(AWAY, AWAY, AWAY)}
    monkeypatch.setattr("jitdelegate.ops.rounding.RULES", rules)
    status = fuzz_quantized.main(["--graphs", "3", "--ops", "ADD", "TILE", "--into", str(tmp_path)])
    assert status == 1
    assert "wrong" in capsys.readouterr().out
    stored = [read(file.read_bytes()).graphs[0] for file in tmp_path.iterdir()]
    assert {tuple(node.op for node in graph.nodes) for graph in stored} == {("ADD",)}


def test_a_node_that_litert_gives_to_other_kernels_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_quantized, "takes", lambda call: not xnnpack.takes(call))
    content, _ = quantized_graph(1, ["MUL"])
    assert "unlike takes()" in fuzz_quantized.check(content, 1)
    assert RULES["MUL", "int8"].xnnpack == EVEN
