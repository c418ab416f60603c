"""Signatures of several subgraphs: each is a program of its own, resized by every call as LiteRT's runner does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT

import jitdelegate
from jitdelegate.commands import warm
from jitdelegate.engine.executable import Executable
from jitdelegate.errors import DeviceError, ModelError, TensorError
from jitdelegate.tflite.write import ModelBuilder
from tests.api import cached_models, small_models
from tests.api.test_interpreter import assert_same_details, same

TWO = small_models.two_signatures()


def value(batch: int) -> np.ndarray:
    return np.arange(2 * batch, dtype=np.float32).reshape(batch, 2)


def open_both(content: bytes, cache: Path) -> tuple[jitdelegate.Interpreter, Any]:
    delegate = jitdelegate.GpuDelegate(serialization_dir=cache)
    ours = jitdelegate.Interpreter(model_content=content, experimental_delegates=[delegate])
    return ours, LiteRT(model_content=content)


def forbid_litert(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **named: Any) -> None:
        raise AssertionError("LiteRT was opened")

    monkeypatch.setattr("jitdelegate.runtime.fallback.Fallback.__init__", refuse)


def test_every_signature_runs_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_litert(monkeypatch)
    ours, theirs = open_both(TWO, tmp_path)
    for key in ("double", "triple"):
        mine, other = ours.get_signature_runner(key), theirs.get_signature_runner(key)
        for batch in (1, 3, 2, 1):
            found, expected = mine(x=value(batch)), other(x=value(batch))
            assert list(found) == list(expected)
            np.testing.assert_array_equal(found["y"], expected["y"])
    assert ours.report().target == "cpu"


@pytest.mark.parametrize("key, factor", [("double", 2), ("triple", 3)])
def test_a_call_like_the_one_before_prepares_nothing(
    key: str, factor: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interpreter, _ = open_both(TWO, tmp_path)
    run = interpreter.get_signature_runner(key)
    run(x=value(3))
    prepared: list[object] = []
    ready = interpreter._ready
    monkeypatch.setattr(interpreter, "_ready", lambda *given: (prepared.append(given), ready(*given))[1])
    for number in range(3):
        assert run(x=value(3) + number)["y"].tolist() == (factor * (value(3) + number)).tolist()
    assert not prepared
    assert run(x=value(2))["y"].tolist() == (factor * value(2)).tolist() and len(prepared) == 1
    with pytest.raises(ValueError, match="FLOAT64"):
        run(x=value(2).astype(np.float64))


def test_a_model_looks_a_signature_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, asked = jitdelegate.load(TWO, target="cpu", serialization_dir=tmp_path), []
    real = Executable.answers
    monkeypatch.setattr(Executable, "answers", lambda *given: (asked.append(given[1].key), real(*given))[1])
    for key in ("double", "triple", "triple", "double"):
        model.run({"x": value(1)}, key)
    assert asked == ["double", "triple"]


def test_details_of_every_signature_equal_litert_s(tmp_path: Path) -> None:
    pair = open_both(TWO, tmp_path)
    assert_same_details(*pair)
    for interpreter in pair:
        interpreter.allocate_tensors()
        for key in ("double", "triple"):
            interpreter.get_signature_runner(key)(x=value(3))
    mine, other = (interpreter.get_signature_runner("triple") for interpreter in pair)
    assert same(mine.get_input_details(), other.get_input_details())
    assert same(mine.get_output_details(), other.get_output_details())
    assert same(pair[0].get_input_details(), pair[1].get_input_details())


def test_subgraphs_keep_their_own_tensors(tmp_path: Path) -> None:
    pair = open_both(TWO, tmp_path)
    for interpreter in pair:
        interpreter.get_signature_runner("triple")(x=value(2))
        interpreter.get_signature_runner("double")(x=value(3))
    for index, subgraph in ((0, 0), (2, 0), (0, 1), (2, 1)):
        found, expected = (interpreter.get_tensor(index, subgraph) for interpreter in pair)
        np.testing.assert_array_equal(found, expected)


def test_the_first_subgraph_s_signature_shares_the_interpreter_s_tensors(tmp_path: Path) -> None:
    for interpreter in open_both(TWO, tmp_path):
        interpreter.get_signature_runner("double")(x=value(3))
        np.testing.assert_array_equal(interpreter.get_tensor(0), value(3))
        interpreter.invoke()
        np.testing.assert_array_equal(interpreter.get_tensor(2), 2 * value(3))


def test_the_second_start_finds_every_program(tmp_path: Path) -> None:
    for outcome in ("miss", "hit"):
        ours, _ = open_both(TWO, tmp_path)
        ours.get_signature_runner("triple")(x=value(4))
        assert ours.report().cache.outcome == outcome
        assert ours.report().notes[-1].startswith(f"subgraph 1, inputs of [4, 2]: cpu, cache {outcome}. ")
        assert [(one.number, one.outcome) for one in ours.report().subgraphs] == [(1, outcome)]
    assert len([*tmp_path.glob("*.jitd")]) == 3


@pytest.mark.parametrize("compiled", [0, 1])
def test_a_subgraph_that_is_not_compiled_leaves_the_other_compiled(compiled: int, tmp_path: Path) -> None:
    model = ModelBuilder()
    for place, graph in enumerate((model, model.subgraph("second"))):
        given = graph.input((1, 2), name=f"value {place}", shape_signature=(-1, 2))
        op, options = ("NEG", {}) if place == compiled else ("FAKE_QUANT", {"min": 0.0, "max": 6.0, "num_bits": 8})
        result = graph.op(op, [given], (1, 2), name=f"result {place}", options=options)
        graph.output(result)
        model.signature(op, {"x": given}, {"y": result}, place)
    ours, theirs = open_both(model.finish(), tmp_path)
    for batch in (1, 3):
        for key in ("NEG", "FAKE_QUANT"):
            found, expected = (one.get_signature_runner(key)(x=value(batch))["y"] for one in (ours, theirs))
            np.testing.assert_array_equal(found, expected)
    assert ours.report().target == ("litert" if compiled else "cpu")
    assert any("inputs of [3, 2]: cpu, cache miss." in note for note in ours.report().notes)


def test_where_litert_is_asked_for_every_subgraph_runs_there(tmp_path: Path) -> None:
    delegate = jitdelegate.GpuDelegate(target="litert", serialization_dir=tmp_path)
    ours = jitdelegate.Interpreter(model_content=TWO, experimental_delegates=[delegate])
    np.testing.assert_array_equal(ours.get_signature_runner("triple")(x=value(2))["y"], 3 * value(2))
    assert len([*tmp_path.glob("*.jitd")]) == 1


def test_what_litert_refuses_is_refused(tmp_path: Path) -> None:
    for interpreter in open_both(TWO, tmp_path):
        runner = interpreter.get_signature_runner("triple")
        with pytest.raises(ValueError, match="Cannot set tensor"):
            runner(x=value(2).astype(np.int32))
        with pytest.raises(ValueError, match="Invalid number of inputs"):
            runner()
        with pytest.raises(RuntimeError):
            runner(x=np.ones((2, 3), np.float32))
        np.testing.assert_array_equal(runner(x=value(2))["y"], 3 * value(2))


@pytest.mark.parametrize("target", ["cpu", "litert"])
def test_a_loaded_model_runs_signatures_by_key(target: str, tmp_path: Path) -> None:
    model = jitdelegate.load(TWO, target=target, serialization_dir=tmp_path)
    assert list(model.signatures) == ["double", "triple"]
    assert model.signatures["triple"] == {"inputs": ["x"], "outputs": ["y"]}
    for batch in (1, 3, 1):
        for key, factor in (("double", 2), ("triple", 3)):
            found = model.run({"x": value(batch)}, key)
            assert list(found) == ["y"]
            np.testing.assert_array_equal(found["y"], factor * value(batch))
    assert model.run({"x": value(1).tobytes()}, "triple")["y"].tolist() == (3 * value(1)).tolist()
    assert model.report().target == target


def test_warming_a_model_warms_all_of_its_signatures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, cache = tmp_path / "model.tflite", tmp_path / "cache"
    path.write_bytes(TWO)
    assert warm.main([str(path), "--serialization-dir", str(cache)]) == 0
    assert "2 of 2 operators delegated" in capsys.readouterr().out
    assert len([*cache.glob("*.jitd")]) == 2
    model = jitdelegate.load(path, serialization_dir=cache)
    model.run({"x": value(1)}, "triple")
    assert [one.outcome for one in model.report().subgraphs] == ["hit"]


@pytest.mark.parametrize("target", ["cpu", "litert"])
def test_wrong_arguments_of_a_signature_are_refused_by_name(target: str, tmp_path: Path) -> None:
    model = jitdelegate.load(TWO, target=target, serialization_dir=tmp_path)
    for inputs, key, words in (
        ({"x": value(1)}, "half", r"'half', the model has \['double', 'triple'\]"),
        ({"z": value(1)}, "triple", "named 'z'; expected 'x'"),
        ({"x": value(1).astype(np.int32)}, "triple", "'triple value'.*int32.*float32"),
        ({"x": np.ones((2, 3), np.float32)}, "triple", "'triple value'"),
    ):
        with pytest.raises(TensorError, match=words):
            model.run(inputs, key)
    model.close()
    with pytest.raises(DeviceError, match="closed"):
        model.run({"x": value(1)}, "triple")


def test_a_signature_of_tensors_within_is_left_to_litert(tmp_path: Path) -> None:
    builder = ModelBuilder()
    given = builder.input((1, 2), name="given")
    within = builder.op("NEG", [given], (1, 2), name="within")
    builder.output(builder.op("RELU", [within], (1, 2)))
    builder.signature("peek", {"x": given}, {"y": within})
    model = jitdelegate.load(builder.finish(), serialization_dir=tmp_path)
    with pytest.raises(DeviceError, match="Tensor data is null"):
        model.run({"x": value(1)}, "peek")


def test_a_real_model_s_signatures_run_compiled(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = (models / "fixtures/multi_signatures.bin.tflite").read_bytes()
    theirs = LiteRT(model_content=content)
    expected = {key: theirs.get_signature_runner(key)(x=np.array([5, 7], np.float32)) for key in ("add", "sub")}
    forbid_litert(monkeypatch)
    ours = jitdelegate.Interpreter(model_content=content)
    for key, outputs in expected.items():
        found = ours.get_signature_runner(key)(x=np.array([5, 7], np.float32))
        np.testing.assert_array_equal(found["output_0"], outputs["output_0"])


# what a model tells about its signatures


def described(path_or_bytes: Any, **options: Any) -> dict[str, Any]:
    """Every signature's text, details and tensors."""
    with jitdelegate.load(path_or_bytes, **options) as model:
        return {
            key: (
                repr(one),
                [(port.name, port.shape, port.shape_signature, port.dtype) for port in (*one.inputs, *one.outputs)],
                one.get_input_details(),
                one.get_output_details(),
            )
            for key, one in model.signatures.items()
        }


