"""3 by 3 windows of floats by Winograd's algorithms against numpy, on every level."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jitdelegate import passes
from jitdelegate.base.options import DelegateOptions
from jitdelegate.base.targets import LEVELS as ROWS
from jitdelegate.engine.load_path import find_key
from jitdelegate.ir.expr import RESULT, Arg
from jitdelegate.ir.forms import Contract, Shape
from jitdelegate.ir.graph import Graph, Tensor
from jitdelegate.ir.layout import Layout
from jitdelegate.program.known_constants import NO_CONSTANTS
from jitdelegate.targets import target_named
from jitdelegate.targets.cpu.generate import generate
from jitdelegate.targets.cpu.multiply.products import Products
from jitdelegate.targets.cpu.multiply.winograd_algorithm import Algorithm
from jitdelegate.targets.cpu.products import choose_winograd
from jitdelegate.targets.reference.evaluate import run_graph
from tests.targets.execute import execute
from tests.targets.fenced import run_fenced
from tests.targets.integer_graphs import graph_of
from tests.targets.levels import RUNNABLE
from tests.targets.test_cpu_graphs import Network
from tests.targets.test_cpu_winograd import names_of

BOUND = 2e-6
"""Largest NRMSE: the direct way is at some 3e-7."""
BOTH = pytest.mark.parametrize("algorithm", choose_winograd.OF_FLOATS, ids=lambda algorithm: f"F({algorithm.step},3)")
LEVELS = pytest.mark.parametrize("features", RUNNABLE)


@pytest.fixture
def forced(algorithm: Algorithm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes one algorithm, whatever it costs."""
    monkeypatch.setattr(choose_winograd, "OF_FLOATS", (algorithm,))
    monkeypatch.setattr(choose_winograd, "GAIN", 0)


def window(data: Shape, outputs: int, padding: int = 1, *, streams: bool = False, dtype: str = "float32") -> Graph:
    """One window over the caller's data; its epilogue may add a tensor and multiply by one number for each pixel."""
    random, shape = np.random.default_rng(3), (data[0], data[1] + 2 * padding - 2, data[2] + 2 * padding - 2, outputs)
    weights = random.normal(0, 1 / np.sqrt(9 * data[3]), (outputs, 3, 3, data[3])).astype(dtype).astype(np.float32)
    bias = random.normal(0, 1, outputs).astype(np.float32)
    further = [Tensor("residual", shape, "float32"), Tensor("of pixels", (*shape[:3], 1), "float32")] * streams
    epilogue = (RESULT + Arg(1)) * Arg(2) if streams else RESULT
    form = Contract(kernel=(3, 3), padding=(padding,) * 4, epilogue=epilogue)
    return graph_of(form, Tensor("x", data, "float32"), shape, weights=weights, bias=bias, streams=further)


def feeds_of(graph: Graph) -> list[np.ndarray]:
    random = np.random.default_rng(4)
    return [random.normal(0, 1, graph.tensors[index].shape).astype(np.float32) for index in graph.inputs]


def error(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.sqrt(np.mean((found - expected) ** 2) / np.mean(expected**2)))


def check(graph: Graph, features: str, threads: int = 1) -> None:
    feeds = feeds_of(graph)
    (found,), (expected,) = execute(graph, feeds, features, threads=threads), run_graph(graph, feeds)
    assert error(found, expected) < BOUND


@BOTH
def test_matrices_give_the_convolution(algorithm: Algorithm) -> None:
    random = np.random.default_rng(0)
    data, taps = random.normal(size=algorithm.side), random.normal(size=3)
    numbers, sums = (second @ first for first, second in (algorithm.data, algorithm.results))
    found = sums @ ((numbers @ data) * (algorithm.filter @ taps))
    np.testing.assert_allclose(found, np.correlate(data, taps, "valid"), rtol=1e-12)


@LEVELS
@BOTH
@pytest.mark.parametrize("columns", [5, 6, 7, 8])
@pytest.mark.parametrize("rows", [5, 6, 7, 8])
@pytest.mark.usefixtures("forced")
def test_tiles_may_reach_over_the_border(rows: int, columns: int, features: str) -> None:
    graph = window((1, rows, columns, 16), 20)
    assert "winograd" in names_of(graph, features)
    check(graph, features)


@LEVELS
@BOTH
@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.usefixtures("forced")
def test_what_is_not_finite_stays_in_its_tiles(number: float, algorithm: Algorithm, features: str) -> None:
    graph = window((1, 24, 24, 16), 16)
    (feed,) = feeds_of(graph)
    (before,) = execute(graph, [feed], features)
    feed[0, 12, 12, 3] = number
    (after,) = execute(graph, [feed], features)
    assert not np.isfinite(after[0, 11:14, 11:14]).any()
    far = np.abs(np.arange(24) - 12) > algorithm.step
    np.testing.assert_array_equal(after[0, far], before[0, far])
    np.testing.assert_array_equal(after[0, :, far], before[0, :, far])


