"""What a program costs, what quantizing would change, and two models side by side."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitdelegate
from jitdelegate.base.options import DelegateOptions
from jitdelegate.commands import analyze
from jitdelegate.commands.analysis.facts import Analysis, Quantizing
from jitdelegate.commands.analysis.survey import analyze as survey
from jitdelegate.ir.graph import Quant
from jitdelegate.tflite.write import ModelBuilder
from tests.api import partial_models, resource_models, small_models
from tests.commands.analysis import analyzed_models

FACTOR = 1.25
"""Between the estimated and the true size of weights after quantizing."""
TIMES = 1.5
"""Between the estimates for a quantized model, before and after it was quantized."""
OPTIONS: dict[str, Any] = {"serialization_dir": False, "target": "cpu"}


def surveyed(path: Path, content: bytes | None = None, **options: Any) -> Analysis:
    if content is not None:
        path.write_bytes(content)
    return survey(str(path), DelegateOptions(**OPTIONS | options))


def gain(analysis: Analysis, kind: str) -> Quantizing:
    (found,) = (each for each in analysis.main.quantizing if each.kind == kind)
    return found


@pytest.mark.parametrize(
    "content", [small_models.two_outputs(), small_models.two_signatures(), analyzed_models.in_partitions()]
)
def test_costs_are_those_of_the_entries_that_load_stores(content: bytes, tmp_path: Path) -> None:
    analysis, folder = surveyed(tmp_path / "m.tflite", content), tmp_path / "cache"
    with jitdelegate.load(str(tmp_path / "m.tflite"), target="cpu", serialization_dir=str(folder)) as model:
        model.prepare()
    stored = sorted(path.stat().st_size for path in folder.glob("*.jitd"))
    assert sorted(facts.costs.entry_bytes for facts in analysis.subgraphs) == stored
    for facts in analysis.subgraphs:
        assert facts.costs.code_bytes + facts.costs.weights_bytes < facts.costs.entry_bytes
        assert facts.costs.compile_seconds > 0
        assert facts.costs.run_seconds_estimate is not None and facts.costs.run_seconds_estimate > 0


def test_a_model_on_litert_costs_no_compilation_that_would_be_told(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(small_models.two_outputs())
    main = surveyed(tmp_path / "m.tflite", target="litert").main
    assert main.costs.run_seconds_estimate is None


def dense(weights: np.ndarray, scale: float = 0.0) -> bytes:
    """FULLY_CONNECTED with these weights; with a scale they are quantized."""
    model = ModelBuilder()
    value = model.input((8, weights.shape[1]), name="value")
    filters = model.constant(weights, quant=Quant((scale,), (0,)) if scale else None)
    options = {"asymmetric_quantize_inputs": False}
    model.output(model.op("FULLY_CONNECTED", [value, filters], (8, len(weights)), options=options))
    return model.finish()


def test_the_size_of_quantized_weights_is_foretold(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).integers(-127, 127, (256, 512), np.int8)
    before = surveyed(tmp_path / "before.tflite", dense(numbers.astype(np.float32)))
    after = surveyed(tmp_path / "after.tflite", dense(numbers, 0.5))
    found = gain(before, "dynamic")
    assert found.float_bytes == numbers.size * 4
    foretold = before.bytes - found.float_bytes + found.quantized_bytes_estimate
    assert after.bytes / FACTOR < foretold < after.bytes * FACTOR
    assert found.run_seconds_estimate is not None
    assert found.run_seconds_estimate == pytest.approx(after.main.costs.run_seconds_estimate, rel=TIMES - 1)
    assert after.main.quantizing == ()


@pytest.mark.parametrize(
    "content", [resource_models.ring(), resource_models.streaming(), small_models.two_signatures()]
)
def test_operators_without_outputs_have_estimates_too(content: bytes, tmp_path: Path) -> None:
    main = surveyed(tmp_path / "m.tflite", content).main
    assert main.costs.run_seconds_estimate is None or main.costs.run_seconds_estimate > 0


def test_small_weights_stay_floats_where_activations_do(tmp_path: Path) -> None:
    analysis = surveyed(tmp_path / "m.tflite", dense(np.ones((4, 8), np.float32)))
    assert [each.kind for each in analysis.main.quantizing] == ["integer"]


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("generated/unet_prelu_tconv_256.float32", "generated/unet_prelu_tconv_256.drq", "dynamic"),
        ("derived/mobilenet_v1_1.0_224_f32", "derived/mobilenet_v1_1.0_224_quant_joined", "integer"),
    ],
)
def test_quantizing_a_real_model_is_foretold(models: Path, before: str, after: str, kind: str) -> None:
    floats, quantized = (surveyed(models / f"{name}.tflite") for name in (before, after))
    found = gain(floats, kind)
    foretold = floats.bytes - found.float_bytes + found.quantized_bytes_estimate
    assert quantized.bytes / FACTOR < foretold < quantized.bytes * FACTOR
    true = quantized.main.costs.run_seconds_estimate
    assert true is not None and found.run_seconds_estimate is not None
    assert true / TIMES < found.run_seconds_estimate < true * TIMES


def test_two_models_are_shown_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, page = (str(tmp_path / name) for name in ("float.tflite", "int8.tflite", "page.html"))
    Path(first).write_bytes(small_models.two_outputs())
    Path(second).write_bytes(small_models.integers_and_floats("int8"))
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or True)
    assert analyze.main([first, second, "--compare", "--target=cpu", "--html", page, "--open"]) == 0
    told = capsys.readouterr().out
    head, *rows = (line.split("  ") for line in told.splitlines())
    assert [word.strip() for word in head if word] == ["float.tflite", "int8.tflite", "ratio"]
    names = [row[0].strip() for row in rows]
    assert {"file", "entries in the cache", "memory of activations", "a run (estimate)", "CONV_2D"} <= {*names}
    assert opened == [Path(page).resolve().as_uri()]
    assert "Side by side" in Path(page).read_text()
    assert "entries in the cache" in Path(page).read_text()
    with pytest.raises(SystemExit) as end:
        analyze.main([first, "--compare"])
    assert end.value.code == 2


def test_a_refused_model_is_compared_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = (str(tmp_path / name) for name in ("good.tflite", "bad.tflite"))
    Path(good).write_bytes(small_models.two_outputs())
    Path(bad).write_bytes(b"nonsense")
    assert analyze.main([good, bad, "--compare", "--target=cpu"]) == 1
    assert "refused" in capsys.readouterr().out


def test_a_page_without_a_browser_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda address: False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    model = tmp_path / "m.tflite"
    model.write_bytes(small_models.two_outputs())
    assert analyze.main([str(model), "--open", "--target=cpu"]) == 0
    (page,) = tmp_path.glob("jitdelegate-*.html")
    assert capsys.readouterr().err == f"no browser could be opened; the page is {str(page)!r}\n"
    assert page.read_text().startswith("<!DOCTYPE html>")


def test_costs_of_partitions_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, options = tmp_path / "m.tflite", tmp_path / "options.json"
    model.write_bytes(partial_models.alternating())
    options.write_text(json.dumps({"partitioning": "all", "only_ops": partial_models.ONLY}))
    assert analyze.main([str(model), "--target=cpu", f"--options={options}", "--json"]) == 0
    costs = json.loads(capsys.readouterr().out)["subgraphs"][0]["costs"]
    assert costs["run_seconds_estimate"] > 0 and costs["entry_bytes"] > 0


def test_weights_that_folding_makes_are_no_weights_of_the_file(tmp_path: Path) -> None:
    """The products' weights are halved, in an unrolled loop: new constants, after the file's tensors."""
    model = ModelBuilder()
    condition, body = model.subgraph("condition"), model.subgraph("body")
    value, start = model.input((1, 64), name="value"), model.constant(np.int32(0))
    results = [model.tensor((), "int32"), model.tensor((1, 64))]
    model.node("WHILE", [start, value], results, options={"cond_subgraph_index": 1, "body_subgraph_index": 2})
    model.output(results[1])
    counter, _ = condition.input((), "int32"), condition.input((1, 64))
    condition.output(condition.op("LESS", [counter, condition.constant(np.int32(2))], (), dtype="bool"))
    counter, value = body.input((), "int32"), body.input((1, 64))
    weights = body.op("MUL", [body.constant(np.ones((64, 64), np.float32)), body.constant(np.float32(0.5))], (64, 64))
    body.output(body.op("ADD", [counter, body.constant(np.int32(1))], (), dtype="int32"))
    body.output(body.op("FULLY_CONNECTED", [value, weights, None], (1, 64)))
    analysis = surveyed(tmp_path / "m.tflite", model.finish())
    assert not analysis.main.quantizing
