"""What kernels cannot count or reach is refused in one sentence while launches are planned, before it takes memory."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from jitdelegate.errors import CompileError, DeviceError
from jitdelegate.ir.expr import RESULT
from jitdelegate.ir.forms import Contract, Form, IndexMap, Map, Reduce
from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.targets.cuda.code import writer as writing
from jitdelegate.targets.cuda.code.cost import COPIED, LATENCY_CYCLES
from jitdelegate.targets.cuda.code.gpu import GPUS, gpu_of
from jitdelegate.targets.cuda.code.writer import Writer
from jitdelegate.targets.cuda.plan.plan import plan
from jitdelegate.targets.cuda.walks.ffma_kernel import Ffma
from jitdelegate.targets.cuda.walks.mma_kernel import Mma
from jitdelegate.targets.planning.epilogue import reach
from tests.targets.recurrent_graphs import LSTM, recurrent

ZERO = np.zeros((), np.float32)


def node_of(form: Form, data: tuple[int, ...], weights: tuple[int, ...], output: tuple[int, ...]) -> Graph:
    """A contraction without bias; its weights are zeros that take no memory."""
    tensors = (
        Tensor("data", data, "float32"),
        Tensor("weights", weights, "float32", np.broadcast_to(ZERO, weights)),
        Tensor("output", output, "float32"),
    )
    return Graph(tensors, (Node("CONV_2D", (0, 1, ABSENT), (2,), form=form),), (0,), (2,))


def mapped(shape: tuple[int, ...], access: IndexMap, output: tuple[int, ...], dtype: str = "float32") -> Graph:
    tensors = (Tensor("data", shape, dtype), Tensor("output", output, dtype))
    return Graph(tensors, (Node("SLICE", (0,), (1,), form=Map(RESULT, (access,))),), (0,), (1,))


REFUSED = {
    "a tensor": (mapped((1 << 29,), IndexMap((0,), (0,), (1,)), (1 << 29,)), "'data' has 2147483648 bytes"),
    "elements of one byte": (
        mapped(((1 << 30) + 1,), IndexMap((0,), (0,), (1,)), ((1 << 30) + 1,), "int8"),
        "'data' has 1073741825 elements",
    ),
    "weights padded to whole tiles": (
        node_of(Contract(groups=1 << 20), (1, 1, 5, 1 << 20), (1 << 20, 1, 1, 1), (1, 1, 5, 1 << 20)),
        "A constant of",
    ),
    "an offset": (
        mapped((2, 1 << 20), IndexMap((0, -1), (-(1 << 20), 0), (1, 1), 0.0), (1 << 21, 1)),
        "expected 32 bits",
    ),
    "zeros around an image": (
        node_of(Contract(stride=(1 << 15,) * 2, padding=(0, 1 << 15) * 2), (1, 1, 1, 4), (8, 1, 1, 4), (1, 2, 2, 8)),
        "zeros 32768 rows and columns",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_too_large_is_refused(case: str) -> None:
    graph, reason = REFUSED[case]
    with pytest.raises(CompileError) as caught:
        plan(graph, GPUS["sm_90"], "float32")
    assert reason in str(caught.value)


def test_too_many_blocks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "LARGEST_GRID", (1 << 31, 1, 1))
    with pytest.raises(CompileError, match=r"grid of \(1, \d, 1\) blocks"):
        plan(node_of(Contract(), (5, 1), (128, 1), (5, 128)), GPUS["sm_90"], "float16")


def test_an_intermediate_result_that_is_too_large_is_refused() -> None:
    graph, _ = REFUSED["a tensor"]
    with pytest.raises(CompileError, match="intermediate"):
        Writer(graph, GPUS["sm_90"], "float32").temporary(1 << 31)


def test_too_many_launches_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes of two launches, one that shares out K and one that adds up, after which there is another node."""
    shapes = (49, 4608), (64, 4608), (49, 64)
    tensors = [tensor for _ in range(2) for tensor in node_of(Contract(), *shapes).tensors]
    nodes = [Node("CONV_2D", (at, at + 1, ABSENT), (at + 2,), form=Contract()) for at in (0, 3)]
    nodes.append(Node("SUM", (2,), (6,), form=Reduce(kind="sum", axes=(1,))))
    graph = Graph((*tensors, Tensor("sum", (49, 1), "float32")), tuple(nodes), (0, 3), (5, 6))
    monkeypatch.setattr("jitdelegate.targets.planning.buffer_plan.MOST_STEPS", 3)
    with pytest.raises(CompileError, match="4 launches, expected at most 3"):
        plan(graph, GPUS["sm_80"], "float16")


