"""python -m jitdelegate.diff: what it finds, how it says so, and its exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jitdelegate.commands import diff
from jitdelegate.commands.measurement.difference import Difference, Tolerance
from jitdelegate.commands.measurement.entry import Interface
from jitdelegate.ops.call import Call
from jitdelegate.ops.pointwise import Pointwise, pointwise
from jitdelegate.tflite.write import ModelBuilder
from tests.api import partial_models, small_models

LINES = ("Num evaluation runs: ", "Reference run latency: avg=", "Test run latency: avg=", "OutputDiff[0]: avg_error=")


def branched() -> bytes:
    """f32[1,16] through two branches, which meet; an operator depends on no input, and a result is read by nobody."""
    model = ModelBuilder()
    x = model.input((1, 16), name="x")
    model.signature("serve", {"x": x}, {})
    three = model.op("NEG", [model.constant(np.full((1, 16), -3, np.float32))], (1, 16), name="three")
    left = model.op("TANH", [x], (1, 16), name="left")
    right = model.op("LOGISTIC", [x], (1, 16), name="right")
    model.op("ABS", [right], (1, 16), name="unread")
    wide = model.op("MUL", [left, three], (1, 16), name="wide")
    both = model.op("ADD", [right, wide], (1, 16), name="both")
    model.output(model.op("SUB", [both, x], (1, 16), name="rest"))
    return model.finish()


def write(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


def found(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    """Exit status and facts."""
    status = diff.main([*arguments, "--json"])
    return status, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("against", ["litert", "litert-builtin", "litert-reference", "reference"])
def test_the_same_model_is_the_same_on_every_side(
    against: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write(tmp_path / "m.tflite", small_models.convolution())
    assert diff.main([model, f"--against={against}", "--num_runs=3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[: len(start)] for line, start in zip(lines, LINES, strict=False)] == [*LINES]
    assert lines[0] == "Num evaluation runs: 3"
    assert "float32[1, 4, 4, 4]" in lines[-1] and "departs" not in lines[-1]


@pytest.mark.parametrize("name", ["left", "right", "wide", "both", "rest"])
def test_bisect_finds_the_operator_with_a_planted_error(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lowering(self: Pointwise, call: Call) -> Any:
        formula = self.activated(call.node.attrs)
        return pointwise(formula * 1.01 if call.output.name == name else formula, call)

    monkeypatch.setattr(Pointwise, "lowering", lowering)
    model = write(tmp_path / "m.tflite", branched())
    status, facts = found([model, "--bisect", "--num_runs=2"], capsys)
    assert status == 1
    assert (facts["culprit"]["tensor"], facts["culprit"]["alone"][:5]) == (name, "NRMSE")
    assert facts["culprit"]["nrmse"] == pytest.approx(0.01, rel=1e-3)
    assert diff.main([model, "--nrmse=0.5", "--bisect"]) == 0
    assert "no output departs" in capsys.readouterr().out


def test_models_run_on_litert_wholly_or_partly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = ModelBuilder()
    x = texts.input((2,), "string", name="x")
    texts.output(texts.op("ADD", [x, x], (2,), dtype="string"))
    assert diff.main([write(tmp_path / "m.tflite", texts.finish())]) == 2
    assert "Type STRING is unsupported by op Add" in capsys.readouterr().err
    options = tmp_path / "options.json"
    options.write_text(json.dumps({"partitioning": "all", "only_ops": partial_models.ONLY}))
    for content, target in ((small_models.uncompiled(), "litert"), (partial_models.alternating(), "cpu")):
        assert diff.main([write(tmp_path / "m.tflite", content), f"--options={options}", "--bisect"]) == 0
        assert f"jitdelegate ({target}" in capsys.readouterr().out


def test_signatures_and_open_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = write(tmp_path / "signatures.tflite", small_models.two_signatures())
    for key in ("double", "triple"):
        status, facts = found([model, f"--signature={key}", "--num_runs=1"], capsys)
        assert (status, facts["signature"]) == (0, key)
    model = write(tmp_path / "open.tflite", small_models.convolution(open_batch=True))
    status, facts = found([model, "--shape", "image=3,8,8,3", "--num_runs=1"], capsys)
    assert (status, facts["outputs"][0]["elements"]) == (0, 3 * 4 * 4 * 4)


def test_given_inputs_and_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from PIL import Image

    model = write(tmp_path / "m.tflite", small_models.convolution())
    image = np.random.default_rng(1).uniform(size=(1, 8, 8, 3)).astype(np.float32)
    np.save(tmp_path / "image.npy", image)
    np.savez(tmp_path / "all.npz", image=image)
    (tmp_path / "image.raw").write_bytes(image.tobytes())
    Image.new("L", (20, 10), 128).save(tmp_path / "grey.png")
    for given in ("--input=image.npy", "--input=image=image.raw", "--input=all.npz", "--picture=grey.png"):
        flag, _, file = given.rpartition("=")
        assert diff.main([model, f"{flag}={tmp_path / file}"]) == 0, given
        assert "Num evaluation runs: 1\n" in capsys.readouterr().out
    assert diff.main([model, f"--input={tmp_path / 'grey.png'}"]) == 2
    assert "bytes, but input 'image' has 768" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--signature=no"], "no signature"),
        (["--shape", "no=1"], "no input"),
        (["--target=cuda"], "driver"),
        (["--seed"], "seed"),
    ],
)
def test_trouble_is_status_2(
    arguments: list[str], word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write(tmp_path / "m.tflite", small_models.convolution())
    try:
        status = diff.main([model, *arguments])
    except SystemExit as end:
        status = end.code  # type: ignore[assignment]
    assert status == 2
    assert word in capsys.readouterr().err


def test_differences_count_last_bits_nans_and_infinities() -> None:
    from jitdelegate.ir.graph import Quant

    def difference(dtype: str, a: list[float], b: list[float], quant: Quant | None = None) -> Difference:
        known = Difference(Interface("y", "y", 0, (len(a),), (), dtype, quant))
        known.add(np.array(a, dtype), np.array(b, dtype))
        return known

    usual, inf, nan = Tolerance(), np.inf, np.nan
    bytes_ = difference("uint8", [7, 255], [9, 255], Quant((0.5,), (0,)))
    assert (bytes_.steps, bytes_.mean, bytes_.departure(usual)) == (2, 1, "LSB 2 > 1")
    equal = difference("float32", [inf, nan, 1], [inf, nan, 1])
    assert (equal.departure(usual), equal.differing, equal.maximum) == ("", 0, 0)
    assert difference("float32", [nan, 1], [1, 1]).departure(usual) == "1 numbers are NaN, expected 0"
    assert difference("float32", [inf, 1], [1, 1]).departure(usual) == "NRMSE inf > 0.0001"
    assert difference("int32", [3, 4], [3, 5]).departure(usual) == "differing 0.5 > 0"
    floats = difference("float32", [3, 4], [3, 5])
    assert (floats.maximum, floats.mean, floats.nrmse) == (1, 0.5, pytest.approx((0.5 / 17) ** 0.5))
