"""Recurrent operators give what LiteRT gives, run after run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jitdelegate import GpuDelegate, Interpreter, passes
from jitdelegate.ir.graph import ABSENT, Model
from jitdelegate.ops import OPS
from jitdelegate.passes.functional_state import functional_state
from jitdelegate.tflite.read import read
from tests.ops.recurrent_models import LstmModel, basic_lstm, rnn, svdf

WHOLE = LstmModel(units=16, outputs=16)
PROJECTED = LstmModel(units=9, outputs=4, projection=True, projection_bias=True)
MODELS = {
    "plain": LstmModel(),
    "time major": LstmModel(time_major=True, batch=3),
    "one step": LstmModel(steps=1, batch=1),
    "whole vectors": WHOLE,
    "two vectors and a tail": LstmModel(units=37, outputs=37, batch=1, steps=9),
    "one unit": LstmModel(units=1, outputs=1),
    "coupled gates": LstmModel(coupled=True),
    "peepholes": LstmModel(peepholes=True),
    "peepholes, coupled gates": LstmModel(peepholes=True, coupled=True),
    "clipped state": LstmModel(cell_clip=0.2, peepholes=True),
    "relu": LstmModel(activation="RELU"),
    "relu6": LstmModel(activation="RELU6", cell_clip=0.5),
    "projection": PROJECTED,
    "projection without bias": replace(PROJECTED, projection_bias=False, time_major=True),
    "clipped projection": replace(PROJECTED, proj_clip=0.1, peepholes=True),
    "layer normalization": LstmModel(norm=True),
    "layer normalization and all": replace(PROJECTED, norm=True, peepholes=True, coupled=True, cell_clip=0.4),
    "layer normalization, peepholes": LstmModel(norm=True, peepholes=True, time_major=True),
    "step": LstmModel(op="LSTM"),
    "step with all": replace(PROJECTED, op="LSTM", norm=True, peepholes=True, batch=3),
    "both ways": LstmModel(op="BIDIRECTIONAL_SEQUENCE_LSTM"),
    "both ways merged": LstmModel(op="BIDIRECTIONAL_SEQUENCE_LSTM", merge_outputs=True, time_major=True),
    "both ways projected": replace(PROJECTED, op="BIDIRECTIONAL_SEQUENCE_LSTM"),
    "both ways projected, merged": replace(
        PROJECTED, op="BIDIRECTIONAL_SEQUENCE_LSTM", merge_outputs=True, time_major=True
    ),
}
CONTENTS = {name: model.content() for name, model in MODELS.items()} | {
    "basic": basic_lstm(2, 5, 12),
    "rnn": rnn("RNN", (2, 5), 2, 11, fused_activation_function="TANH"),
    "rnn relu": rnn("RNN", (1, 5), 1, 16, fused_activation_function="RELU"),
    "sequence rnn": rnn(
        "UNIDIRECTIONAL_SEQUENCE_RNN", (3, 6, 5), 3, 11, time_major=False, fused_activation_function="TANH"
    ),
    "sequence rnn, time major": rnn(
        "UNIDIRECTIONAL_SEQUENCE_RNN", (6, 3, 5), 3, 11, time_major=True, fused_activation_function="RELU6"
    ),
    "svdf": svdf(2, 3, 4, rank=2, memory=5, bias=True, activation="RELU"),
    "svdf without bias": svdf(1, 8, 3, rank=1, memory=10, bias=False),
    "svdf of no memory": svdf(1, 8, 3, rank=1, memory=1, bias=True),
}


def outputs(interpreter: object, feeds: list[np.ndarray]) -> list[np.ndarray]:
    for detail, feed in zip(interpreter.get_input_details(), feeds, strict=True):
        interpreter.set_tensor(detail["index"], feed)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS.keys())
def test_runs_one_after_another_are_what_litert_computes(content: bytes) -> None:
    from ai_edge_litert import interpreter as litert

    resolver = litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    theirs = litert.Interpreter(model_content=content, experimental_op_resolver_type=resolver)
    ours = Interpreter(model_content=content, experimental_delegates=[GpuDelegate(False, target="cpu")])
    assert ours.report().target == "cpu", str(ours.report())
    random = np.random.default_rng(1)
    for each in (theirs, ours):
        each.allocate_tensors()
    for run in range(4):
        if run == 2:
            theirs.reset_all_variables()
            ours.reset_all_variables()
        feeds = [random.uniform(-2, 2, detail["shape"]).astype(np.float32) for detail in theirs.get_input_details()]
        for expected, found in zip(outputs(theirs, feeds), outputs(ours, feeds), strict=True):
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


CHECKED = {
    **{
        name: functional_state(read(CONTENTS[name]))
        for name in ("plain", "step with all", "both ways", "rnn", "sequence rnn", "svdf")
    },
    **{
        f"{name} with an auxiliary input": OPS[name].cases[-1].graph(OPS[name])
        for name in ("BIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_RNN")
    },
}


@pytest.mark.parametrize("name", CHECKED)
def test_whatever_is_wrong_with_an_operand_a_check_says_so(name: str) -> None:
    graph = CHECKED[name]
    (node,) = graph.nodes
    op = OPS[node.op]
    assert op.check(graph, node) is None
    shapes: list[tuple[int, ...]] = [(), (0,), (3,), (2, 2), (7, 5, 3, 2), (1 << 31, 1 << 31), (1,) * 7]
    for place, index in enumerate(node.inputs):
        if index != ABSENT:
            less = replace(node, inputs=(*node.inputs[:place], ABSENT, *node.inputs[place + 1 :]))
            assert (op.check(graph, less) or ".").endswith("."), place
            assert (op.check(graph, replace(node, inputs=node.inputs[:place])) or ".").endswith("."), place
            runtime = [*graph.tensors]
            runtime[index] = replace(runtime[index], data=None)
            assert (op.check(replace(graph, tensors=tuple(runtime)), node) or ".").endswith("."), place
        for shape in shapes:
            tensors = [*graph.tensors]
            data = None if tensors[index].data is None or np.prod(shape) > 1e6 else np.zeros(shape, np.float32)
            tensors[index] = replace(tensors[index], shape=shape, data=data)
            found = op.check(replace(graph, tensors=tuple(tensors)), node)
            assert index == ABSENT or (found and found.endswith(".")), (place, shape)


def test_a_variable_that_is_an_input_too_is_left_to_litert() -> None:
    graph = read(CONTENTS["plain"]).graphs[0]
    (node,) = graph.nodes
    fed = replace(graph, inputs=(*graph.inputs, node.inputs[18]))
    found = functional_state(Model((fed,)))
    assert [state.before for state in found.states] == [node.inputs[19]]
    assert OPS[node.op].check(found, found.nodes[0]) == f"{node.op} has 2 outputs, expected 3."


def test_sequences_that_would_take_too_many_kernels_are_left_to_litert() -> None:
    long = replace(PROJECTED, norm=True, steps=200, batch=1)
    graph = functional_state(read(long.content()))
    reason = OPS[long.op].check(graph, graph.nodes[0])
    assert reason == f"{long.op}: 200 steps of this cell take 5600 kernels, over 1024."


def test_a_sequence_is_one_kernel_however_long_it_is() -> None:
    def nodes(steps: int) -> int:
        graph = functional_state(read(replace(WHOLE, steps=steps).content()))
        return len(passes.run(graph).nodes)

    assert nodes(2) == nodes(500)


def test_a_basic_lstm_whose_old_state_is_read_later_is_left_to_litert() -> None:
    graph = read(basic_lstm(1, 2, 3)).graphs[0]
    (node,) = graph.nodes
    reused = replace(graph, inputs=(0, node.inputs[1], node.inputs[4]), outputs=(*graph.outputs, node.inputs[4]))
    found = functional_state(Model((reused,)))
    reason = OPS["LSTM"].check(found, found.nodes[0])
    assert reason == "LSTM of kernel BASIC: others read input 4 too, which LiteRT's kernel overwrites."


def test_a_cell_without_an_activation_is_left_to_litert() -> None:
    op = OPS["UNIDIRECTIONAL_SEQUENCE_LSTM"]
    graph = replace(op.cases[0], attrs={**op.cases[0].attrs, "fused_activation_function": "NONE"}).graph(op)
    found = op.check(graph, graph.nodes[0])
    assert found is not None
    assert found.startswith("UNIDIRECTIONAL_SEQUENCE_LSTM without an activation: ")