def test_a_form_without_a_kernel_is_refused() -> None:
    class Unheard(Form):
        pass

    graph, _ = REFUSED["a tensor"]
    tensors = tuple(replace(tensor, shape=(4,)) for tensor in graph.tensors)
    nodes = (replace(graph.nodes[0], form=Unheard()),)
    with pytest.raises(CompileError, match="SLICE needs a Unheard, which has no CUDA kernel"):
        plan(replace(graph, tensors=tensors, nodes=nodes), GPUS["sm_90"], "float32")


def test_a_row_that_is_read_for_every_pixel_is_no_operand_that_an_epilogue_can_follow() -> None:
    """It has the output's shape, but only its first row is read."""
    assert reach(IndexMap((-1, 1), (0, 0), (1, 1)), (4, 8), (4, 8)) is None
    assert reach(IndexMap((0, 1), (0, 0), (1, 1)), (4, 8), (4, 8)) is not None


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_fewer_multiprocessors_take_larger_tiles_and_share_out_less(precision: str) -> None:
    graph = node_of(Contract(), (196, 512), (512, 512), (196, 512))
    whole, slice_ = (plan(graph, gpu_of(kind), precision).launches for kind in ("sm_90:132", "sm_90:60"))
    assert whole == plan(graph, GPUS["sm_90"], precision).launches
    blocks = [prod(launches[0].grid) for launches in (whole, slice_)]
    assert blocks[0] > 132 / 2 and blocks[1] < blocks[0] / 2


def cycles(graph: Graph, kind: str = "sm_90", precision: str = "float32") -> list[float]:
    """What each launch of a graph is expected to take."""
    return [launch.cycles for launch in plan(graph, gpu_of(kind), precision).launches]


@pytest.mark.parametrize("kind", ["sm_90", "sm_90:16"])
def test_a_launch_is_expected_to_take_what_its_tile_was_chosen_by(kind: str) -> None:
    graph, gpu = node_of(Contract(), (1 << 14, 64), (96, 64), (1 << 14, 96)), gpu_of(kind)
    (launch,) = plan(graph, gpu, "float32").launches
    assert isinstance(launch.template, Ffma)
    assert launch.cycles == launch.template.tile.cycles(gpu, 1, 1 << 14, 96, 64, 1) > LATENCY_CYCLES
    (launch,) = plan(graph, gpu, "float16").launches
    assert isinstance(launch.template, Mma)
    assert launch.cycles == launch.template.tile.cycles(gpu, 1, 1 << 14, 96, 2 * 64, 1) > LATENCY_CYCLES


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_k_is_shared_out_where_that_gains_more_than_adding_up_takes(precision: str) -> None:
    """By a launch of its own, or by the blocks of a cluster where the GPU has clusters."""
    shallow, deep = (node_of(Contract(), (49, depth), (64, depth), (49, 64)) for depth in (512, 4608))
    counts = [len(plan(graph, GPUS["sm_80"], precision).launches) for graph in (shallow, deep)]
    assert counts == [1, 2]
    (launch,) = plan(deep, GPUS["sm_90"], precision).launches
    assert launch.grid[2] == launch.template.cluster > 1  # type: ignore[attr-defined]


def test_blocks_that_share_out_k_and_the_launch_that_adds_them_up_are_two_estimates() -> None:
    graph = node_of(Contract(), (49, 4608), (64, 4608), (49, 64))
    sharing, adding = cycles(graph, "sm_80")
    assert LATENCY_CYCLES < adding < sharing


def test_other_launches_are_expected_to_take_what_they_move() -> None:
    everything = IndexMap((0, 1), (0, 0), (1, 1))
    (small,), (large,) = (cycles(mapped((rows, 1024), everything, (rows, 1024))) for rows in (1, 1 << 12))
    assert small == LATENCY_CYCLES + 2 * 4 * 1024 / COPIED
    assert large == pytest.approx(LATENCY_CYCLES + 2 * 4 * (1 << 22) / COPIED / 132, rel=0.05)
    assert cycles(mapped((1 << 12, 1024), everything, (1, 1024))) == [small]  # a row is read of many


def test_a_recurrent_launch_is_expected_to_take_its_steps_one_after_another() -> None:
    short, long = (cycles(recurrent(LSTM, steps, batch=1, units=16))[-1] for steps in (2, 20))
    assert long == pytest.approx(10 * short)


def test_a_kind_that_is_not_supported_is_told() -> None:
    with pytest.raises(DeviceError, match="the GPU cannot be compiled for: no GPU architecture 'sm_70'"):
        gpu_of("sm_70")
