"""Partitions of models against the whole, both on LiteRT's own kernels: bit by bit."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flatbuffers import Builder, flexbuffers

from jitdelegate import passes
from jitdelegate.errors import CompileError, ModelError
from jitdelegate.ir.graph import ABSENT, Quant, Tensor
from jitdelegate.passes.specialize_subgraph import specialize_subgraph
from jitdelegate.program.flatbuffer import FlatBuffer, Table
from jitdelegate.tflite.cut import Cutter
from jitdelegate.tflite.read import read
from jitdelegate.tflite.record import Record, record
from jitdelegate.tflite.write import ModelBuilder
from tests.child import answer_of
from tests.tflite.chain import Chain, difference, folded, invoked, opened, values_for, whole
from tests.tflite.example_models import CONV_OPTIONS, convolution, sparse_matrix

REAL = (
    "age_estimation_fp16",
    "coco_ssd_mobilenet_v1_1.0_quant_2018_06_29",
    "face_detection_full_range_sparse",
    "keras_lstm_mnist_ptq",
    "keyword_spotting_alexa",
    "movie_review",
    "toycar_drq",
)
"""With widened halves, a custom operator, sparse weights, variables, int8, text or tables, hybrid kernels."""


def chained(content: bytes, fold: bool = True) -> None:
    """One partition for all, one a node, and partitions that meet at every single place, all answer as the whole."""
    borders = range(len(folded(content).nodes) if fold else len(read(content).graphs[0].nodes))
    for chosen in ((), borders, *((border,) for border in borders[1:])):
        assert not difference(content, Chain(content, chosen, fold)), chosen


@pytest.mark.parametrize("external", [False, True])
def test_a_float_net_is_the_same_in_partitions(external: bool) -> None:
    chained(convolution(external))


def quantized() -> bytes:
    """QUANTIZE, CONV_2D with a scale per channel, AVERAGE_POOL_2D, FULLY_CONNECTED without a bias, DEQUANTIZE."""
    model, random = ModelBuilder(), np.random.default_rng(3)
    image = model.input((1, 8, 8, 4), "int8", quant=Quant((0.02,), (-3,)))
    channels = Quant((0.01, 0.02, 0.03, 0.04, 0.05, 0.06), (0,) * 6)
    weights = model.constant(random.integers(-127, 128, (6, 3, 3, 4)).astype(np.int8), quant=channels)
    sums = Quant(tuple(0.02 * each for each in channels.scales), (0,) * 6)
    bias = model.constant(random.integers(-500, 500, 6).astype(np.int32), quant=sums)
    found = Quant((0.05,), (5,))
    conv = model.op(
        "CONV_2D", [image, weights, bias], (1, 4, 4, 6), dtype="int8", options=CONV_OPTIONS, quant=found, version=3
    )
    pool = {"padding": "VALID", "stride_w": 4, "stride_h": 4, "filter_width": 4, "filter_height": 4}
    mean = model.op("AVERAGE_POOL_2D", [conv], (1, 1, 1, 6), options=pool, dtype="int8", quant=found, version=2)
    matrix = model.constant(random.integers(-127, 128, (5, 6)).astype(np.int8), quant=Quant((0.01,), (0,)))
    dense = model.op(
        "FULLY_CONNECTED", [mean, matrix, None], (1, 5), dtype="int8", quant=Quant((0.1,), (1,)), version=4
    )
    model.output(model.op("DEQUANTIZE", [dense], (1, 5), version=2), conv)
    return model.finish()


def test_an_int8_net_with_scales_per_channel_is_the_same_in_partitions() -> None:
    chained(quantized())


def test_operators_with_several_outputs_and_without_optional_inputs_are_the_same_in_partitions() -> None:
    model, random = ModelBuilder(), np.random.default_rng(4)
    x = model.input((2, 6))
    parts = [model.tensor((2, 3)), model.tensor((2, 3))]
    model.node("SPLIT", [model.constant(np.array(1, np.int32)), x], parts, options={"num_splits": 2})
    weights = model.constant(random.normal(size=(4, 3)).astype(np.float32))
    best = [model.tensor((2, 2)), model.tensor((2, 2), "int32")]
    dense = model.op("FULLY_CONNECTED", [parts[1], weights, None], (2, 4))
    model.node("TOPK_V2", [dense, model.constant(np.array(2, np.int32))], best)
    model.output(best[1], model.op("NEG", [parts[0]], (2, 3)), best[0], parts[1])
    chained(model.finish())


@pytest.mark.parametrize("fold", [False, True])
def test_fp16_weights_are_the_same_whether_they_are_widened_before_or_by_litert(fold: bool) -> None:
    model, random = ModelBuilder(), np.random.default_rng(5)
    x = model.input((1, 30))
    halves = model.constant(random.normal(size=(20, 30)).astype(np.float16))
    weights = model.op("DEQUANTIZE", [halves], (20, 30))
    y = model.op("FULLY_CONNECTED", [x, weights, None], (1, 20))
    model.output(model.op("TANH", [y], (1, 20)))
    content = model.finish()
    assert [node.op for node in folded(content).nodes] == ["FULLY_CONNECTED", "TANH"]
    chained(content, fold)


def test_a_constant_that_several_operators_and_tensors_share_is_stored_once() -> None:
    model, random = ModelBuilder(), np.random.default_rng(6)
    x = model.input((4, 400))
    rows = model.constant(random.normal(size=(1, 400)).astype(np.float32))
    flat = model.tensor((400,))
    model._tensors[flat]["buffer"] = model._tensors[rows]["buffer"]
    y = model.op("ADD", [x, rows], (4, 400))
    y = model.op("MUL", [y, flat], (4, 400))
    model.output(model.op("SUB", [y, rows], (4, 400)))
    content = model.finish()
    chained(content)
    (partition, _, _) = Chain(content, ()).partitions[0]
    assert partition.count(read(content).graphs[0].tensors[rows].data.tobytes()) == 1


def test_a_folded_constant_that_several_operators_read_is_stored_once() -> None:
    model, random = ModelBuilder(), np.random.default_rng(7)
    x = model.input((4, 400))
    halves = model.constant(random.normal(size=(1, 400)).astype(np.float16))
    row = model.op("DEQUANTIZE", [halves], (1, 400))
    y = model.op("ADD", [x, row], (4, 400))
    model.output(model.op("MUL", [y, row], (4, 400)))
    content = model.finish()
    chained(content)
    graph = folded(content)
    graph = replace(graph, tensors=(*graph.tensors, replace(graph.tensors[row], name="again")))
    nodes = (graph.nodes[0], replace(graph.nodes[1], inputs=(graph.nodes[1].inputs[0], len(graph.tensors) - 1)))
    partition = Cutter(content).partition(graph, 0, nodes, graph.inputs, graph.outputs)
    assert partition.count(graph.tensors[row].data.tobytes()) == 1


def spectrogram(large: bool) -> bytes:
    """AudioSpectrogram between two other operators; `large` keeps its options behind the FlatBuffer."""
    options = flexbuffers.Dumps({"window_size": 64, "stride": 32, "magnitude_squared": True})
    model = ModelBuilder()
    x = model.op("NEG", [model.input((256, 1))], (256, 1))
    y = model.tensor((1, 7, 33))
    model.node("AudioSpectrogram", [x], [y], custom_options=options)
    model.output(model.op("SQRT", [y], (1, 7, 33)))
    if not large:
        return model.finish()
    operator = model._operators[1]
    operator |= {"custom_options": None, "large_custom_options_offset": 2, "large_custom_options_size": len(options)}
    operator["large_custom_options_offset"] = len(model.finish())
    return model.finish() + options


@pytest.mark.parametrize("large", [False, True])
def test_options_of_custom_operators_come_along_wherever_they_are(large: bool) -> None:
    content = spectrogram(large)
    assert np.std(whole(content, values_for(content))[0][0]) > 0
    chained(content)
    operator = record(file(Chain(content, ()).partitions[0][0]), "Model")["subgraphs"][0]["operators"][1]
    assert (operator["large_custom_options_offset"], operator["large_custom_options_size"]) == (0, 0)


def test_empty_options_of_a_custom_operator_stay_empty_ones() -> None:
    model = ModelBuilder()
    x = model.input((2,))
    for options in (b"", None):
        x, before = model.tensor((2,)), x
        model.node("Custom", [before], [x], custom_options=b"")
        model._operators[-1]["custom_options"] = options
    model.output(x)
    operators = file(Chain(model.finish(), ()).partitions[0][0]).tables(2, "subgraphs")[0].tables(3, "operators")
    assert [5 in each.stored() for each in operators] == [True, False]


def file(content: bytes) -> Table:
    return FlatBuffer(content, ModelError).root(b"TFL3", "model")


def test_sparse_constants_are_the_same_in_partitions() -> None:
    model = ModelBuilder()
    x = model.input((1, 4))
    values, rows = sparse_matrix()
    dense = model.op("DENSIFY", [model.constant(values, shape=(2, 4), sparsity=rows)], (2, 4))
    y = model.op("FULLY_CONNECTED", [x, dense, None], (1, 2))
    model.output(model.op("NEG", [y], (1, 2)))
    chained(model.finish())
    chained(model.finish(), fold=False)


def rich() -> bytes:
    """Operators and tensors with what few of them have."""
    model = ModelBuilder()
    x = model.tensor((1, 4), name="x", quant=Quant((0.5,), (3,), minimum=(-1.0,), maximum=(1.0,)))
    blocks = Quant((0.5, 2.0, 1.0, 0.25), (1, 2, 3, 4), axis=0, block_size=2)
    bytes_ = np.arange(4, dtype=np.uint8)
    packed = model.constant(bytes_, dtype="int4", shape=(2, 4), name="packed", quant=blocks)
    values, rows = sparse_matrix()
    stored = model.constant(values, shape=(2, 4), name="stored", sparsity=rows)
    state, inner, y = (
        model.variable((1, 2), name="state"),
        model.tensor((7,), "int16", name="inner"),
        model.tensor((1, 2)),
    )
    model.node("NEG", [model.input((1, 4))], [x])
    model.node(
        "LSTM", [x, packed, None, stored, state], [y], options={"cell_clip": 2.5, "fused_activation_function": "TANH"}
    )
    model._operators[-1] |= {"intermediates": [inner, ABSENT, x], "mutating_variable_inputs": [False] * 4 + [True]}
    model._operators[-1] |= {"debug_metadata_index": 3}
    model.output(model.op("STABLEHLO_PAD", [y], (1, 2), options={"edge_padding_low": (1, 2), "interior_padding": ()}))
    return model.finish()


def test_a_partition_has_of_each_operator_and_tensor_all_that_the_file_has() -> None:
    graph = read(rich()).graphs[0]
    partition = Cutter(rich()).partition(graph, 0, graph.nodes[1:], (0,), graph.outputs)
    found, expected = (record(file(each), "Model") for each in (partition, rich()))
    lstm, pad = named_operators(expected)[1:]
    assert named_operators(found) == [lstm | {"debug_metadata_index": -1}, pad]
    known = {tensor["name"]: tensor for tensor in named_tensors(expected)}
    tensors = named_tensors(found)
    assert {"x", "packed", "stored", "state", "inner"} < {tensor["name"] for tensor in tensors}
    for tensor in tensors:
        assert tensor == known[tensor["name"]]


def named_tensors(model: Record) -> list[Record]:
    """The tensors with bytes for buffers and names for the tensors that they refer to."""
    subgraph = model["subgraphs"][0]
    names = [tensor["name"] for tensor in subgraph["tensors"]]
    found = []
    for tensor in subgraph["tensors"]:
        buffer, quantization = model["buffers"][tensor["buffer"]], tensor["quantization"]
        if quantization and quantization["details"]:
            sides = {side: names[quantization["details"][side]] for side in ("scales", "zero_points")}
            quantization |= {"details": quantization["details"] | sides}
        found.append(tensor | {"buffer": bytes(buffer["data"])})
    return found


def named_operators(model: Record) -> list[Record]:
    """The operators with their codes, and names for tensors."""
    subgraph = model["subgraphs"][0]
    names = {ABSENT: "", **{index: tensor["name"] for index, tensor in enumerate(subgraph["tensors"])}}
    return [
        operator
        | {"opcode_index": model["operator_codes"][operator["opcode_index"]]}
        | {side: [names[index] for index in operator[side]] for side in ("inputs", "outputs", "intermediates")}
        for operator in subgraph["operators"]
    ]


def test_values_that_live_from_run_to_run_live_in_the_partition() -> None:
    model, random = ModelBuilder(), np.random.default_rng(8)
    x = model.input((1, 3))
    feature = model.constant(random.normal(size=(4, 3)).astype(np.float32))
    time = model.constant(random.normal(size=(4, 5)).astype(np.float32))
    operands = [model.op("NEG", [x], (1, 3)), feature, time, None, model.variable((1, 20))]
    y = model.op("SVDF", operands, (1, 4), options={"rank": 1})
    model.output(model.op("TANH", [y], (1, 4)))
    content = model.finish()
    assert len(folded(content).nodes[1].outputs) == 2
    first, second = whole(content, [values_for(content)[0]] * 2)
    assert first[0].tobytes() != second[0].tobytes()
    chained(content)


def test_a_partition_has_the_shapes_of_the_graph_and_leaves_no_size_open() -> None:
    model = ModelBuilder()
    x = model.input((1, 4), shape_signature=(-1, 4))
    y = model.tensor((), has_rank=False)
    model.node("NEG", [x], [y])
    model.output(model.op("TANH", [y], (1, 4), name="z"))
    graph = passes.run(specialize_subgraph(read(model.finish()), shapes=[(7, 4)]).graphs[0], passes=passes.FOLD)
    partition = Cutter(model.finish()).partition(graph, 0, graph.nodes, (x,), (y, *graph.outputs))
    assert all(tensor["has_rank"] for tensor in named_tensors(record(file(partition), "Model")))
    interpreter = opened(partition)
    for details in (*interpreter.get_input_details(), *interpreter.get_output_details()):
        assert (details["shape"].tolist(), details["shape_signature"].tolist()) == ([7, 4], [7, 4])


def test_tensors_that_no_file_has_are_written_as_the_graph_has_them() -> None:
    model = ModelBuilder()
    x = model.input((1, 4), "int8", quant=Quant((0.5,), (3,)))
    model.output(model.op("DEQUANTIZE", [x], (1, 4)))
    graph = folded(model.finish())
    other = replace(graph.tensors[x], name="other", quant=Quant((0.25,), (1,)))
    data = np.array([[1, 2, 3, 4]], np.int8)
    nodes = (replace(graph.nodes[0], inputs=(2,)),)
    cutter = Cutter(model.finish())
    partition = cutter.partition(replace(graph, tensors=(*graph.tensors, other)), 0, nodes, (2,), graph.outputs)
    assert invoked(opened(partition), [data])[0].tolist() == [[0, 0.25, 0.5, 0.75]]
    known = cutter.partition(replace(graph, tensors=(*graph.tensors, other.holding(data))), 0, nodes, (), graph.outputs)
    assert invoked(opened(known), [])[0].tolist() == [[0, 0.25, 0.5, 0.75]]


@pytest.mark.parametrize("quant", [None, Quant((0.5, 0.25), (1, 2), axis=1, minimum=(-1.0,), maximum=(2.0,))])
def test_new_tensors_keep_their_names_and_quantization(quant: Quant | None) -> None:
    new = Tensor("new", (3, 2), "int8", quant=quant)
    graph = read(convolution()).graphs[0]
    graph = replace(graph, tensors=(*graph.tensors, new))
    index = len(graph.tensors) - 1
    (found,) = read(Cutter(convolution()).partition(graph, 0, (), (index,), (index,))).graphs[0].tensors
    assert [(each.name, each.shape, each.dtype, each.quant) for each in (found, new)] == [
        ("new", (3, 2), "int8", quant)
    ] * 2


@pytest.mark.parametrize("name", ["packed", "stored"])
def test_new_tensors_that_are_sparse_or_quantized_in_blocks_are_refused(name: str) -> None:
    graph = read(rich()).graphs[0]
    (new,) = (tensor for tensor in graph.tensors if tensor.name == name)
    graph = replace(graph, tensors=(*graph.tensors, new))
    with pytest.raises(
        CompileError, match=rf"^'{name}' is sparse or quantized in blocks, and no tensor of the file\.$"
    ):
        Cutter(rich()).partition(graph, 0, (), (), (len(graph.tensors) - 1,))


def test_a_constant_that_is_asked_for_as_an_input_is_one() -> None:
    model = ModelBuilder()
    row = model.constant(np.array([1, 2], np.float32))
    model.output(model.op("NEG", [row], (2,)))
    graph = read(model.finish()).graphs[0]
    partition = Cutter(model.finish()).partition(graph, 0, graph.nodes, (row,), graph.outputs)
    assert [tensor["buffer"] for tensor in named_tensors(record(file(partition), "Model"))] == [b"", b""]
    assert invoked(opened(partition), [np.array([3, 4], np.float32)])[0].tolist() == [-3, -4]


def test_constants_without_elements_are_the_same_in_partitions() -> None:
    model = ModelBuilder()
    x = model.op("NEG", [model.input((2, 4))], (2, 4))
    pair = [x, model.constant(np.zeros((0, 4), np.float32))]
    model.output(model.op("CONCATENATION", pair, (2, 4), options={"axis": 0}))
    chained(model.finish())


def test_inputs_and_outputs_have_the_order_that_was_asked_for() -> None:
    model = ModelBuilder()
    x, y = model.input((1,)), model.input((1,))
    model.output(model.op("SUB", [x, y], (1,)), model.op("DIV", [x, y], (1,)))
    graph = folded(model.finish())
    partition = Cutter(model.finish()).partition(graph, 0, graph.nodes, (y, x), (3, y, 2))
    found = invoked(opened(partition), [np.array([2], np.float32), np.array([8], np.float32)])
    assert [each.tolist() for each in found] == [[4], [2], [6]]


def test_buffers_of_all_sizes_are_aligned_to_16_bytes() -> None:
    model = ModelBuilder()
    x = model.input((1,), "uint8")
    for value, size in enumerate((1, 5, 1023, 1024, 1025, 4097), 1):
        pair = [x, model.constant(np.full(size, value, np.uint8))]
        model.output(model.op("CONCATENATION", pair, (size + 1,), dtype="uint8", options={"axis": 0}))
    (partition, _, _) = Chain(model.finish(), ()).partitions[0]
    assert [partition.index(bytes([value] * 1023)) % 16 for value in (3, 4, 5, 6)] == [0, 0, 0, 0]
    assert partition.index(bytes([2] * 5)) % 16 == 0
    chained(model.finish())


def test_large_constants_are_copied_once() -> None:
    model = ModelBuilder()
    x = model.input((1 << 22,))
    model.output(model.op("ADD", [x, model.constant(np.ones(1 << 22, np.float32))], (1 << 22,)))
    content = model.finish()
    graph, cutter = folded(content), Cutter(content)
    tracemalloc.start()
    partition = cutter.partition(graph, 0, graph.nodes, graph.inputs, graph.outputs)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 1 << 24 < len(partition) <= peak < 1.1 * len(partition)


def cut_chain() -> str:
    return str(Chain(quantized(), (1, 3)).partitions)


def test_equal_arguments_give_equal_bytes_in_every_process() -> None:
    runs = [answer_of(cut_chain, PYTHONHASHSEED=seed) for seed in ("1", "2")]
    assert runs[0] == runs[1] != ""


CALLS = {
    "IF": {"then_subgraph_index": 1, "else_subgraph_index": 1},
    "STABLEHLO_COMPOSITE": {"decomposition_subgraph_index": 1},
    "CALL": {"subgraph": 1},
}


@pytest.mark.parametrize("op", CALLS)
def test_operators_that_run_other_subgraphs_are_refused_inlined_or_not(op: str) -> None:
    model = ModelBuilder()
    x = model.input((1, 2))
    operands = [model.constant(np.array(True)), x] if op == "IF" else [x]
    model.output(model.op(op, operands, (1, 2), options=CALLS[op]))
    branch = model.subgraph("branch")
    branch.output(branch.op("TANH", [branch.input((1, 2))], (1, 2)))
    as_it_is, inlined = read(model.finish()).graphs[0], folded(model.finish())
    for graph in (inlined,) if op == "STABLEHLO_COMPOSITE" else (as_it_is, inlined):
        with pytest.raises(CompileError, match=r"^Operator 0 has \w+Options, which name subgraphs"):
            Cutter(model.finish()).partition(graph, 0, graph.nodes, (x,), graph.outputs)


def test_a_composite_takes_the_subgraphs_along_that_it_names() -> None:
    """Its decomposition, and that of a composite in there; both have constants."""
    model = ModelBuilder()
    x = model.op("ABS", [model.input((2, 3))], (2, 3))
    attributes = flexbuffers.Dumps({})
    options = {"name": "odml.any", "decomposition_subgraph_index": 3, "composite_attributes": attributes}
    y = model.op("STABLEHLO_COMPOSITE", [x], (2, 3), options=options)
    model.output(model.op("NEG", [y], (2, 3)))
    for name in ("unused", "unused too"):
        unused = model.subgraph(name)
        unused.output(unused.op("NEG", [unused.input((1,))], (1,)))
    outer = model.subgraph("outer")
    scaled = outer.op("MUL", [outer.input((2, 3)), outer.constant(np.arange(3, dtype=np.float32))], (2, 3))
    options = {"name": "odml.other", "decomposition_subgraph_index": 4, "composite_attributes": attributes}
    outer.output(outer.op("STABLEHLO_COMPOSITE", [scaled], (2, 3), options=options))
    inner = model.subgraph("inner")
    table = np.linspace(-1, 1, 600, dtype=np.float32).reshape(2, 300)[:, :3].copy()
    inner.output(inner.op("ADD", [inner.input((2, 3)), inner.constant(table)], (2, 3)))
    content = model.finish()
    graph = read(content).graphs[0]
    cut = Cutter(content).partition(graph, 0, graph.nodes[1:2], (x,), (y,))
    assert [each.name for each in read(cut).graphs][1:] == ["outer", "inner"]
    values = np.array([[1, -2, 3], [4, 5, -6]], np.float32)
    (found,) = invoked(opened(cut), [values])
    np.testing.assert_array_equal(found, values * np.arange(3, dtype=np.float32) + table)


def test_a_value_from_outside_that_is_no_input_is_refused() -> None:
    graph, cutter = folded(quantized()), Cutter(quantized())
    middle = graph.nodes[1].inputs[0]
    message = rf"^Tensor {middle} 't{middle}' gets its value outside the partition, but is no input of it\.$"
    with pytest.raises(CompileError, match=message):
        cutter.partition(graph, 0, graph.nodes[1:], (), graph.outputs)
    with pytest.raises(CompileError, match=message):
        cutter.partition(graph, 0, (), (), (middle,))


def test_a_node_that_stands_for_several_operators_is_refused() -> None:
    graph = folded(convolution())
    nodes = (replace(graph.nodes[0], origin=(0, 1)),)
    with pytest.raises(CompileError, match=r"^CONV_2D stands for 2 operators of the file, expected one\.$"):
        Cutter(convolution()).partition(graph, 0, nodes, graph.inputs, nodes[0].outputs)


def test_what_no_flatbuffer_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, cutter = folded(quantized()), Cutter(quantized())
    monkeypatch.setattr(Builder, "MAX_BUFFER_SIZE", 1024)
    with pytest.raises(CompileError, match=r"^A partition of 4 operators takes more than the 2 GB of a FlatBuffer\.$"):
        cutter.partition(graph, 0, graph.nodes, graph.inputs, graph.outputs)


@pytest.mark.parametrize("borders", [(1,), (2, 5), (3, 4, 9)])
@pytest.mark.parametrize("name", REAL)
def test_real_models_are_the_same_in_partitions(models: Path, name: str, borders: tuple[int, ...]) -> None:
    content = (models / "real" / f"{name}.tflite").read_bytes()
    count = len(folded(content).nodes)
    assert not difference(content, Chain(content, [count * border // 10 for border in borders]))