@pytest.mark.parametrize("prepared", [False, True])
def test_signatures_tell_names_shapes_and_types_without_compiling(tmp_path: Path, prepared: bool) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(cached_models.decoder())
    with jitdelegate.load(path, serialization_dir=tmp_path) as model:
        if prepared:
            model.prepare()
        entries = len([*tmp_path.glob("*.jitd")])
        decode = model.signatures["decode"]
        rows = cached_models.CACHE[1]
        assert repr(decode) == (
            f"Signature('decode': rows: float32[1, 1, 16], place: int32[1], "
            f"cache_k, cache_v: float32[1, {rows}, 16] -> "
            f"cache_k, cache_v: float32[1, {rows}, 16], seen: float32[1, 1, 16])"
        )
        assert [each.name for each in decode.inputs] == ["rows", "place", "cache_k", "cache_v"]
        assert [each.shape for each in decode.outputs] == [cached_models.CACHE, cached_models.CACHE, (1, 1, 16)]
        assert decode == {"inputs": ["cache_k", "cache_v", "place", "rows"], "outputs": ["cache_k", "cache_v", "seen"]}
        assert decode.key == "decode" and model.signatures["prefill"].inputs[0].shape == (1, 4, 16)
        assert len([*tmp_path.glob("*.jitd")]) == entries == (2 if prepared else 1)


