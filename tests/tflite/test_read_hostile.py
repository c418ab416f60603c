"""For any bytes, the reader returns a well-formed Model or raises ModelError."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from flatbuffers import Builder

from jitdelegate.errors import ModelError
from jitdelegate.ir.graph import DimensionMetadata, Quant, Sparsity
from jitdelegate.tflite.pack import pack
from jitdelegate.tflite.read import read
from jitdelegate.tflite.record import Record
from jitdelegate.tflite.write import ModelBuilder
from tests.tflite.example_models import convolution, everything
from tests.tflite.scripts import script

fuzz = script("fuzz_reader")


def packed(model: Record) -> bytes:
    """A file with these fields, sensible or not."""
    builder = Builder()
    builder.Finish(pack(builder, "Model", {"version": 3, **model}), b"TFL3")
    return bytes(builder.Output())


def one_graph(**fields: object) -> Record:
    """Fields of a model of one ADD over two tensors, some of the subgraph's fields replaced."""
    tensors = [{"name": "a", "shape": (2,)}, {"name": "b", "shape": (2,)}]
    operators: list[Record] = [{"inputs": (0, 0), "outputs": (1,), "builtin_options": ("AddOptions", {})}]
    graph = {"tensors": tensors, "operators": operators, "inputs": (0,), "outputs": (1,), "name": "main"}
    return {"subgraphs": [graph | fields], "operator_codes": [{}], "buffers": [{}]}


def one_tensor(**fields: object) -> Record:
    """Fields of a model of one tensor that is its input and output, some of the tensor's fields replaced."""
    tensor = {"name": "a", "shape": (2, 2), "buffer": 1} | fields
    return one_graph(tensors=[tensor], operators=[], outputs=(0,)) | {"buffers": [{}, {"data": bytes(16)}]}


def operator(**fields: object) -> Record:
    return one_graph(operators=[{"inputs": (0, 0), "outputs": (1,)} | fields])


