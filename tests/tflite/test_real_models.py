"""What the reader makes of real models, against LiteRT's interpreter and the object interface that flatc generates."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as flatc
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from jitdelegate.errors import ModelError
from jitdelegate.ir.graph import Graph, Tensor
from jitdelegate.ir.verify import verify
from jitdelegate.tflite.options import OPTIONS_TABLE
from jitdelegate.tflite.read import read
from jitdelegate.tflite.schema import ENUMS, TABLES
from tests.conftest import models_dir

REFUSED = {
    "0_subgraphs.bin.tflite": "has no subgraph",
    "add_shared_tensors.bin.tflite": "operator 0 'ADD' writes tensor 1 'input', which has a value already",
    "person_detect.tflite": "is quantized along dimension 3",
    "segment_sum_invalid_buffer.bin.tflite": "operator 0 'SEGMENT_SUM' reads tensor 2 'pyx/y' before it is written",
}
"""LiteRT refuses these too: when it opens, allocates or runs them."""

KILL_LITERT = {"keyword_scrambled_8bit.tflite", "while_op_with_forwarding_input.bin.tflite"}
"""LiteRT 2.3.0 crashes when these are freed."""

NUMPY_OF_LITERT = {"string": "bytes", "resource": "uint8", "variant": "uint8"}


def paths() -> list[Any]:
    """Every model, as parameters; one that skips where there are none."""
    try:
        found = sorted(models_dir().glob("*/*.tflite"))
    except pytest.skip.Exception:
        found = []
    named = [pytest.param(path, id=f"{path.parent.name}/{path.stem}") for path in found]
    return named or [pytest.param(None, id="none")]


@pytest.fixture(params=paths())
def path(request: pytest.FixtureRequest) -> Path:
    found: Path | None = request.param
    return found or models_dir()


def test_every_model_is_read_or_refused_as_litert_does(path: Path) -> None:
    if path.name in REFUSED:
        with pytest.raises(ModelError, match=REFUSED[path.name]):
            read(path.read_bytes())
        return
    for graph in read(path.read_bytes()).graphs:
        verify(graph, "reading")


def test_tensors_and_signatures_are_those_of_litert(path: Path) -> None:
    if path.name in KILL_LITERT:
        pytest.skip("LiteRT crashes when it frees this model")
    content = path.read_bytes()
    try:
        interpreter = Interpreter(
            model_content=content,
            experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        )
    except (ValueError, RuntimeError) as error:
        pytest.skip(f"LiteRT does not open it: {str(error)[:100]}")
    if path.name in REFUSED:
        pytest.skip(f"refused: {REFUSED[path.name]}")
    model = read(content)
    graph = model.graphs[0]
    assert list(graph.inputs) == [details["index"] for details in interpreter.get_input_details()]
    assert list(graph.outputs) == [details["index"] for details in interpreter.get_output_details()]
    found = {details["index"]: details for details in interpreter.get_tensor_details()}
    for index, tensor in enumerate(graph.tensors):
        if index in found:
            compare(tensor, found[index])
    assert interpreter.get_signature_list() == {
        each.key: {"inputs": sorted(each.inputs), "outputs": sorted(each.outputs)} for each in model.signatures
    }


def compare(tensor: Tensor, details: Mapping[str, Any]) -> None:
    assert tensor.name == details["name"]
    assert tensor.shape == tuple(details["shape"])
    assert tensor.shape_signature == tuple(details["shape_signature"])
    if tensor.dtype not in ("int4", "bfloat16", "resource", "variant"):
        assert NUMPY_OF_LITERT.get(tensor.dtype, tensor.dtype) == np.dtype(details["dtype"]).name.removesuffix("_")
    quantization = details["quantization_parameters"]
    scales = tensor.quant.scales if tensor.quant else ()
    np.testing.assert_array_equal(np.array(scales, np.float32), quantization["scales"])
    if tensor.quant:
        assert list(tensor.quant.zero_points) == quantization["zero_points"].tolist()
        assert tensor.quant.axis == quantization["quantized_dimension"]


def test_nodes_and_constants_are_those_of_flatc(path: Path) -> None:
    if path.name in REFUSED:
        pytest.skip(f"refused: {REFUSED[path.name]}")
    content = path.read_bytes()
    expected = flatc.ModelT.InitFromPackedBuf(content)
    for graph, subgraph in zip(read(content).graphs, expected.subgraphs, strict=True):
        compare_nodes(graph, subgraph, expected)
        compare_constants(graph, subgraph, expected)


def compare_nodes(graph: Graph, subgraph: Any, model: Any) -> None:
    for node, operator in zip(graph.nodes, subgraph.operators or [], strict=True):
        code = model.operatorCodes[operator.opcodeIndex]
        builtin = ENUMS["BuiltinOperator"][max(code.deprecatedBuiltinCode, code.builtinCode)]
        assert node.op == (code.customCode.decode() if node.custom else builtin)
        assert node.inputs == tuple(listed(operator.inputs))
        assert node.outputs == tuple(listed(operator.outputs))
        assert node.custom_options == bytes(listed(operator.customOptions))
        assert node.version == code.version
        options = operator.builtinOptions or operator.builtinOptions2
        if type(options).__name__ == f"{OPTIONS_TABLE.get(node.op)}T":
            assert node.attrs == as_attributes(options)


def listed(values: Any) -> list[int]:
    return [] if values is None else list(values)


def as_attributes(options: Any) -> dict[str, Any]:
    """flatc's object as the reader's attributes; slots of the schema and flatc's fields have the same order."""
    fields = [field for field in TABLES[type(options).__name__.removesuffix("T")] if field is not None]
    return {
        name: as_attribute(value, code, of)
        for (name, code, of, _), value in zip(fields, vars(options).values(), strict=True)
    }


def as_attribute(value: Any, code: str, of: str) -> Any:
    if code == "s":
        return "" if value is None else value.decode()
    if code == "[B]":
        return bytes(listed(value))
    if code[0] == "[":
        return tuple(listed(value))
    return ENUMS[of][value] if of else value


def compare_constants(graph: Graph, subgraph: Any, model: Any) -> None:
    for tensor, expected in zip(graph.tensors, subgraph.tensors or [], strict=True):
        data = model.buffers[expected.buffer].data
        if data is not None and len(data):
            assert tensor.data is not None and tensor.data.tobytes() == bytes(data)
        else:
            assert tensor.data is None or tensor.size == 0
        if tensor.sparsity is not None:
            assert len(tensor.sparsity.dimensions) == len(expected.sparsity.dimMetadata)
