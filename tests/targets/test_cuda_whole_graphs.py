"""Whole models through compiler, program file, driver and simulator: what a GPU would do, on a driver without one."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

import jitdelegate
from jitdelegate.api.tensor_buffer import TensorBuffer
from jitdelegate.base.options import DelegateOptions
from jitdelegate.commands import replay
from jitdelegate.commands.demo_model import mobilenet_v1
from jitdelegate.errors import TensorError
from jitdelegate.program.program import Program
from jitdelegate.targets.cuda.target import CudaDevice
from jitdelegate.tflite.write import ModelBuilder
from tests.api.cached_models import CACHE, ROWS, STEPS, WIDTH, decoder, stepped
from tests.api.resource_models import ring, streaming
from tests.conftest import real_model
from tests.gpu.stub.install import install_simulated_gpu
from tests.gpu.stub.library import Library
from tests.ops.recurrent_models import LstmModel
from tests.targets.audio import birds, words
from tests.targets.detector import detector
from tests.targets.integer_graphs import whole_range

pytest.importorskip("numba.cuda", reason="needs numba-cuda, the extra 'cuda'")

from jitdelegate.engine import precompile

ARCHITECTURE = "sm_90"
TOLERANCES = {"float32": 1e-5, "float16": 5e-3}
"""Of the norm of the difference over the norm of the CPU target's output."""


def pretrained_resnet() -> bytes:
    """A real residual network of 32x32 images."""
    return real_model("real/pretrainedResnet").read_bytes()


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    """A device whose kernels run in the simulator, and reach pinned memory; nothing is left of what is made."""
    library = install_simulated_gpu(monkeypatch)
    library.maps_pinned = True
    yield library
    gc.collect()
    assert library.leaks() == []


def _compile(content: bytes, folder: Path, **options: Any) -> Program:
    path = folder / "model.tflite"
    path.write_bytes(content)
    given = DelegateOptions(serialization_dir=str(folder / "cache"), **options)
    return precompile.precompile(str(path), CudaDevice(ARCHITECTURE), given).program


def _load(content: bytes, folder: Path, precision: str = "float32", **options: str) -> jitdelegate.Model:
    """The model on the simulated GPU."""
    options = {"precision": precision} | options
    _compile(content, folder, **options)
    cache = str(folder / "cache")
    model = jitdelegate.load(content, target="cuda", serialization_dir=cache, options=options)
    assert model.report().cache.hit
    assert model.report().fully_delegated
    assert model.report().target == "cuda"
    return model


def index_arithmetic() -> bytes:
    """Which of some integers, taken twice, are below a constant, and those that are, shortened."""
    builder = ModelBuilder()
    x = builder.input((3, 5), "int64", name="x")
    limit = builder.constant(np.int64([-7, 0, 7, 2**40, 1]), name="limit")
    twice = builder.tensor((3, 5), "int64")
    below, chosen, short = (builder.tensor((3, 5), dtype) for dtype in ("bool", "int64", "int32"))
    builder.node("ADD", (x, x), (twice,))
    builder.node("LESS", (twice, limit), (below,))
    builder.node("SELECT_V2", (below, twice, limit), (chosen,))
    builder.node("CAST", (chosen,), (short,))
    builder.output(below, chosen, short)
    return builder.finish()


@pytest.mark.parametrize("precision", TOLERANCES)
def test_integers_and_truth_values_go_in_and_out_as_they_are(precision: str, gpu: Library, tmp_path: Path) -> None:
    model = _load(index_arithmetic(), tmp_path, precision)
    x = np.array([-(2**41), -4, -3, 2**39, 0] * 3).reshape(3, 5)
    found = [np.asarray(value) for value in model.run({"x": x}).values()]
    model.close()
    below = 2 * x < [-7, 0, 7, 2**40, 1]
    chosen = np.where(below, 2 * x, [-7, 0, 7, 2**40, 1])
    for value, expected in zip(found, (below, chosen, chosen.astype(np.int32)), strict=True):
        np.testing.assert_array_equal(value, expected, strict=True)


