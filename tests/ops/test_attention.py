"""Attention composites: compiled by their name as XNNPACK does it, and by their decomposition under other names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT
from flatbuffers import flexbuffers

import jitdelegate
from jitdelegate.ops import OPS
from jitdelegate.ops.case import Case
from jitdelegate.tflite.write import ModelBuilder

NAME = "odml.scaled_dot_product_attention"
OP = OPS[NAME]
Q, K = (1, 3, 4, 8), (1, 6, 2, 8)


def composite(shapes: list[tuple[int, ...]], attributes: Mapping[str, Any], name: str = NAME) -> bytes:
    """A composite of this name, whose decomposition is wrong: it answers the queries."""
    model = ModelBuilder()
    inputs = [model.input(shape) for shape in shapes]
    output = model.tensor(shapes[0], name="found")
    options = {
        "name": name,
        "decomposition_subgraph_index": 1,
        "composite_attributes": bytes(flexbuffers.Dumps(dict(attributes))),
    }
    model.node("STABLEHLO_COMPOSITE", inputs, [output], options=options)
    model.output(output)
    decomposition = model.subgraph()
    own = [decomposition.input(shape) for shape in shapes]
    decomposition.output(decomposition.op("ABS", [own[0]], shapes[0]))
    return model.finish()


def given(attributes: Mapping[str, Any]) -> dict[str, float]:
    """The attributes that a file has: none of those that are not given."""
    return {name: value for name, value in attributes.items() if value is not None}


def xnnpack(content: bytes, feeds: list[np.ndarray]) -> np.ndarray:
    """What LiteRT answers by default."""
    interpreter = LiteRT(model_content=content)
    interpreter.allocate_tensors()
    for detail, feed in zip(interpreter.get_input_details(), feeds, strict=True):
        interpreter.set_tensor(detail["index"], feed)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


@pytest.mark.parametrize("case", OP.cases, ids=range(len(OP.cases)))
def test_the_reference_is_what_xnnpack_computes(case: Case) -> None:
    feeds = case.feeds()
    content = composite([feed.shape for feed in feeds], given(case.attrs))
    np.testing.assert_allclose(case.expected(OP), xnnpack(content, feeds), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", OP.cases, ids=range(len(OP.cases)))
def test_a_composite_of_that_name_is_compiled_as_it_is_defined(case: Case) -> None:
    feeds = case.feeds()
    content = composite([feed.shape for feed in feeds], given(case.attrs))
    with jitdelegate.load(content, target="cpu", serialization_dir=False) as model:
        assert model.report().fully_delegated
        np.testing.assert_allclose(model(*feeds), case.expected(OP), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shapes", "attributes", "name"),
    [
        ([Q, K, K], {}, "odml.any_other"),
        ([Q, K, (1, 6, 2, 4)], {}, NAME),
        ([Q, (1, 6, 3, 8), (1, 6, 3, 8)], {}, NAME),
        ([Q, K, K, (1, 1, 3, 1)], {}, NAME),
        ([Q[1:], K[1:], K[1:]], {}, NAME),
        ([Q, K, K], {"scale": "large"}, NAME),
        ([Q, K, K], {"logit_cap": 0.0}, NAME),
    ],
    ids=["name", "depths", "heads", "mask", "rank", "scale", "cap"],
)
def test_what_the_name_does_not_stand_for_is_its_decomposition(
    shapes: list[tuple[int, ...]], attributes: Mapping[str, Any], name: str
) -> None:
    random = np.random.default_rng(0)
    feeds = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    content = composite(shapes, attributes, name)
    with jitdelegate.load(content, target="cpu", serialization_dir=False) as model:
        assert model.report().fully_delegated
        np.testing.assert_array_equal(model(*feeds), np.abs(feeds[0]))


@pytest.mark.parametrize("options", [b"", bytes(flexbuffers.Dumps({}))], ids=["none", "empty"])
def test_attributes_may_be_missing(options: bytes) -> None:
    assert OP.decode(options) == {"scale": None, "logit_cap": None}


@pytest.mark.parametrize("options", [b"\x00", b"\xff" * 7, bytes(flexbuffers.Dumps([1.0]))])
def test_other_bytes_are_no_attributes(options: bytes) -> None:
    assert OP.decode(options) == {}