@LEVELS
@BOTH
@pytest.mark.parametrize("channels, outputs", [(16, 1), (32, 40), (48, 130), (600, 16)])
@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.usefixtures("forced")
def test_channels_may_be_few_or_many(padding: int, channels: int, outputs: int, features: str) -> None:
    check(window((2, 9, 11, channels), outputs, padding), features)


@LEVELS
@BOTH
@pytest.mark.parametrize("channels", [17, 24, 40])
@pytest.mark.usefixtures("forced")
def test_vectors_of_blocked_images_need_not_be_full(channels: int, features: str) -> None:
    net = Network(np.random.default_rng(0))
    graph = passes.run(net.graph(net.conv(net.conv(net.conv(net.input(1, 9, 10, 3), channels), channels, 3), 8)))
    assert "winograd" in names_of(graph, features)
    check(graph, features)


@LEVELS
@BOTH
@pytest.mark.parametrize("outputs", [16, 20])
@pytest.mark.usefixtures("forced")
def test_an_epilogue_reads_other_tensors(outputs: int, features: str) -> None:
    check(window((2, 9, 7, 16), outputs, streams=True), features)


@LEVELS
@BOTH
@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.usefixtures("forced")
def test_no_byte_outside_the_callers_memory_is_touched(at_end: bool, features: str) -> None:
    for padding in (0, 1):
        graph = window((1, 9, 7, 16), 20, padding, streams=True)
        feeds = feeds_of(graph)
        (found,) = run_fenced(graph, feeds, features, at_end=at_end)
        assert error(found, run_graph(graph, feeds)[0]) < BOUND


@LEVELS
@pytest.mark.parametrize("data, outputs", [((1, 70, 22, 32), 32), ((1, 15, 14, 64), 160), ((3, 9, 9, 32), 32)])
def test_threads_share_tiles_and_outputs(data: Shape, outputs: int, features: str) -> None:
    graph = window(data, outputs)
    assert "winograd" in names_of(graph, features)
    check(graph, features, threads=2)


@pytest.mark.parametrize("size, channels, chunks", [(14, 64, 2), (14, 256, 4), (28, 128, 6)])
def test_small_images_are_cut_for_threads(size: int, channels: int, chunks: int) -> None:
    generated = generate(window((1, size, size, channels), channels), "x86-64-v4")
    assert sum(kernel.chunks for kernel in generated.kernels if "winograd" in kernel.name) == chunks


@LEVELS
def test_weights_of_float16_are_taken(features: str) -> None:
    graph = window((1, 20, 20, 32), 64, dtype="float16")
    assert "winograd" in names_of(graph, features)
    check(graph, features)


def step_for(size: int, channels: int, lanes: int, **window: tuple[int, int]) -> int:
    """Results along a side of a tile of a window over a blocked image; 0 where it is computed directly."""
    level = next(level for level in ROWS.values() if level.lanes == lanes)
    weights, image = np.zeros((channels, 3, 3, channels), np.float32), Layout((1, size, size, channels), lanes, True)
    form = replace(Contract(kernel=(3, 3)), **window)
    found = choose_winograd.algorithm_for(form, Products(level), weights, image, image)
    return found.step if found else 0


@pytest.mark.parametrize(
    "size, channels, lanes, step",
    [
        *((112, 32, 16, 4), (56, 64, 16, 4), (28, 128, 8, 4), (14, 256, 16, 4), (14, 256, 8, 2), (14, 16, 8, 4)),
        *((7, 256, 16, 2), (7, 256, 8, 0), (7, 16, 8, 4), (4, 16, 8, 0)),
    ],
)
def test_the_algorithm_is_the_one_that_was_measured_to_be_fastest(
    size: int, channels: int, lanes: int, step: int
) -> None:
    assert step_for(size, channels, lanes) == step


@pytest.mark.parametrize("window", [{"stride": (1, 2)}, {"dilation": (2, 1)}, {"kernel": (3, 5)}])
def test_other_windows_are_computed_directly(window: dict[str, tuple[int, int]]) -> None:
    assert step_for(56, 64, 16, **window) == 0


def test_it_is_kept_off_where_memory_comes_before_latency() -> None:
    graph, target = window((1, 20, 20, 32), 64), target_named("cpu")
    generated = []
    for options in (DelegateOptions(), DelegateOptions(inference_priority2="MIN_MEMORY_USAGE")):
        key = find_key(target.find_device(options), options, "0")
        generated.append(target.generate(graph, options, key, lambda *_: None, NO_CONSTANTS))
    names = [" ".join(kernel.name for kernel in each.kernels) for each in generated]
    assert ["winograd" in each for each in names] == [True, False], names
    fast, small = (len(each.weights) for each in generated)
    assert fast > 3 * small


@LEVELS
def test_a_deep_network_stays_as_exact(features: str) -> None:
    net = Network(np.random.default_rng(0))
    x = net.conv(net.input(1, 28, 28, 3), 32, 3)
    for _ in range(8):
        x = net.same("ADD", x, net.conv(net.conv(x, 32, 3), 32, 3, activation="NONE"), fused_activation_function="RELU")
    graph = passes.run(net.graph(x))
    assert names_of(graph, features).count("winograd") > 1
    check(graph, features)