@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize(
    "make",
    [lambda: mobilenet_v1(32, 0.25), detector, words, birds, pretrained_resnet],
    ids=["mobilenet_v1 32x32", "detector head", "words", "birds", "pretrainedResnet"],
)
def test_a_model_on_the_gpu_matches_the_cpu(make: Any, precision: str, gpu: Library, tmp_path: Path) -> None:
    content = make()
    model = _load(content, tmp_path, precision)
    random = np.random.default_rng(0)
    feeds = [random.uniform(0, 1, port.shape).astype(np.float32) for port in model.inputs]
    found = model.run({port.name: feed for port, feed in zip(model.inputs, feeds, strict=True)})
    assert gpu.calls["cuGraphLaunch"] == 1
    expected = jitdelegate.load(content, target="cpu", serialization_dir=False)
    values = expected.run({port.name: feed for port, feed in zip(expected.inputs, feeds, strict=True)})
    for name, value in values.items():
        reference = np.asarray(value)
        error = np.linalg.norm(np.asarray(found[name]) - reference) / np.linalg.norm(reference)
        assert error <= TOLERANCES[precision], (name, error)


@pytest.mark.parametrize("execution, most", [("auto", 0), ("float_view", 1)])
@pytest.mark.parametrize("name", ["pretrainedResnet_quant", "toycar_int8_intio", "trained_lstm_int8"])
def test_a_quantized_model_on_the_gpu_answers_as_litert_does(
    name: str, execution: str, most: int, gpu: Library, tmp_path: Path
) -> None:
    content = real_model(f"real/{name}").read_bytes()
    litert = Interpreter(model_content=content)
    litert.allocate_tensors()
    (entry,), (result,) = litert.get_input_details(), litert.get_output_details()
    feed = whole_range(tuple(entry["shape"]), "int8", 1)
    litert.set_tensor(entry["index"], feed)
    litert.invoke()
    model = _load(content, tmp_path, quantized_execution=execution)
    found = np.asarray(model(feed))
    assert gpu.calls["cuGraphLaunch"] == 1
    model.close()
    assert np.abs(found.astype(int) - litert.get_tensor(result["index"])).max() <= most
    assert len(np.unique(found)) > 1


@pytest.mark.parametrize(
    "content", [LstmModel(steps=3).content(), streaming()], ids=["sequence of LSTM", "resource variables"]
)
def test_states_on_the_gpu_go_on_from_run_to_run(content: bytes, gpu: Library, tmp_path: Path) -> None:
    model = _load(content, tmp_path)
    other = jitdelegate.load(content, target="cpu", serialization_dir=False)
    random = np.random.default_rng(0)
    for run in range(4):
        if run == 3:
            model.reset_all_variables()
            other.reset_all_variables()
        feed = random.uniform(-1, 1, model.inputs[0].shape).astype(np.float32)
        np.testing.assert_allclose(np.asarray(model(feed)), np.asarray(other(feed)), rtol=1e-5, atol=1e-6)


def test_a_state_on_the_gpu_that_is_updated_row_by_row_is_not_copied(gpu: Library, tmp_path: Path) -> None:
    model = _load(ring(), tmp_path)
    rows = np.full((6, 4), 0.5, np.float32)
    for run in range(5):
        row, place = np.random.default_rng(run).uniform(-1, 1, (1, 1, 4)).astype(np.float32), 2 * run - 1
        rows[np.clip(place, 0, 5)] = row
        found = model.run({"row": row, "place": np.array([0, place, 0], np.int32)})["sums"]
        np.testing.assert_allclose(np.asarray(found)[0], rows.sum(0), rtol=1e-5, atol=1e-6)
    assert gpu.calls["cuMemcpyDtoDAsync_v2"] == 1, "the first value alone is copied"


