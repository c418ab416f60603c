"""Sessions of a model whose caches live from run to run, shared by its signatures."""

from __future__ import annotations

import pickle
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT

import jitdelegate
from jitdelegate.errors import DeviceError, TensorError
from tests.api import partial_models as partial
from tests.api import small_models
from tests.api.cached_models import CACHE, ROWS, STEPS, WIDTH, decoder, only_rows_writable, stepped
from tests.conftest import real_model

WHERE = {"cpu": {}, "reference": {}, "litert": {}, "partitions": partial.options(only_ops=("DYNAMIC_UPDATE_SLICE",))}
PLAN = (("prefill", 0), ("decode", 4), ("decode", 5), ("prefill", ROWS - 4), ("decode", ROWS - 1), ("decode", 7))
OUTSIDE = (("prefill", ROWS - 3), ("prefill", -1), ("decode", ROWS), ("decode", -1), ("decode", (1 << 31) - 1))


def load(content: bytes, where: str = "cpu", **options: Any) -> jitdelegate.Model:
    target = "cpu" if where == "partitions" else where
    given = {"target": target, "serialization_dir": False, "num_threads": 1} | WHERE[where] | options
    return jitdelegate.load(content, options=given)


def inputs_of(key: str, place: int, seed: int = 0, dtype: str = "float32") -> dict[str, np.ndarray]:
    rows = np.random.default_rng(seed).integers(1, 9, (1, STEPS[key], WIDTH)).astype(dtype)
    return {"rows": rows, "place": np.array([place], np.int32)}