def test_their_details_are_those_of_litert(tmp_path: Path) -> None:
    content = cached_models.decoder("int8")
    litert = LiteRT(model_content=content)
    with jitdelegate.load(content, serialization_dir=tmp_path) as model:
        for key, one in model.signatures.items():
            runner = litert.get_signature_runner(key)
            for found, wanted in (
                (one.get_input_details(), runner.get_input_details()),
                (one.get_output_details(), runner.get_output_details()),
            ):
                assert set(found) == set(wanted)
                for name, detail in wanted.items():
                    assert found[name]["name"] == detail["name"] and found[name]["dtype"] is detail["dtype"]
                    assert found[name]["shape"].tolist() == detail["shape"].tolist()
                    assert found[name]["quantization"] == detail["quantization"]


def test_they_are_the_same_on_litert_and_after_a_warm_start(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(cached_models.decoder())
    cold, warm = (described(path, serialization_dir=tmp_path) for _ in range(2))
    litert = described(path, target="litert", serialization_dir=False)
    assert str(cold) == str(warm) == str(litert)


def test_open_sizes_and_many_tensors_of_one_type_are_told_in_short() -> None:
    model = ModelBuilder()
    x = model.input((1, 2), name="x", shape_signature=(-1, 2))
    caches = {f"cache_{number}": model.input((1, 4), name=f"c{number}") for number in range(5)}
    results = {name: model.op("NEG", [index], (1, 4)) for name, index in caches.items()}
    y = model.op("NEG", [x], (1, 2))
    model.output(y, *results.values())
    model.signature("serve", {"x": x, **caches}, {"y": y, **results})
    with jitdelegate.load(model.finish(), serialization_dir=False) as loaded:
        text = repr(loaded.signatures["serve"])
    caches_text = "cache_0, cache_1 and 3 more: float32[1, 4]"
    assert text == f"Signature('serve': x: float32[-1, 2], {caches_text} -> y: float32[1, 2], {caches_text})"


def test_without_the_file_they_still_tell_names(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(cached_models.decoder())
    with jitdelegate.load(path, serialization_dir=tmp_path) as model:
        path.unlink()
        assert repr(model.signatures["prefill"]).startswith("Signature('prefill': rows: float32[1, 4, 16]")
        decode = model.signatures["decode"]
        assert repr(decode) == "Signature('decode': cache_k, cache_v, place, rows -> cache_k, cache_v, seen)"
        with pytest.raises(ModelError, match="No such file"):
            _ = decode.inputs