def test_the_state_of_a_session_stays_on_the_gpu(gpu: Library, tmp_path: Path) -> None:
    model = _load(decoder(), tmp_path)
    model.prepare()
    session = model.session("cache_*")
    wanted = {name: np.zeros(CACHE, np.float32) for name in ("cache_k", "cache_v")}
    random, steps = np.random.default_rng(0), (("prefill", 2), ("decode", 6), ("decode", ROWS - 1), ("decode", 7))
    for key, place in steps:
        rows = random.uniform(-1, 1, (1, STEPS[key], WIDTH)).astype(np.float32)
        before = gpu.calls.copy()
        found = session.run(key, rows=rows, place=np.array([place], np.int32))
        added = gpu.calls - before
        assert added["cuGraphLaunch"] == 1
        copies = ("cuMemcpyDtoDAsync_v2", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2")
        assert [added[name] for name in copies] == [0, 0, 0]  # kernels use small pinned memory themselves
        np.testing.assert_array_equal(found["seen"], stepped(wanted, rows, place))
    before = gpu.calls.copy()
    with pytest.raises(TensorError, match=f"'place' has {ROWS} at element 0"):
        session.run("decode", rows=np.ones((1, 1, WIDTH), np.float32), place=np.array([ROWS], np.int32))
    assert gpu.calls["cuGraphLaunch"] == before["cuGraphLaunch"]
    for name, cache in wanted.items():
        np.testing.assert_array_equal(session.state[name], cache)
    session.save(tmp_path / "state")
    session.reset()
    assert not any(cache.any() for cache in session.state.values())
    session.load(tmp_path / "state")
    np.testing.assert_array_equal(session.state["cache_v"], wanted["cache_v"])


def test_slices_of_inputs_and_operands_of_outputs_are_not_copied(gpu: Library, tmp_path: Path) -> None:
    """Launches point into the memory of an input and of an output."""
    builder = ModelBuilder()
    x, halves = builder.input((3, 8), name="x"), [builder.tensor((3, 4), "float32") for _ in range(2)]
    builder.node("SPLIT", (builder.constant(np.int32(1)), x), halves, options={"num_splits": 2})
    made = [builder.op(op, (half,), (3, 4)) for op, half in zip(("ABS", "NEG"), halves, strict=True)]
    builder.output(builder.op("CONCATENATION", made[::-1], (3, 8), name="y", options={"axis": 1}))
    model = _load(builder.finish(), tmp_path)
    data = np.arange(-12, 12, dtype=np.float32).reshape(3, 8)
    (found,) = (np.asarray(value) for value in model.run({"x": data}).values())
    np.testing.assert_array_equal(found, np.concatenate([-data[:, 4:], np.abs(data[:, :4])], axis=1))
    assert sum(gpu.launches.values()) == 2
    model.close()


def between_two_convolutions() -> bytes:
    """f32[1,6,6,4] -> CONV_2D -> TANH, which is to be LiteRT's -> CONV_2D and ADD."""
    random = np.random.default_rng(0)
    builder = ModelBuilder()
    x = builder.input((1, 6, 6, 4), name="x")

    def convolution(data: int) -> int:
        weights = builder.constant(random.standard_normal((4, 3, 3, 4)).astype(np.float32) / 6)
        bias = builder.constant(random.standard_normal(4).astype(np.float32))
        unit = {"padding": "SAME", "stride_h": 1, "stride_w": 1}
        return builder.op("CONV_2D", (data, weights, bias), (1, 6, 6, 4), options=unit)

    first = convolution(x)
    between = builder.op("TANH", (first,), (1, 6, 6, 4))
    builder.output(builder.op("ADD", (convolution(between), first), (1, 6, 6, 4), name="y"))
    return builder.finish()


X = np.random.default_rng(1).standard_normal((1, 6, 6, 4)).astype(np.float32)
PARTITIONS = {"partitioning": "all", "only_ops": "CONV_2D,ADD"}


def test_what_litert_runs_lies_between_what_the_gpu_runs(gpu: Library, tmp_path: Path) -> None:
    content = between_two_convolutions()
    program = _compile(content, tmp_path, **PARTITIONS)
    assert [partition.place for partition in program.partitions] == ["cuda", "litert", "cuda"]
    cache = str(tmp_path / "cache")
    with jitdelegate.load(content, target="cuda", serialization_dir=cache, options=PARTITIONS) as model:
        report = model.report()
        found = np.asarray(model(X))
        again = np.asarray(model(X))
    assert report.cache.hit
    assert (report.target, report.delegated, len(report.operators)) == ("cuda", 3, 4)
    expected = np.asarray(jitdelegate.load(content, target="litert", serialization_dir=False)(X))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(again, found)


def test_litert_s_own_interpreter_hands_operators_to_the_gpu(gpu: Library, tmp_path: Path) -> None:
    content, expected = between_two_convolutions(), None
    for delegates in ([], [jitdelegate.GpuDelegate(target="cuda", serialization_dir=str(tmp_path), **PARTITIONS)]):
        interpreter = Interpreter(model_content=content, experimental_delegates=delegates)
        for delegate in delegates:
            program = delegate._hosted.main.program  # type: ignore[union-attr]
            assert [partition.place for partition in program.partitions] == ["cuda", "cuda"]
        interpreter.allocate_tensors()
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], X)
        interpreter.invoke()
        found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
        expected = found if expected is None else expected
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_dumped_kernel_is_replayed_on_a_gpu(tmp_path: Path, gpu: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ModelBuilder()
    x = model.input((2, 40), name="x")
    model.output(model.op("TANH", [x], (2, 40), name="y"))
    monkeypatch.setenv("JITDELEGATE_DUMP", str(tmp_path / "dump"))
    _compile(model.finish(), tmp_path)
    (path,) = tmp_path.glob("dump/00_cuda_*/kernels/*.npz")
    found = replay.replay(
        path, DelegateOptions(target="cuda", profile=True, serialization_dir=str(tmp_path / "cache")), runs=2
    )
    assert found.error < TOLERANCES["float32"]
    assert len(found.times) == 1 and "100.0% Map" in found.times[0]


def cache_step() -> bytes:
    """A cache of rows, one of which is replaced, and the sums of its columns."""
    builder = ModelBuilder()
    cache, row = builder.input((4, 8), "float32", name="cache"), builder.input((1, 8), "float32", name="row")
    start = builder.input((2,), "int32", name="start")
    updated, sums = builder.tensor((4, 8), "float32"), builder.tensor((8,), "float32")
    builder.node("DYNAMIC_UPDATE_SLICE", (cache, row, start), (updated,))
    axis = builder.constant(np.int32([0]), name="axis")
    builder.node("SUM", (updated, axis), (sums,))
    builder.output(updated, sums)
    return builder.finish()


def test_a_cache_on_the_gpu_is_updated_in_place_and_nothing_is_copied(gpu: Library, tmp_path: Path) -> None:
    model = _load(cache_step(), tmp_path)
    session = model._opened.session
    assert session is not None
    ports = (*session.program.inputs, *session.program.outputs)
    places = [session.make_place(position, on_device=True) for position in range(len(ports))]
    cache, row, start, other, sums = (
        TensorBuffer(place, port.dtype, port.shape) for place, port in zip(places, ports, strict=True)
    )
    expected = np.zeros((4, 8), np.float32)
    cache.write(expected)
    in_place = session.bind([each.place for each in (cache, row, start, cache, sums)])
    apart = session.bind([each.place for each in (cache, row, start, other, sums)])
    for step in range(3):
        expected[step] = step + 1
        row.write(expected[step])
        start.write(np.int32([step, 0]))
        before = gpu.calls.copy()
        session.run_bound(in_place)
        assert not any("Memcpy" in name for name in gpu.calls - before)
        np.testing.assert_array_equal(cache.read(), expected)
        np.testing.assert_array_equal(sums.read(), expected.sum(0))
    row.write(np.full(8, 7, np.float32))
    before = gpu.calls.copy()
    session.run_bound(apart)
    assert (gpu.calls - before)["cuMemcpyDtoDAsync_v2"] == 1  # the cache, to where the rest of it stays
    np.testing.assert_array_equal(cache.read(), expected)
    expected[2] = 7
    np.testing.assert_array_equal(other.read(), expected)
    model.close()
    assert set(gpu.leaks()) == {"DeviceRange"}  # the buffers'