@pytest.mark.parametrize("where", WHERE)
def test_signatures_share_the_state(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if where == "partitions":
        partial.choose_loader(monkeypatch, "partitions")
    negates = where == "partitions"
    model = load(decoder(negates=negates), where)
    session = model.session(state="cache_*")
    wanted = {name: np.zeros(CACHE, np.float32) for name in ("cache_k", "cache_v")}
    for seed, (key, place) in enumerate(PLAN):
        given = inputs_of(key, place, seed)
        found = session.run(key, given) if seed % 2 else session.run(key, **given)
        assert list(found) == ["seen"]
        np.testing.assert_array_equal(found["seen"], stepped(wanted, given["rows"], place, negates=negates))
        assert session.state.keys() == wanted.keys()
        for name, cache in wanted.items():
            np.testing.assert_array_equal(session.state[name], cache)
    if where == "partitions":
        assert model._opened.program.loader == "partitions"
    else:
        assert model.report().target == where


@pytest.mark.parametrize("where", WHERE)
def test_positions_past_the_cache_are_refused_before_it_is_touched(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if where == "partitions":
        partial.choose_loader(monkeypatch, "partitions")
    session = load(decoder(negates=where == "partitions"), where).session(state="cache_*")
    session.run("prefill", **inputs_of("prefill", 0))
    before = {name: np.array(cache) for name, cache in session.state.items()}
    for key, place in OUTSIDE:
        room = ROWS - STEPS[key]
        with pytest.raises(TensorError, match=rf"'place' has {place} at .* rows of 'cache_k', expected 0 to {room}"):
            session.run(key, **inputs_of(key, place))
        for name, cache in before.items():
            np.testing.assert_array_equal(session.state[name], cache)
    session.run("decode", **inputs_of("decode", ROWS - 1))
    assert session.state["cache_k"][0, ROWS - 1].all()


@pytest.mark.parametrize("key, place", OUTSIDE)
def test_without_a_session_rows_move_into_the_cache_as_in_litert(key: str, place: int) -> None:
    given = inputs_of(key, place) | {name: np.ones(CACHE, np.float32) for name in ("cache_k", "cache_v")}
    expected = LiteRT(model_content=decoder()).get_signature_runner(key)(**given)
    for found in (
        load(decoder()).run(given, signature=key),
        jitdelegate.Interpreter(model_content=decoder()).get_signature_runner(key)(**given),
    ):
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value)


@pytest.mark.skipif(sys.platform != "linux", reason="protects pages through libc")
def test_no_cache_is_copied() -> None:
    session = load(decoder()).session("cache_*")
    session.run("decode", **inputs_of("decode", 3))
    place, (first, second) = ROWS // 2, session.state.values()
    with only_rows_writable(first, place), only_rows_writable(second, place):
        session.run("decode", **inputs_of("decode", place))
    assert session.state["cache_k"][0, place].all()


def test_results_are_the_caller_s() -> None:
    session = load(decoder()).session("cache_*")
    first = session.run("decode", **inputs_of("decode", 0))["seen"]
    kept = np.array(first)
    session.run("decode", **inputs_of("decode", 0, seed=1))
    np.testing.assert_array_equal(first, kept)


def test_what_is_not_part_of_the_state_comes_and_goes() -> None:
    session = load(decoder()).session(state=["cache_k"])
    cache = np.full(CACHE, 7, np.float32)
    for place in (1, 2):
        found = session.run("decode", **inputs_of("decode", place), cache_v=cache)
        assert set(found) == {"cache_v", "seen"}
        cache = np.asarray(found["cache_v"])
    assert session.state["cache_k"][0, 1:3].all()
    assert np.count_nonzero(cache == 7) == (ROWS - 2) * WIDTH


def test_sessions_of_one_model_are_independent_and_start_at_the_zero_point() -> None:
    model = load(decoder("int8"))
    one, other = model.session("cache_*"), model.session("*_k")
    one.run("decode", inputs_of("decode", 0, dtype="int8"))
    assert list(other.state) == ["cache_k"]
    assert (other.state["cache_k"] == 3).all()
    assert (one.state["cache_k"][0, 1:] == 3).all()
    one.reset()
    assert all((cache == 3).all() for cache in one.state.values())


def test_a_saved_state_goes_on(tmp_path: Path) -> None:
    model, path = load(decoder()), tmp_path / "state"
    session = model.session("cache_*")
    session.run("prefill", **inputs_of("prefill", 2))
    session.save(path)
    kept = {name: cache.copy() for name, cache in session.state.items()}
    expected = session.run("decode", **inputs_of("decode", 1, seed=2))
    session.reset()
    session.load(path)
    for name, cache in kept.items():
        np.testing.assert_array_equal(session.state[name], cache)
        np.testing.assert_array_equal(np.load(path)[name], cache)
    np.testing.assert_array_equal(session.run("decode", **inputs_of("decode", 1, seed=2))["seen"], expected["seen"])


def test_other_files_are_refused(tmp_path: Path) -> None:
    session, path = load(decoder()).session("cache_*"), tmp_path / "state.npz"
    with pytest.raises(FileNotFoundError):
        session.load(path)
    good = {name: np.ones(CACHE, np.float32) for name in session.state}
    for content in (b"", b"PK\3\4 and no more", np.arange(3).tobytes()):
        path.write_bytes(content)
        with pytest.raises(TensorError, match="is no file of named arrays"):
            session.load(path)
    for change in ({"cache_k": np.ones(CACHE)}, {"cache_k": np.ones((3, 2), np.float32)}, {"more": np.ones(1)}):
        np.savez(path, **(good | change))
        with pytest.raises(TensorError, match=r"holds the tensors .*, expected .'cache_k': 'float32"):
            session.load(path)
    assert not any(cache.any() for cache in session.state.values())


def test_a_file_that_is_refused_is_closed(tmp_path: Path) -> None:
    session, path = load(decoder()).session("cache_*"), tmp_path / "state.npz"
    path.write_bytes(b"PK\3\4 and no more")
    with pytest.raises(TensorError):
        session.load(path)
    files = [each.readlink() for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    assert path not in files


def test_a_session_is_not_pickled() -> None:
    with pytest.raises(TypeError, match="save its state"):
        pickle.dumps(load(decoder()).session("cache_*"))


def test_wrong_names_are_told() -> None:
    model = load(decoder())
    for pattern, words in {
        "kv_*": r"'cache_\*' names 2 of 2: 'cache_k' to 'cache_v'",
        "cache": r"'cache\*' names 2 of 2: 'cache_k' to 'cache_v'",
        "e_v": r"'\*e_v\*' names 1 of 2: 'cache_v'",
    }.items():
        with pytest.raises(
            TensorError, match=f"names no tensor that is an input and an output of a signature; {words}$"
        ):
            model.session(state=["cache_*", pattern])
    with pytest.raises(TypeError, match="state is 5, expected a pattern of names"):
        model.session(state=5)  # type: ignore[arg-type]
    with pytest.raises(TensorError, match="there are none"):
        load(small_models.two_signatures()).session("*")
    session = model.session("cache_*")
    with pytest.raises(TensorError, match=r"no signature is named 'encode', the model has \['prefill', 'decode'\]"):
        session.run("encode", {})
    with pytest.raises(TensorError, match="inputs of 'decode' are named 'rows', 'tokens'; expected 'rows', 'place'"):
        session.run("decode", {"rows": np.zeros((1, 1, WIDTH), np.float32)}, tokens=0)
    with pytest.raises(TensorError, match="tensor 'decode_rows' cannot be made from NoneType"):
        session.run("decode", {**inputs_of("decode", 0), "rows": None})
    with pytest.raises(TensorError, match=r"found float32\[1, 2, 16\], expected float32\[1, 1, 16\]"):
        session.run("decode", **{**inputs_of("decode", 0), "rows": np.zeros((1, 2, WIDTH), np.float32)})
    model.close()
    with pytest.raises(DeviceError, match="closed"):
        session.run("decode", inputs_of("decode", 0))
    with pytest.raises(DeviceError, match="closed"):
        model.session("cache_*")


def test_threads_take_turns() -> None:
    session = load(decoder()).session("cache_*")

    def fill(first: int) -> None:
        for place in range(first, first + 20):
            session.run("decode", **inputs_of("decode", place))

    threads = [threading.Thread(target=fill, args=(20 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert session.state["cache_k"][0, :80].all() and not session.state["cache_k"][0, 80:].any()


@pytest.mark.parametrize("name", ["gemma3_f32_ekv256", "qwen3_f32_ekv256", "qwen3_q8_ekv256"])
def test_a_decoder_generates_what_it_does_in_litert(name: str) -> None:
    path = real_model(f"generated/decoders/{name}")
    model, litert = jitdelegate.load(path, target="cpu", num_threads=1), LiteRT(str(path))
    session, state = model.session("kv_cache_*"), {}
    prompt = {"tokens": np.arange(1, 17, dtype=np.int32)[None], "input_pos": np.arange(16, dtype=np.int32)}
    details = litert.get_signature_runner("prefill_16").get_input_details()
    theirs = {name: np.zeros(details[name]["shape"], np.float32) for name in session.state}
    given = {name: cache.copy() for name, cache in theirs.items()}
    session.run("prefill_16", prompt)
    model.run({**prompt, **given}, "prefill_16", out=given)
    state = litert.get_signature_runner("prefill_16")(**prompt, **theirs)
    token, decode = 7, litert.get_signature_runner("decode")
    for place in range(16, 40):
        step = {"tokens": np.array([[token]], np.int32), "input_pos": np.array([place], np.int32)}
        expected = decode(**step, **{name: state[name] for name in given})
        found = [session.run("decode", step), model.run({**step, **given}, "decode", out=given)]
        for one in found:
            np.testing.assert_allclose(one["logits"], expected["logits"], rtol=1e-4, atol=1e-4)
            assert np.asarray(one["logits"]).argmax() == expected["logits"].argmax()
        state, token = expected, int(expected["logits"].argmax())
    assert model.report().fully_delegated
