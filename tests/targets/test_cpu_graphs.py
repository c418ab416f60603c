"""Whole graphs on the CPU target: layouts, halos, fusion and memory reuse together, against the form interpreter."""

from __future__ import annotations

import ctypes
import mmap
import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from jitdelegate import passes
from jitdelegate.ir.graph import ABSENT, Graph, Node, Quant, Tensor
from jitdelegate.ops import OPS
from jitdelegate.targets.cpu.code import tasks
from jitdelegate.targets.cpu.code.kernel import Generator
from jitdelegate.targets.cpu.generate import generate
from jitdelegate.targets.host import level
from jitdelegate.targets.reference.evaluate import run_graph
from tests.targets.execute import execute
from tests.targets.levels import LEVELS, RUNNABLE

IMAGE = (1, 5, 6, 16)


@dataclass
class Network:
    """Builds a graph operator by operator; output shapes are the operators' own."""

    random: np.random.Generator
    tensors: list[Tensor] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)

    def input(self, *shape: int) -> int:
        return self.add(Tensor("input", shape, "float32"))

    def weights(self, *shape: int) -> int:
        values = self.random.normal(0, 1 / np.sqrt(max(1, np.prod(shape[1:]))), shape).astype(np.float32)
        return self.add(Tensor("weights", shape, "float32", values))

    def integers(self, *values: object) -> int:
        data = np.array(values, np.int32)
        return self.add(Tensor("integers", data.shape, "int32", data))

    def op(self, name: str, *inputs: int, shape: tuple[int, ...], **attrs: object) -> int:
        output = self.add(Tensor(name, shape, "float32"))
        self.nodes.append(Node(name, inputs, (output,), attrs, origin=(len(self.nodes),)))
        return output

    def conv(self, x: int, channels: int, kernel: int = 1, stride: int = 1, activation: str = "RELU") -> int:
        n, h, w, c = self.tensors[x].shape
        shape = (n, -(-h // stride), -(-w // stride), channels)
        filters, bias = self.weights(channels, kernel, kernel, c), self.weights(channels)
        options = {"padding": "SAME", "stride_h": stride, "stride_w": stride, "fused_activation_function": activation}
        return self.op("CONV_2D", x, filters, bias, shape=shape, **options)

    def depthwise(self, x: int, kernel: int = 3, stride: int = 1, dilation: int = 1) -> int:
        n, h, w, c = self.tensors[x].shape
        shape = (n, -(-h // stride), -(-w // stride), c)
        filters, bias = self.weights(1, kernel, kernel, c), self.weights(c)
        options = {"padding": "SAME", "stride_h": stride, "stride_w": stride, "depth_multiplier": 1}
        options |= {"dilation_h_factor": dilation, "dilation_w_factor": dilation}
        return self.op("DEPTHWISE_CONV_2D", x, filters, bias, shape=shape, **options)

    def same(self, name: str, *inputs: int, **attrs: object) -> int:
        return self.op(name, *inputs, shape=self.tensors[inputs[0]].shape, **attrs)

    def graph(self, *outputs: int) -> Graph:
        inputs = tuple(i for i, t in enumerate(self.tensors) if t.name == "input")
        graph = Graph(tuple(self.tensors), tuple(self.nodes), inputs, outputs)
        for node in graph.nodes:
            assert OPS[node.op].check(graph, node) is None
        return graph

    def add(self, tensor: Tensor) -> int:
        self.tensors.append(tensor)
        return len(self.tensors) - 1


def residual(net: Network) -> Graph:
    """Stem, residual block with PRELU, channel padding after pooling, as face detectors have them."""
    x = net.input(2, 33, 29, 3)
    x = net.conv(x, 24, 5, 2)
    y = net.conv(net.depthwise(x), 24, activation="NONE")
    x = net.same("PRELU", net.same("ADD", y, x), net.weights(1, 1, 24))
    y = net.conv(net.depthwise(x, 5, 2), 40, activation="NONE")
    pool = {"padding": "SAME", "stride_h": 2, "stride_w": 2, "filter_height": 2, "filter_width": 2}
    x = net.op("MAX_POOL_2D", x, shape=(2, 9, 8, 24), **pool)
    x = net.op("PAD", x, net.integers((0, 0), (0, 0), (0, 0), (0, 16)), shape=(2, 9, 8, 40))
    x = net.same("RELU", net.same("ADD", y, x))
    scores = net.op("RESHAPE", net.conv(x, 6, activation="NONE"), net.integers(2, -1, 2), shape=(2, 216, 2))
    return net.graph(scores, x)


def pyramid(net: Network) -> Graph:
    """Upsampling by transposed convolution and resizing, concatenation aligned and not, a map that gates another."""
    x = net.input(1, 17, 19, 16)
    low = net.conv(x, 32, 3, 2)
    filters = net.weights(16, 3, 3, 32)
    sizes = net.integers(1, 17, 19, 16)
    options = {"padding": "SAME", "stride_h": 2, "stride_w": 2}
    up = net.op("TRANSPOSE_CONV", sizes, filters, low, net.weights(16), shape=(1, 17, 19, 16), **options)
    wide = net.op("RESIZE_BILINEAR", low, net.integers(17, 19), shape=(1, 17, 19, 32), half_pixel_centers=True)
    odd = net.op("CONCATENATION", net.conv(x, 5), wide, up, shape=(1, 17, 19, 53), axis=3)
    even = net.op("CONCATENATION", wide, up, shape=(1, 17, 19, 48), axis=-1)
    gate = net.op("MEAN", even, net.integers(1, 2), shape=(1, 1, 1, 48), keep_dims=True)
    gated = net.same("MUL", even, net.same("LOGISTIC", net.conv(gate, 48, activation="NONE")))
    joined = net.op("CONCATENATION", gated, even, shape=(1, 34, 19, 48), axis=1)
    return net.graph(net.conv(odd, 7, 3), net.conv(joined, 21, 3, activation="RELU6"), gate)


def separable(net: Network) -> Graph:
    """Large enough that depthwise and 1x1 are computed strip by strip, with a number of rows that is no multiple."""
    x = net.input(1, 131, 127, 20)
    x = net.conv(net.depthwise(x), 18)
    x = net.conv(net.depthwise(x, 3, 1, 2), 33, activation="NONE")
    x = net.same("HARD_SWISH", x)
    return net.graph(net.op("MEAN", x, net.integers(1, 2), shape=(1, 33), keep_dims=False))


def layers(net: Network) -> Graph:
    """The same layer five times, with other weights."""
    x = net.input(1, 1, 16, 24)
    for _ in range(5):
        x = net.same("SOFTMAX", net.conv(x, 24), beta=1.0)
    return net.graph(x)


def tokens(net: Network) -> Graph:
    """No image: fully connected layers, softmax, slices and transposes of rank 2 and 3."""
    x = net.input(3, 7, 50)
    flat = net.op("RESHAPE", x, net.integers(21, 50), shape=(21, 50))
    dense = net.op("FULLY_CONNECTED", flat, net.weights(37, 50), ABSENT, shape=(21, 37))
    soft = net.same("SOFTMAX", dense, beta=0.5)
    back = net.op("RESHAPE", soft, net.integers(3, 7, 37), shape=(3, 7, 37))
    turned = net.op("TRANSPOSE", back, net.integers(2, 0, 1), shape=(37, 3, 7))
    part = net.op("SLICE", turned, net.integers(5, 0, 2), net.integers(19, 3, 5), shape=(19, 3, 5))
    total = net.op("MEAN", part, net.integers(0, 2), shape=(3,), keep_dims=False)
    return net.graph(net.same("TANH", net.same("SUB", part, net.op("MEAN", part, net.integers(2), shape=(19, 3, 1),
                                                                   keep_dims=True))), total)  # fmt: skip


NETWORKS = (layers, residual, pyramid, separable, tokens)


@pytest.mark.parametrize("features", LEVELS)
@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
@pytest.mark.parametrize("threads", (1, 3))
def test_a_network_computes_what_its_forms_say(network: object, features: str, threads: int) -> None:
    if features not in RUNNABLE:
        pytest.skip(f"this CPU is {level()}, the case needs {features}")
    graph = _lowered(network)
    random = np.random.default_rng(1)
    feeds = [random.normal(0, 1, graph.tensors[i].shape).astype(np.float32) for i in graph.inputs]
    for found, expected in zip(execute(graph, feeds, features, threads=threads), run_graph(graph, feeds), strict=True):
        scale = float(np.abs(expected).max())
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * scale)


def _lowered(network: object) -> Graph:
    assert callable(network)
    return passes.run(network(Network(np.random.default_rng(0))))


def test_a_large_depthwise_is_fused_with_the_pointwise_layer_after_it() -> None:
    forms = [kernel.form for kernel in generate(_lowered(separable), "x86-64-v3").kernels]
    assert forms.count("Depthwise+Contract") == 2


def test_bytes_that_floats_become_are_stored_before_they_are_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "FUSE_BYTES", 0)
    net = Network(np.random.default_rng(0))
    options = {"padding": "SAME", "stride_h": 1, "stride_w": 1}
    x = net.op("DEPTHWISE_CONV_2D", net.input(*IMAGE), net.weights(1, 3, 3, 16), ABSENT, shape=IMAGE, **options)
    stored, result = (Quant((scale,), (zero,)) for scale, zero in ((0.05, 3), (0.4, 1)))
    net.nodes.append(Node("QUANTIZE", (x,), (net.add(Tensor("bytes", IMAGE, "int8", quant=stored)),), origin=(1,)))
    filters = net.random.integers(-127, 128, (8, 1, 1, 16)).astype(np.int8)
    weights = Tensor("filters", filters.shape, "int8", filters, quant=Quant((0.01,), (0,)))
    inputs = (*net.nodes[-1].outputs, net.add(weights), ABSENT)
    output = net.add(Tensor("result", (1, 5, 6, 8), "int8", quant=result))
    net.nodes.append(Node("CONV_2D", inputs, (output,), options, origin=(2,)))
    graph = passes.run(net.graph(output))
    feeds = [net.random.normal(size=graph.tensors[index].shape).astype(np.float32) for index in graph.inputs]
    for features in RUNNABLE:
        (found,), (expected,) = execute(graph, feeds, features), run_graph(graph, feeds)
        assert np.abs(found.astype(int) - expected).max() <= 1  # a sum of floats that rounds to the next byte


def test_an_epilogue_reads_an_input_without_axes() -> None:
    net = Network(np.random.default_rng(0))
    product = net.conv(net.input(1, 3, 4, 5), 6)
    graph = passes.run(net.graph(net.same("MUL", product, net.input())))
    assert len(graph.nodes) == 1
    feeds = [net.random.normal(size=graph.tensors[index].shape).astype(np.float32) for index in graph.inputs]
    for found, expected in zip(execute(graph, feeds, level()), run_graph(graph, feeds), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_equal_layers_share_code_and_keep_their_own_weights() -> None:
    graph = _lowered(layers)
    made = generate(graph, "x86-64-v3")
    contracts = [kernel.name for kernel in made.kernels if kernel.form == "Contract"]
    assert len(contracts) == 5
    assert len({*contracts}) == 2, "the last layer has another layout"
    assert len(made.weights) > 5 * 4 * 24 * 24


def test_equal_layers_are_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    job = Generator.job

    def counted(self: Generator, form: str, *arguments: Any, **keywords: Any) -> Any:
        written.append(form)
        return job(self, form, *arguments, **keywords)

    def steps_and_writings(layers: int) -> tuple[int, list[str]]:
        net = Network(np.random.default_rng(0))
        x, shape = net.input(3, 40), (3, 40)
        for _ in range(layers):
            largest = net.op("REDUCE_MAX", x, net.integers(1), shape=(3, 1), keep_dims=True)
            x = net.op("DIV", largest, net.op("ABS", x, shape=shape), shape=shape)
        written.clear()
        made = generate(passes.run(net.graph(x)), "x86-64-v3")
        return len(made.kernels), sorted(written)

    monkeypatch.setattr(Generator, "job", counted)
    few, many = steps_and_writings(12), steps_and_writings(24)
    assert many[0] > few[0]
    assert many[1] == few[1]


def test_layers_that_differ_in_the_sign_of_a_zero_are_no_equal_ones() -> None:
    net = Network(np.random.default_rng(0))
    x, found = net.input(2, 40), list[int]()
    for zero in (0.0, -0.0):
        border = net.add(Tensor("zero", (), "float32", np.array(zero, np.float32)))
        found.append(net.op("PADV2", x, net.integers((0, 1), (0, 0)), border, shape=(3, 40)))
    graph = passes.run(net.graph(*found))
    above, below = execute(graph, [np.ones((2, 40), np.float32)], level())
    assert np.signbit(below[2]).all() and not np.signbit(above[2]).any()


def test_the_weights_of_two_equal_layers_are_stored_once() -> None:
    net = Network(np.random.default_rng(0))
    x, filters, bias = net.input(1, 1, 16, 24), net.weights(24, 1, 1, 24), net.weights(24)
    options = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "fused_activation_function": "RELU"}
    for _ in range(3):
        x = net.op("CONV_2D", x, filters, bias, shape=(1, 1, 16, 24), **options)
    made = generate(passes.run(net.graph(x)), "x86-64-v3")
    assert [kernel.form for kernel in made.kernels].count("Contract") == 3
    assert len(made.weights) < 2 * 4 * 24 * 25


def test_a_reshape_of_dense_memory_costs_no_kernel() -> None:
    forms = [kernel.form for kernel in generate(_lowered(tokens), "x86-64-v3").kernels]
    assert "Copy" not in forms


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
def test_equal_graphs_give_equal_bytes(network: object) -> None:
    first, second = (generate(_lowered(network), "x86-64-v4") for _ in range(2))
    assert first == second


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
def test_memory_is_reused(network: object) -> None:
    graph = _lowered(network)
    written = sum(4 * graph.tensors[node.outputs[0]].size for node in graph.nodes)
    assert generate(graph, "x86-64-v3").arena_bytes < 2 * written


@pytest.mark.skipif(sys.platform != "linux", reason="protects a page through libc")
def test_the_callers_memory_is_not_read_beyond_its_end() -> None:
    """A gate of 17 channels ends where its buffer ends: behind it lies a page that must not be touched."""
    net = Network(np.random.default_rng(0))
    gate = net.input(1, 1, 1, 17)
    image = net.input(1, 6, 5, 17)
    graph = passes.run(net.graph(net.conv(net.same("MUL", net.conv(image, 17, 3), gate), 5)))
    random = np.random.default_rng(1)
    feeds = [random.normal(0, 1, graph.tensors[i].shape).astype(np.float32) for i in graph.inputs]
    page = mmap.PAGESIZE
    pages = mmap.mmap(-1, 2 * page)
    libc = ctypes.CDLL(None, use_errno=True)
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    assert libc.mprotect(ctypes.c_void_p(start + page), page, 0) == 0
    edge = np.frombuffer(pages, np.float32, count=17, offset=page - 4 * 17).reshape(1, 1, 1, 17)
    edge[...] = feeds[0]
    for features in RUNNABLE:
        (found,) = execute(graph, [edge, feeds[1]], features)
        np.testing.assert_allclose(found, run_graph(graph, feeds)[0], atol=1e-5)


@pytest.mark.parametrize(("network", "shares"), [(tokens, False), (separable, True)])
def test_only_a_graph_whose_steps_have_several_chunks_has_workers(network: object, shares: bool) -> None:
    texts: dict[str, str] = {}
    generate(_lowered(network), "x86-64-v3", lambda stage, make: texts.update({stage: make()}))
    assert ("@claim" in texts["kernels"]) == shares