def test_the_replaced_parts_make_a_model_by_themselves() -> None:
    assert len(read(packed(one_graph())).graphs[0].nodes) == 1
    assert read(packed(one_tensor())).graphs[0].tensors[0].data is not None
    assert len(read(packed(operator())).graphs[0].nodes) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "0 bytes are too few"),
        (b"\x04\0\0\0", "4 bytes are too few"),
        (b"\x08\0\0\0TFL3", "the table starts at byte 8 of 8"),
        (b"\x04\0\0\0TFL3", "the field offsets start at byte"),
        (bytes(64), r"bytes 4\.\.7 are b'\\x00\\x00\\x00\\x00', expected b'TFL3'"),
        (b"PK\x03\x04" + bytes(60), "expected b'TFL3'"),
        (b"\xff\xff\xff\xffTFL3" + bytes(56), "the table starts at byte 4294967295 of 64"),
    ],
)
def test_bytes_that_are_no_model_are_refused(content: bytes, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read(content)


ADD_DEFAULTS = {"fused_activation_function": "NONE", "pot_scale_int16": True}


@pytest.mark.parametrize("options", [None, ("ConcatenationOptions", {"axis": 3})])
def test_options_that_are_left_out_or_meant_for_another_operator_are_the_defaults(options: object) -> None:
    assert read(packed(operator(builtin_options=options))).graphs[0].nodes[0].attrs == ADD_DEFAULTS


GRAPH = "subgraph 0 'main'"


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (one_graph() | {"version": 2}, "model: has the schema version 2, expected 3"),
        ({}, "model: has no subgraph, expected at least one"),
        (one_graph(inputs=(2,)), f"{GRAPH}: input tensor 2 does not exist, there are 2"),
        (one_graph(outputs=(-1,)), f"{GRAPH}: output tensor -1 does not exist, there are 2"),
        (one_graph(inputs=()), f"{GRAPH}, operator 0 'ADD' reads tensor 0 'a' before it is written"),
        (one_graph(inputs=(0, 1)), f"{GRAPH}, operator 0 'ADD' writes tensor 1 'b', which has a value already"),
        (one_graph(operators=[]), f"{GRAPH} answers tensor 1 'b' before it is written"),
        (operator(inputs=(7,)), f"{GRAPH}, operator 0 'ADD' reads tensor 7, which does not exist; there are 2"),
        (operator(inputs=(-2,)), f"{GRAPH}, operator 0 'ADD' reads tensor -2, which does not exist"),
        (operator(outputs=(-1,)), f"{GRAPH}, operator 0 'ADD' writes tensor -1, which does not exist"),
        (operator(outputs=(1, 1)), f"{GRAPH}, operator 0 'ADD' writes tensor 1 'b', which has a value already"),
        (operator(intermediates=(5,)), f"{GRAPH}, operator 0 has tensor 5 inside, which does not exist; there are 2"),
        (operator(opcode_index=3), f"{GRAPH}, operator 0: operator code 3 does not exist, there are 1"),
        (one_graph() | {"operator_codes": [{"builtin_code": 9999}]}, "9999 is no builtin operator; known are 0"),
        (one_graph() | {"operator_codes": [{"builtin_code": 32}]}, "is a custom operator without a name"),
        (
            operator(builtin_options=("IfOptions", {"then_subgraph_index": 4}))
            | {"operator_codes": [{"builtin_code": 118}]},
            "subgraph 0, operator 0 IF: then_subgraph_index is 4, there are 1 subgraphs",
        ),
        (
            operator(builtin_options=("IfOptions", {})) | {"operator_codes": [{"builtin_code": 118}]},
            "subgraphs call each other in a circle",
        ),
        (one_tensor(buffer=2), f"{GRAPH}, tensor 0 'a': buffer 2 does not exist, there are 2"),
        (one_tensor(external_buffer=2), "its data is in another file"),
        (one_tensor(shape=(-1, 4)), r"the shape \[-1, 4\] has a negative size"),
        (one_tensor(shape=(3, 2)), r"its buffer has 16 bytes, expected 24 for float32\[3, 2\]"),
        (one_tensor(shape=(0x7FFFFFFF,) * 8), "has more than 1099511627776 elements"),
        (one_tensor(shape=(1,) * 33), "has 33 dimensions, expected at most 32"),
        (one_tensor(shape_signature=(-1,)), r"the shape signature \[-1\] does not fit \[2, 2\]"),
        (one_tensor(shape_signature=(-1, -3)), r"the shape signature \[-1, -3\] does not fit"),
        (one_tensor(is_variable=True), "is a variable, but has a buffer of 16 bytes"),
        (
            one_tensor() | {"buffers": [{}, {"offset": 1 << 60, "size": 16}]},
            "buffer 1: 16 bytes from 1152921504606846976 on",
        ),
        (
            one_tensor() | {"buffers": [{}, {"offset": 2, "size": (1 << 64) - 2}]},
            "18446744073709551614 bytes from 2 on",
        ),
        (one_tensor(quantization={"scale": (1, 1), "zero_point": (0,)}), "1 zero points for 2 scales"),
        (one_tensor(quantization={"scale": (1,) * 3}), r"3 scales along dimension 0 of the shape \[2, 2\]"),
        (one_tensor(quantization={"scale": (1,), "quantized_dimension": 2}), "is quantized along dimension 2"),
        (
            one_graph() | {"signature_defs": [{"subgraph_index": 1}]},
            "signature 0: subgraph 1 does not exist, there are 1",
        ),
        (
            one_graph() | {"signature_defs": [{"signature_key": "run", "inputs": [{"name": "x", "tensor_index": 9}]}]},
            "signature 0 'run', inputs argument 0 'x': tensor 9 does not exist, there are 2",
        ),
    ],
)
def test_a_contradiction_is_refused_by_its_place(model: Record, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read(packed(model))


def blockwise(**details: int) -> Record:
    """A tensor of four elements in two blocks, whose scales are tensor 1."""
    details = {"scales": 1, "block_size": 2} | details
    tensor = {"shape": (2, 2), "quantization": {"details": ("BlockwiseQuantization", details)}}
    halves = {"shape": (2,), "type": "FLOAT16", "buffer": 1}
    nans = {"shape": (2,), "type": "FLOAT32", "buffer": 2}
    graph = one_graph(tensors=[tensor, halves, nans], operators=[], outputs=(0,))
    return graph | {"buffers": [{}, {"data": bytes(4)}, {"data": np.full(2, np.nan, "<f4").tobytes()}]}


def test_the_blockwise_parts_make_a_model_by_themselves() -> None:
    assert read(packed(blockwise())).graphs[0].tensors[0].quant == Quant((0.0, 0.0), (0,), 0, 2)


@pytest.mark.parametrize(
    ("details", "message"),
    [
        ({"scales": 3}, "scales of its blocks: tensor 3 does not exist, there are 3"),
        ({"scales": -1}, "scales of its blocks: tensor -1 does not exist"),
        ({"scales": 0}, r"tensor 0 float32\[2, 2\] is not a constant of 2 float16"),
        ({"zero_points": 2}, r"tensor 2 float32\[2\] is not a constant of 2 int8"),
        ({"block_size": 0}, "is quantized in blocks of 0, expected at least 1"),
        ({"block_size": 4}, r"tensor 1 float16\[2\] is not a constant of 1 float16"),
    ],
)
def test_scales_that_do_not_fit_the_blocks_are_refused(details: dict[str, int], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read(packed(blockwise(**details)))


ROWS = DimensionMetadata(False, dense_size=2)
COLUMNS = DimensionMetadata(True, segments=(0, 2, 3), indices=(1, 3, 2))


@pytest.mark.parametrize(
    ("sparsity", "message"),
    [
        (Sparsity((0, 0), (), (ROWS, COLUMNS)), "its traversal order of 2 steps is none of 2 dimensions and 0 blocks"),
        (Sparsity((0, 1), (), (ROWS,)), "1 stored dimensions for 2 traversed"),
        (Sparsity((0, 1, 2), (5,), (ROWS, COLUMNS, ROWS)), "its 1 blocks are not along different ones of 2 dimensions"),
        (Sparsity((0, 1, 2), (1,), (ROWS, COLUMNS, COLUMNS)), "a block of 0 does not divide dimension 1"),
        (Sparsity((0, 1, 2), (1,), (ROWS, COLUMNS, DimensionMetadata(False, 3))), "a block of 3 does not divide"),
        (Sparsity((0, 1), (), (DimensionMetadata(False, 3), COLUMNS)), "dimension 0 has 3 steps, expected 2"),
        (Sparsity((0, 1), (), (ROWS, ROWS)), "dimension 1 has 2 steps, expected 4"),
        (Sparsity((0, 1), (), (ROWS, DimensionMetadata(False, 4))), "3 stored values, expected 8"),
        (
            Sparsity((0, 1), (), (ROWS, DimensionMetadata(True, 0, (0, 3), (1, 3, 2)))),
            "dimension 1: 2 segment borders do not cut 3 indices for 2 positions",
        ),
        (
            Sparsity((0, 1), (), (ROWS, DimensionMetadata(True, 0, (1, 2, 3), (1, 3, 2)))),
            "dimension 1: 3 segment borders do not cut 3 indices for 2 positions",
        ),
        (
            Sparsity((0, 1), (), (ROWS, DimensionMetadata(True, 0, (0, 4, 3), (1, 3, 2)))),
            "dimension 1: its segment borders run backwards",
        ),
        (
            Sparsity((0, 1), (), (ROWS, DimensionMetadata(True, 0, (0, 2, 3), (1, 4, 2)))),
            r"dimension 1: its indices 1\.\.4 are not all in 0\.\.3",
        ),
    ],
)
def test_a_sparsity_that_cannot_be_expanded_is_refused(sparsity: Sparsity, message: str) -> None:
    builder = ModelBuilder()
    builder.output(builder.constant(np.ones(3, np.float32), shape=(2, 4), sparsity=sparsity))
    with pytest.raises(ModelError, match=message):
        read(builder.finish())


def test_few_stored_values_cannot_claim_a_huge_constant() -> None:
    rows = DimensionMetadata(False, dense_size=1 << 20)
    columns = DimensionMetadata(True, segments=(0,) * (1 << 10), indices=())
    builder = ModelBuilder()
    sparsity = Sparsity((0, 1), (), (rows, columns))
    builder.output(builder.constant(np.ones(1, np.float32), shape=(1 << 20, 1 << 19), sparsity=sparsity))
    with pytest.raises(ModelError, match="1 stored values for 549755813888 elements are too few to be meant"):
        read(builder.finish())


@pytest.mark.parametrize("build", [convolution, everything])
def test_every_truncation_is_survived(build: Callable[[], bytes]) -> None:
    content = build()
    outcomes = Counter(fuzz.outcome(content[:length]) for length in range(len(content)))
    assert outcomes["refused"] > len(content) * 0.9


@pytest.mark.parametrize("build", [convolution, everything])
@pytest.mark.parametrize("seed", range(4))
def test_damage_anywhere_is_survived(build: Callable[[], bytes], seed: int) -> None:
    content = build()
    places = fuzz.survey(content)
    rng = random.Random(seed)
    with fuzz.limits(seconds=60, megabytes=1024):
        outcomes = Counter(fuzz.outcome(fuzz.damaged(content, places, rng)) for _ in range(1000))
    assert outcomes["refused"] > 100 and outcomes["read"] > 20


def test_every_single_bit_of_a_small_file_may_flip() -> None:
    builder = ModelBuilder()
    builder.output(builder.op("RELU", [builder.input((2,))], (2,)))
    content = builder.finish()
    for position in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[position // 8] ^= 1 << position % 8
        fuzz.outcome(bytes(flipped))


def shared_tables(count: int) -> bytes:
    """A model with one subgraph table, which `count` entries of its list of subgraphs lead to."""
    builder = Builder()
    name = builder.CreateString("x" * 1000)
    builder.StartObject(6)
    builder.PrependUOffsetTRelativeSlot(4, name, 0)
    graph = builder.EndObject()
    builder.StartVector(4, count, 4)
    for _ in range(count):
        builder.PrependUOffsetTRelative(graph)
    graphs = builder.EndVector()
    builder.StartObject(10)
    builder.PrependUint32Slot(0, 3, 0)
    builder.PrependUOffsetTRelativeSlot(2, graphs, 0)
    builder.Finish(builder.EndObject(), b"TFL3")
    return bytes(builder.Output())


def test_a_table_may_be_shared_a_little() -> None:
    assert len(read(shared_tables(8)).graphs) == 8


def test_a_table_that_is_shared_without_measure_is_refused_with_little_memory() -> None:
    content = shared_tables(100_000)
    tracemalloc.start()
    with pytest.raises(ModelError, match="bytes are read over and over"):
        read(content)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * len(content)


def test_a_buffer_that_is_shared_without_measure_is_refused() -> None:
    tensor = {"shape": (100_000,), "buffer": 1, "type": "INT8"}
    model = one_graph(tensors=[tensor] * 1000, operators=[], outputs=(0,))
    with pytest.raises(ModelError, match=r"tensor \d+: buffers of the file's \d+ bytes are used over and over"):
        read(packed(model | {"buffers": [{}, {"data": bytes(100_000)}]}))


def test_metadata_without_its_buffer_is_left_out() -> None:
    """As in LiteRT, which reads only the metadata that it knows."""
    metadata = [{"name": "lost", "buffer": 5}, {"name": "kept", "buffer": 0}]
    assert read(packed(one_graph() | {"metadata": metadata})).metadata == {"kept": b""}


def test_metadata_that_shares_a_buffer_without_measure_is_refused() -> None:
    metadata = [{"name": f"m{index}", "buffer": 1} for index in range(40)]
    with pytest.raises(ModelError, match=r"metadata \d+ 'm\d+': the file's \d+ bytes are read over and over"):
        read(packed(one_graph() | {"metadata": metadata, "buffers": [{}, {"data": bytes(100_000)}]}))


def test_custom_options_that_share_bytes_without_measure_are_refused() -> None:
    each = {"outputs": (), "large_custom_options_offset": 100, "large_custom_options_size": 100_000}
    model = one_graph(operators=[each] * 1000, outputs=(0,))
    codes = {"operator_codes": [{"builtin_code": 32, "custom_code": "Mine"}], "buffers": [{}, {"data": bytes(100_000)}]}
    with pytest.raises(
        ModelError, match=r"operator \d+: custom options: buffers of the file's \d+ bytes are used over"
    ):
        read(packed(model | codes))


@pytest.mark.parametrize("offset_and_size", [(0, 16), (1, 16), (16, 0), (16, 1)])
def test_an_offset_or_size_of_0_or_1_means_no_data(offset_and_size: tuple[int, int]) -> None:
    offset, size = offset_and_size
    model = one_tensor() | {"buffers": [{}, {"offset": offset, "size": size}]}
    assert read(packed(model)).graphs[0].tensors[0].data is None


def test_a_vector_longer_than_the_file_is_refused() -> None:
    content = bytearray(packed(one_graph()))
    position = content.index(b"main") - 4
    struct.pack_into("<I", content, position, 0xFFFFFFFF)
    with pytest.raises(ModelError, match=r"model\.subgraphs\[0\]\.name: its 4294967295 elements of 1 bytes do not fit"):
        read(content)


def refusal(content: bytes) -> str:
    try:
        read(content)
    except ModelError as error:
        return str(error)
    return ""


def test_an_enum_value_that_the_schema_lacks_is_refused() -> None:
    content = convolution()
    single_bytes = [place.position for place in fuzz.survey(content).places if place.width == 1]
    refusals = {refusal(content[:position] + b"\x63" + content[position + 1 :]) for position in single_bytes}
    options = "model.subgraphs[0].operators[0].builtin_options"
    expected = {
        f"{options}.fused_activation_function: 99 is no ActivationFunctionType; known are 0..5",
        "model.subgraphs[0].tensors[5].type: 99 is no TensorType; known are 0..22",
    }
    assert expected <= refusals


def test_names_that_are_not_utf8_are_read() -> None:
    content = packed(one_graph()).replace(b"main", b"m\xffin")
    assert read(content).graphs[0].name == "m\\xffin"
