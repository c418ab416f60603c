"""A depthwise convolution and the 1x1 convolution after it in one CUDA kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from jitdelegate.ir.expr import RESULT, Arg, Cast, Expr, clamp, maximum
from jitdelegate.ir.forms import Contract, Depthwise, IndexMap
from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.ir.quantized import quantize
from jitdelegate.targets.cuda.code.gpu import GPUS
from jitdelegate.targets.cuda.plan.plan import plan
from jitdelegate.targets.cuda.products import separable
from jitdelegate.targets.cuda.walks.separable_kernel import SeparableFfma, SeparableMma
from tests.targets.cuda_execute import compiled, ptx_of, templates_of
from tests.targets.cuda_graphs import compare
from tests.targets.integer_graphs import size_of, whole_range
from tests.targets.test_cuda_integers import check

TOLERANCES = {"float32": 2e-5, "float16": 1e-2, "bfloat16": 8e-2, "tf32": 2e-2}
RELU6 = clamp(RESULT, 0.0, 6.0)
HARD_SWISH = RESULT * (clamp(RESULT + 3.0, 0.0, 6.0) * (1 / 6))


@dataclass(frozen=True)
class Pair:
    """A depthwise convolution of an image, and a 1x1 convolution to so many channels."""

    data: tuple[int, int, int, int]
    outputs: int
    kernel: tuple[int, int] = (3, 3)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (1, 1, 1, 1)
    first: Expr = RELU6
    second: Expr = RESULT
    residual: bool = False
    gate: bool = False
    bias: bool = True

    @property
    def graph(self) -> Graph:
        """The pair on the graph's first input; the operands of epilogues are further inputs."""
        random, channels = np.random.default_rng(5), self.data[3]
        window = Depthwise(kernel=self.kernel, stride=self.stride, dilation=self.dilation, padding=self.padding)
        size = size_of(window, self.data[1:3])
        between, output = (self.data[0], *size, channels), (self.data[0], *size, self.outputs)

        def constant(*shape: int) -> Tensor:
            scale = 2 / max(1, shape[-1]) ** 0.5
            return Tensor("constant", shape, "float32", random.uniform(-scale, scale, shape).astype(np.float32))

        tensors = [
            Tensor("data", self.data, "float32"),
            constant(1, *self.kernel, channels),
            constant(channels),
            Tensor("between", between, "float32"),
            constant(self.outputs, 1, 1, channels),
            constant(self.outputs),
            Tensor("output", output, "float32"),
            Tensor("residual", output, "float32"),
            Tensor("gate", between, "float32"),
        ]
        form = replace(window, epilogue=self.first, operands=(IndexMap.broadcast(between, between),) * self.gate)
        product = Contract(epilogue=self.second, operands=(IndexMap.broadcast(output, output),) * self.residual)
        nodes = (
            Node("DW", (0, 1, 2 if self.bias else ABSENT, *(8,) * self.gate), (3,), form=form, origin=(0,)),
            Node("PW", (3, 4, 5 if self.bias else ABSENT, *(7,) * self.residual), (6,), form=product, origin=(1,)),
        )
        return Graph(tuple(tensors), nodes, (0, *(7,) * self.residual, *(8,) * self.gate), (6,))


