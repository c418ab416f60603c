"""Outputs in memory that the caller gives, of its own or that of inputs."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np
import pytest

import jitdelegate
from jitdelegate.api.tensor_buffer import TensorBuffer
from jitdelegate.compiled_model import CompiledModel
from jitdelegate.errors import TensorError
from jitdelegate.runtime.cpu.session import Session
from tests.api import small_models
from tests.api.cached_models import CACHE, ROWS, WIDTH, aligned_cache, decoder, only_rows_writable, stepped

TARGETS = ("cpu", "reference", "litert")
DTYPES = ("float32", "float16", "int8", "int16", "int64", "bool")
PLACES = (3, 0, ROWS - 1, -9, 2**31 - 1, 3)


def rows_of(dtype: str, seed: int, count: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2 if dtype == "bool" else 9, (1, count, WIDTH)).astype(dtype)


def place_of(place: int) -> np.ndarray:
    return np.array([place], np.int32)


def load(content: bytes, target: str = "cpu", **options: Any) -> jitdelegate.Model:
    return jitdelegate.load(content, target=target, serialization_dir=False, num_threads=1, options=options)


def zeros(dtype: str = "float32") -> dict[str, np.ndarray]:
    return {name: np.zeros(CACHE, dtype) for name in ("cache_k", "cache_v")}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("target", TARGETS)
def test_caches_in_one_place_are_as_in_two(target: str, dtype: str) -> None:
    model, wanted, together, apart = load(decoder(dtype), target), zeros(dtype), zeros(dtype), zeros(dtype)
    for step, place in enumerate(PLACES):
        given: dict[str, Any] = {"rows": rows_of(dtype, step), "place": place_of(place)}
        seen = stepped(wanted, given["rows"], place)
        found = model.run({**given, **together}, "decode", out=together)
        assert all(found[name] is together[name] for name in together)
        other = model.run({**given, **apart}, "decode")
        apart = {name: np.array(other[name]) for name in apart}
        for state, result in ((together, found), (apart, other)):
            np.testing.assert_array_equal(np.asarray(result["seen"]), seen)
            for name, cache in wanted.items():
                np.testing.assert_array_equal(state[name], cache)
    assert model.report().target == target


@pytest.mark.skipif(sys.platform != "linux", reason="protects pages through libc")
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_cache_in_one_place_is_written_to_in_its_rows_only(dtype: str) -> None:
    model, cache, wanted = load(decoder(dtype)), {name: aligned_cache(dtype) for name in zeros()}, zeros(dtype)
    row, place = rows_of(dtype, 0), ROWS - 1
    with only_rows_writable(cache["cache_k"], place), only_rows_writable(cache["cache_v"], place):
        model.run({"rows": row, "place": place_of(place), **cache}, "decode", out=cache)
    stepped(wanted, row, place)
    for name in wanted:
        np.testing.assert_array_equal(cache[name], wanted[name])


@pytest.mark.skipif(sys.platform != "linux", reason="protects pages through libc")
def test_a_buffer_that_is_input_and_output_of_a_compiled_model_is_written_to_in_its_rows_only() -> None:
    model, wanted, place = CompiledModel.from_buffer(decoder()), zeros(), ROWS // 2
    row = rows_of("float32", 0)
    arrays = {"rows": row, "place": place_of(place), "cache_k": aligned_cache(), "cache_v": aligned_cache()}
    inputs = {name: TensorBuffer.create_from_host_memory(array) for name, array in arrays.items()}
    outputs = {name: inputs[name] for name in wanted} | {"seen": model.create_output_buffer_by_name("decode", "seen")}
    with only_rows_writable(arrays["cache_k"], place), only_rows_writable(arrays["cache_v"], place):
        model.run_by_name("decode", inputs, outputs)
    np.testing.assert_array_equal(outputs["seen"].view(), stepped(wanted, row, place))
    for name in wanted:
        np.testing.assert_array_equal(arrays[name], wanted[name])


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_read_before_it_is_updated_is_read_as_it_was(target: str) -> None:
    model, state = load(decoder(reads_before=True), target), zeros()
    state["cache_k"][...] = 5
    row = rows_of("float32", 1)
    found = model.run({"rows": row, "place": place_of(0), **state}, "decode", out=state)
    assert (np.asarray(found["old"]) == 5).all()
    np.testing.assert_array_equal(state["cache_k"][0, 0], row[0, 0])


@pytest.mark.parametrize("target", TARGETS)
def test_outputs_in_the_memory_of_other_inputs_are_right_too(target: str) -> None:
    model, state = load(decoder(), target), zeros()
    state["cache_k"][...], state["cache_v"][...] = 1, 2
    row, place = rows_of("float32", 2), 7
    wanted = {name: cache.copy() for name, cache in state.items()}
    stepped(wanted, row, place)
    crossed = {"cache_k": state["cache_v"], "cache_v": state["cache_k"]}
    given = {"rows": row, "place": place_of(place)}
    model.run({**given, **state}, "decode", out=crossed)
    for name in wanted:
        np.testing.assert_array_equal(crossed[name], wanted[name])
    one = np.zeros(CACHE, np.float32)
    model.run({**given, "cache_k": one, "cache_v": one}, "decode", out={"cache_k": one})
    wanted = zeros()
    stepped(wanted, row, place)
    np.testing.assert_array_equal(one, wanted["cache_k"])


@pytest.mark.parametrize("target", TARGETS)
def test_any_writable_memory_takes_an_output(target: str) -> None:
    model = load(small_models.two_outputs(), target)
    left, right = np.arange(6, dtype=np.float32).reshape(2, 3), np.full((2, 3), 2, np.float32)
    first = model.run({"left": left, "right": right})
    takers: list[Any] = [np.empty((2, 3), np.float32), bytearray(24), first["sum"]]
    takers += [memoryview(bytearray(24)).cast("f"), TensorBuffer.create("float32", (2, 3))]
    for taker in takers:
        found = model.run({"left": left, "right": right}, out={"sum": taker})
        assert found["sum"] is taker
        memory = taker.view() if isinstance(taker, TensorBuffer) else np.frombuffer(memoryview(taker).cast("B"), "f4")
        np.testing.assert_array_equal(memory.reshape(2, 3), left + 2)
        np.testing.assert_array_equal(np.asarray(found["product"]), left * 2)


def test_memory_that_does_not_fit_is_refused() -> None:
    model = load(small_models.two_outputs())
    both = {"left": np.ones((2, 3), np.float32), "right": np.ones((2, 3), np.float32)}
    room, fixed = np.zeros(30, np.float32), np.zeros((2, 3), np.float32)
    fixed.flags.writeable = False
    for out, message in (
        ({"total": room}, "out names 'total'; the outputs are 'sum', 'product'"),
        ([room], "out is list, expected a mapping from names to memory"),
        ({"sum": 5}, "output 'sum': found int, expected a TensorBuffer, an array or"),
        ({"sum": np.zeros((3, 2), np.float32)}, r"'sum': found float32\[3, 2\], expected float32\[2, 3\]"),
        ({"sum": np.zeros((2, 3))}, r"found float64\[2, 3\], expected float32\[2, 3\]"),
        ({"sum": TensorBuffer.create("int32", (2, 3))}, r"found a buffer of int32\[2, 3\], expected float32\[2, 3\]"),
        ({"sum": bytearray(23)}, r"expected float32\[2, 3\] or 24 bytes"),
        ({"sum": fixed}, "'sum': the memory is read-only, expected contiguous writable memory"),
        ({"sum": bytes(24)}, "the memory is read-only"),
        ({"sum": np.zeros((3, 2), np.float32).T}, "the memory is not contiguous"),
        ({"sum": memoryview(bytearray(25))[1:]}, "begins at 0x[0-9a-f]+, expected a multiple of 4"),
        ({"sum": room[:6].reshape(2, 3), "product": room[3:9].reshape(2, 3)}, "overlaps that of tensor"),
        ({"sum": fixed.base if fixed.base is not None else both["left"].reshape(-1)[1:]}, "expected"),
    ):
        with pytest.raises(TensorError, match=message):
            model.run(both, out=out)  # type: ignore[arg-type]
    part = room[:7]
    with pytest.raises(TensorError, match="the memory of output 'sum' overlaps that of tensor 'left'"):
        model.run({**both, "left": part[:6].reshape(2, 3)}, out={"sum": part[1:].reshape(2, 3)})
    assert np.asarray(model.run(both)["sum"]).sum() == 12


@pytest.mark.parametrize("target", TARGETS)
def test_float16_caches_work_in_sessions(target: str) -> None:
    model, state, wanted = load(decoder("float16"), target), zeros("float16"), zeros("float16")
    session = model.session("cache_*")
    for step, place in enumerate((3, 0, ROWS - 1, 3)):
        given = {"rows": rows_of("float16", step), "place": place_of(place)}
        seen = stepped(wanted, given["rows"], place)
        for found in (model.run({**given, **state}, "decode", out=state), session.run("decode", given)):
            np.testing.assert_array_equal(np.asarray(found["seen"]), seen)
        for name, cache in wanted.items():
            np.testing.assert_array_equal(state[name], cache)
            np.testing.assert_array_equal(session.state[name], cache)


def test_a_run_that_is_repeated_leaves_the_caches_of_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the file of the weights is disturbed meanwhile; weights that were wrong put wrong rows there first."""
    model, wanted, state = load(decoder()), zeros(), zeros()
    compute = Session._compute

    def disturbed(session: Session, memory: Any, addresses: list[int]) -> None:
        rows = (ctypes.c_float * WIDTH).from_address(addresses[0])
        kept = rows[:]
        rows[:] = [99.0] * WIDTH
        compute(session, memory, addresses)
        rows[:] = kept
        compute(session, memory, addresses)

    monkeypatch.setattr(Session, "_compute", disturbed)
    for step, place in enumerate(PLACES):
        given = {"rows": rows_of("float32", step), "place": place_of(place)}
        seen = stepped(wanted, given["rows"], place)
        found = model.run({**given, **state}, "decode", out=state)
        np.testing.assert_array_equal(np.asarray(found["seen"]), seen)
        for name, cache in wanted.items():
            np.testing.assert_array_equal(state[name], cache)
