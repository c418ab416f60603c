"""TFLite_Detection_PostProcess against LiteRT's own kernel."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

from jitdelegate.api.interpreter import Interpreter
from jitdelegate.ops import OPS
from jitdelegate.ops.case import Case
from jitdelegate.ops.detection import ANCHORS, OPTIONS
from jitdelegate.tflite.write import ModelBuilder
from tests.ops.litert import all_outputs

NAME = "TFLite_Detection_PostProcess"
OP = OPS[NAME]


def litert(arrays: list[np.ndarray], options: Mapping[str, Any]) -> list[np.ndarray]:
    """What LiteRT answers; the file does not say the sizes of the outputs, as converters leave them."""
    builder = ModelBuilder()
    operands = [builder.input(array.shape) for array in arrays[:2]] + [builder.constant(arrays[2])]
    outputs = [builder.tensor((), has_rank=False) for _ in range(4)]
    builder.node(NAME, operands, outputs, custom_options=bytes(flexbuffers.Dumps(dict(options))))
    builder.output(*outputs)
    return all_outputs(builder.finish(), arrays[:2])


def scores_of(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Scores of which many are equal."""
    return (np.random.default_rng(seed).integers(0, 20, shape) / 20).astype(np.float32)


@pytest.mark.parametrize("number", range(len(OP.cases)))
def test_the_reference_is_what_litert_computes(number: int) -> None:
    case = OP.cases[number]
    arrays = [array for array in case.arrays() if array is not None]
    copies = 1 if case.attrs.get("use_regular_nms") else case.attrs["max_classes_per_detection"]
    compare(case.outputs(OP), litert(arrays, case.attrs), copies)


def compare(expected: list[np.ndarray], found: list[np.ndarray], copies: int) -> None:
    """What is used of the outputs is equal; `copies` entries a box."""
    assert [each.shape for each in found] == [each.shape for each in expected]
    np.testing.assert_array_equal(found[3], expected[3])
    used = int(found[3][0]) * copies
    for ours, theirs in zip(expected[:3], found[:3], strict=True):
        np.testing.assert_allclose(theirs[:, :used], ours[:, :used], rtol=1e-6)


@pytest.mark.parametrize("regular", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_of_equal_scores_the_earlier_box_comes_first(seed: int, regular: bool) -> None:
    options = OPTIONS | {"use_regular_nms": regular, "max_detections": 10}
    encodings = np.random.default_rng(seed).uniform(0, 1, (1, 24, 4)).astype(np.float32)
    arrays = [encodings, scores_of((1, 24, 6), seed), ANCHORS]
    compare(OP.reference(arrays, options), litert(arrays, options), 1)


def test_options_are_read_as_litert_reads_them() -> None:
    decoded = OP.decode(bytes(flexbuffers.Dumps(OPTIONS | {"_output_quantized": True})))
    assert decoded["max_detections"] == 4
    assert decoded["detections_per_class"] == 100
    assert not decoded["use_regular_nms"]
    assert decoded["w_scale"] == 4.0


def test_bytes_that_are_no_options_are_refused() -> None:
    content = bytes(flexbuffers.Dumps(OPTIONS))
    random = np.random.default_rng(0)
    for length in range(len(content)):
        OP.decode(content[:length])
    for _ in range(500):
        damaged = bytearray(content)
        damaged[random.integers(len(content))] ^= 1 << random.integers(8)
        OP.decode(bytes(damaged))
    graph = Case(((1, 24, 4), (1, 24, 6), ANCHORS), OPTIONS).graph(OP)
    assert OP.decode(b"") == {}
    assert OP.check(graph, graph.nodes[0]) is None


def test_a_detection_network_runs_whole_and_answers_as_litert_does(models: Path) -> None:
    path = models / "derived" / "coco_ssd_mobilenet_v1_300_f32.tflite"
    image = np.random.default_rng(0).uniform(-1, 1, (1, 300, 300, 3)).astype(np.float32)
    interpreter = Interpreter(str(path))
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], image)
    interpreter.invoke()
    assert interpreter.report().fully_delegated
    details = interpreter.get_output_details()
    assert [tuple(detail["shape"]) for detail in details] == [(1, 10, 4), (1, 10), (1, 10), (1,)]
    expected = all_outputs(path.read_bytes(), [image])
    for detail, theirs, error in zip(details, expected, (1e-5, 0, 1e-5, 0), strict=True):
        np.testing.assert_allclose(interpreter.get_tensor(detail["index"]), theirs, atol=error)
