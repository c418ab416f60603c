"""What the reader makes of well-formed files."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest

from jitdelegate.errors import ModelError
from jitdelegate.ir.graph import ABSENT, DimensionMetadata, Graph, Model, Quant, Signature, Sparsity, Tensor
from jitdelegate.ir.verify import verify
from jitdelegate.tflite.read import read
from jitdelegate.tflite.write import ModelBuilder
from tests.tflite.example_models import convolution, everything, sparse_matrix


@pytest.fixture(scope="module")
def model() -> Model:
    return read(everything())


def named(graph: Graph, name: str) -> Tensor:
    (found,) = [tensor for tensor in graph.tensors if tensor.name == name]
    return found


def test_the_graphs_are_well_formed(model: Model) -> None:
    for graph in model.graphs:
        verify(graph, "reading")
    assert [graph.name for graph in model.graphs] == ["main", "branch"]


def test_signatures_name_tensors_of_their_subgraph(model: Model) -> None:
    main = model.graphs[0]
    assert model.signatures == (
        Signature("serve", 0, {"x": main.inputs[0]}, {"y": main.outputs[0], "z": main.outputs[1]}),
        Signature("branch", 1, {"a": 0}, {"b": 1}),
    )


def test_metadata_and_description_are_kept(model: Model) -> None:
    assert (model.description, model.metadata) == ("everything", {"note": b"some bytes"})


def test_unknown_sizes_are_in_the_shape_signature_alone(model: Model) -> None:
    x = named(model.graphs[0], "x")
    assert (x.shape, x.shape_signature) == ((1, 4), (-1, 4))


def test_a_tensor_without_shape_signature_has_its_shape_as_such(model: Model) -> None:
    assert named(model.graphs[0], "y").shape_signature == (1, 2)


def test_quantization_per_channel_is_read(model: Model) -> None:
    expected = Quant((0.5, 0.25), (0, 0), 0, minimum=(-1.0,), maximum=(1.0,))
    assert named(model.graphs[0], "weights").quant == expected


def test_quantization_per_block_has_the_scales_of_its_tensor(model: Model) -> None:
    assert named(model.graphs[0], "packed").quant == Quant((0.5, 2.0, 1.0, 0.25), (0,), 0, block_size=2)


def test_scales_without_zero_points_have_zero_points_of_zero() -> None:
    builder = ModelBuilder()
    builder.output(builder.input((2,), "int8", quant=Quant((0.5,), ())))
    assert read(builder.finish()).graphs[0].tensors[0].quant == Quant((0.5,), (0,))


def test_constants_are_read_only_arrays_of_their_shape() -> None:
    weights = named(read(bytearray(everything())).graphs[0], "weights").data
    assert weights is not None
    np.testing.assert_array_equal(weights, np.arange(8, dtype=np.int8).reshape(2, 4))
    assert not weights.flags.writeable


def test_constants_are_views_on_the_content() -> None:
    content = convolution()
    weights = named(read(content).graphs[0], "weights").data
    assert weights is not None
    assert np.shares_memory(weights, np.frombuffer(content, np.uint8))


def test_half_precision_constants_keep_their_type(model: Model) -> None:
    halves = named(model.graphs[0], "halves")
    assert halves.dtype == "float16"
    assert halves.data is not None and halves.data.tolist() == [0.0, 1.0]


def test_types_without_numpy_are_raw_bytes(model: Model) -> None:
    packed = named(model.graphs[0], "packed")
    assert (packed.dtype, packed.shape) == ("int4", (2, 4))
    assert packed.data is not None and packed.data.dtype == np.uint8 and packed.data.tolist() == [0, 1, 2, 3]


def test_sparse_constants_keep_their_stored_values(model: Model) -> None:
    values, sparsity = sparse_matrix()
    stored = named(model.graphs[0], "stored")
    assert (stored.shape, stored.sparsity) == ((2, 4), sparsity)
    np.testing.assert_array_equal(stored.data, values)


def test_blocks_of_sparse_constants_are_read() -> None:
    rows = DimensionMetadata(False, dense_size=2)
    columns = DimensionMetadata(True, segments=(0, 1, 2), indices=(1, 0))
    block = DimensionMetadata(False, dense_size=2)
    sparsity = Sparsity((0, 1, 2), (1,), (rows, columns, block))
    builder = ModelBuilder()
    builder.output(builder.constant(np.ones(4, np.float32), shape=(2, 4), sparsity=sparsity))
    assert read(builder.finish()).graphs[0].tensors[0].sparsity == sparsity


def test_variables_have_no_data(model: Model) -> None:
    state = named(model.graphs[0], "state")
    assert state.is_variable and state.data is None


def test_buffers_behind_the_flatbuffer_are_read() -> None:
    inside, behind = (named(read(convolution(external)).graphs[0], "weights").data for external in (False, True))
    assert inside is not None
    np.testing.assert_array_equal(inside, behind)


def test_options_are_attributes_with_their_names_and_defaults() -> None:
    assert read(convolution()).graphs[0].nodes[0].attrs == {
        "padding": "SAME",
        "stride_w": 2,
        "stride_h": 2,
        "fused_activation_function": "RELU6",
        "dilation_w_factor": 1,
        "dilation_h_factor": 1,
        "quantized_bias_type": "FLOAT32",
    }


def test_vectors_among_options_are_tuples() -> None:
    assert read(convolution()).graphs[0].nodes[2].attrs == {"new_shape": (1, 64)}


def test_options_of_the_second_union_are_read() -> None:
    builder = ModelBuilder()
    x = builder.input((2, 3))
    builder.output(builder.op("STABLEHLO_TRANSPOSE", [x], (3, 2), options={"permutation": (1, 0)}))
    assert read(builder.finish()).graphs[0].nodes[0].attrs == {"permutation": (1, 0)}


def test_operators_of_two_byte_codes_are_read() -> None:
    builder = ModelBuilder()
    builder.output(builder.op("GELU", [builder.input((2,))], (2,), options={"approximate": True}))
    (node,) = read(builder.finish()).graphs[0].nodes
    assert (node.op, node.attrs) == ("GELU", {"approximate": True})


def test_custom_operators_have_their_name_and_raw_options(model: Model) -> None:
    (custom,) = [node for node in model.graphs[0].nodes if node.custom]
    assert (custom.op, custom.custom_options, custom.attrs) == ("Custom", b"\x01\x02", {})


def test_nodes_know_their_version_and_origin(model: Model) -> None:
    node = model.graphs[0].nodes[2]
    assert (node.op, node.version, node.origin) == ("FULLY_CONNECTED", 3, (2,))


def test_inputs_not_given_are_absent(model: Model) -> None:
    assert model.graphs[0].nodes[3].inputs[2] == ABSENT


def test_constants_without_elements_need_no_data() -> None:
    builder = ModelBuilder()
    x = builder.input((1,))
    shape = builder.constant(np.array([], np.int32), name="shape")
    builder.output(builder.op("RESHAPE", [x, shape], ()))
    shape_data = named(read(builder.finish()).graphs[0], "shape").data
    assert shape_data is not None and shape_data.shape == (0,) and shape_data.dtype == np.int32


def test_an_empty_shape_is_a_scalar_in_files_that_never_speak_of_ranks() -> None:
    builder = ModelBuilder()
    builder.output(builder.tensor((), is_variable=True, has_rank=False))
    assert read(builder.finish()).graphs[0].tensors[0].has_rank


def test_a_rank_can_be_unknown_in_files_that_speak_of_ranks() -> None:
    builder = ModelBuilder()
    builder.output(builder.input((2,)), builder.tensor((), is_variable=True, has_rank=False))
    assert [tensor.has_rank for tensor in read(builder.finish()).graphs[0].tensors] == [True, False]


def test_a_model_without_buffers_has_no_constants() -> None:
    builder = ModelBuilder()
    builder.output(builder.input((2,)))
    builder._file.buffers.clear()
    assert read(builder.finish()).graphs[0].tensors[0].data is None


def test_a_mapped_file_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(convolution())
    with path.open("rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    assert len(read(content).graphs[0].nodes) == 3


def test_a_refusal_names_the_place_by_index_and_name() -> None:
    builder = ModelBuilder()
    builder.output(builder.constant(np.zeros(3, np.float32), shape=(2, 2), name="bias"))
    expected = r"subgraph 0 'main', tensor 0 'bias': its buffer has 12 bytes, expected 16 for float32\[2, 2\]"
    with pytest.raises(ModelError, match=expected):
        read(builder.finish())