@pytest.fixture(autouse=True)
def joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pair that can be joined is."""
    monkeypatch.setattr(separable, "launch_cycles", lambda gpu: 10**9)


PAIRS = {
    "odd sizes, several images": Pair((2, 7, 9, 24), 40, second=HARD_SWISH),
    "stride 2, borders of one side": Pair(
        (1, 9, 12, 32), 24, stride=(2, 2), padding=(0, 1, 0, 1), residual=True, second=RESULT + Arg(1)
    ),
    "dilation": Pair((1, 11, 13, 16), 16, dilation=(2, 4), padding=(2, 2, 4, 4)),
    "5x5": Pair((1, 6, 10, 8), 20, kernel=(5, 5), padding=(2, 2, 2, 2), bias=False),
    "stride and dilation": Pair((1, 12, 12, 8), 8, stride=(2, 2), dilation=(2, 2), padding=(2, 1, 2, 1)),
    "a gate": Pair((1, 5, 6, 16), 20, gate=True, first=RESULT * Arg(1)),
    "many channels": Pair((1, 5, 3, 648), 36, first=HARD_SWISH, second=maximum(RESULT, 0.0)),
    "12 channels to 3": Pair((1, 9, 5, 12), 3, kernel=(2, 3), padding=(0, 0, 0, 0)),
}


def of_bytes(dtype: str, channels: int, outputs: int, zero: int, stride: int = 1, filter_zero: int = 0) -> Graph:
    """A pair of sums of integers on an image of 7x9 pixels with borders; taps of uint8 data are less their zero point,
    so wider than bytes."""
    size = (7, 9) if stride == 1 else (4, 5)
    own = {"input_zero": zero, "halo_value": zero, "accumulator": "int32"}
    rounded = Cast(RESULT, "float32") * Arg(1)
    between, output = (quantize(rounded, dtype, offset, *ENDS[dtype]) for offset in (zero, sum(ENDS[dtype]) // 2))
    taps = whole_range((1, 3, 3, channels), dtype, 1).astype("int16" if dtype == "uint8" else "int8")
    random = np.random.default_rng(4)
    constants = [
        taps,
        whole_range((channels,), "int32", 2) // 50_000,
        random.uniform(0.0005, 0.002, channels).astype(np.float32),
        whole_range((outputs, 1, 1, channels), "int8", 3),
        (random.uniform(0.3, 1, outputs) / channels / 128).astype(np.float32),
    ]
    shapes = (2, 7, 9, channels), (2, *size, channels), (2, *size, outputs)
    tensors = (
        *(Tensor("t", shape, dtype) for shape in shapes),
        *(Tensor("c", c.shape, str(c.dtype), c) for c in constants),
    )
    along = (IndexMap.along(3),)
    steps = {"kernel": (3, 3), "stride": (stride, stride), "padding": (1, 1, 1, 1)}
    nodes = (
        Node("DW", (0, 3, 4, 5), (1,), form=Depthwise(between, along, **steps, **own)),
        Node("PW", (1, 6, ABSENT, 7), (2,), form=Contract(output, along, **own, filter_zero=filter_zero)),
    )
    return Graph(tensors, nodes, (0,), (2,))


ENDS = {"int8": (-128, 127), "uint8": (0, 255)}
BYTES = {
    "int8": of_bytes("int8", 24, 40, -7),
    "uint8 less 128": of_bytes("uint8", 16, 24, 131, stride=2),
    "uint8 from 0": of_bytes("uint8", 24, 12, 0, filter_zero=-128),
    "uint8 from 255, many channels": of_bytes("uint8", 520, 20, 255, stride=2, filter_zero=127),
    "uint8 from 1, few channels": of_bytes("uint8", 4, 3, 1, filter_zero=-127),
}


@pytest.mark.parametrize("architecture", ["sm_75", "sm_90"])
@pytest.mark.parametrize("name", BYTES)
def test_a_pair_of_bytes_is_exact(name: str, architecture: str) -> None:
    (template,) = templates_of(BYTES[name], architecture)
    assert isinstance(template, SeparableMma)
    check(BYTES[name], architecture=architecture)


IN_FLOAT32 = ("odd sizes, several images", "dilation", "5x5", "a gate")


@pytest.mark.parametrize("name", IN_FLOAT32)
def test_a_pair_of_float32_agrees_with_the_reference(name: str) -> None:
    graph = PAIRS[name].graph
    (template,) = templates_of(graph)
    assert isinstance(template, SeparableFfma)
    compare(graph, tolerance=TOLERANCES["float32"])


@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_on_tensor_cores_agrees_with_the_reference(name: str) -> None:
    graph = PAIRS[name].graph
    (template,) = templates_of(graph, precision="float16")
    assert isinstance(template, SeparableMma)
    compare(graph, "float16", tolerance=TOLERANCES["float16"])


@pytest.mark.parametrize("precision", ["bfloat16", "tf32"])
def test_a_pair_of_any_precision_agrees_with_the_reference(precision: str) -> None:
    compare(PAIRS["12 channels to 3"].graph, precision, tolerance=TOLERANCES[precision])


def test_turing_computes_pairs_without_asynchronous_copies() -> None:
    graph = PAIRS["dilation"].graph
    (template,) = templates_of(graph, "sm_75", "float16")
    assert "cp.async" not in ptx_of(template, "sm_75")
    compare(graph, "float16", architecture="sm_75", tolerance=TOLERANCES["float16"])


def test_a_result_that_others_need_is_stored() -> None:
    graph = PAIRS["12 channels to 3"].graph
    between = graph.nodes[0].outputs[0]
    shown = replace(graph, outputs=(*graph.outputs, between))
    assert [launch.form for launch in plan(shown, GPUS["sm_90"], "float16").launches] == ["Depthwise", "Contract"]


def test_launches_are_joined_where_that_takes_less_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    small, wide = Pair((1, 28, 28, 64), 64).graph, Pair((8, 28, 28, 128), 1024).graph
    assert len(templates_of(small, precision="float16")) == 1
    assert len(templates_of(wide)) == 2  # many blocks would compute the same pixels


@pytest.mark.parametrize("number, architecture", [(0, "sm_75"), (1, "sm_90"), (2, "sm_120")])
def test_templates_compile_without_spills(number: int, architecture: str) -> None:
    stride = 1 + number % 3 // 2
    floats, bytes_ = Pair((1, 28, 28, 256), 256, stride=(stride,) * 2).graph, of_bytes("uint8", 256, 256, 9, stride, 3)
    for graph in floats, bytes_:
        (template,) = templates_of(graph, architecture, "float32" if number % 2 else "float16")
        compiled(template, architecture)
