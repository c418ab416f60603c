"""Node data for Model Explorer: its names for graphs and nodes, our colours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jitdelegate.base.options import DelegateOptions
from jitdelegate.commands.analysis.colours import FIXED, PARTITIONS
from jitdelegate.commands.analysis.model_explorer import model_explorer
from jitdelegate.commands.analysis.survey import analyze
from jitdelegate.tflite.write import ModelBuilder
from tests.api import small_models
from tests.commands.analysis import analyzed_models


def data(content: bytes, folder: Path, **options: Any) -> dict[str, Any]:
    path = folder / "model.tflite"
    path.write_bytes(content)
    found: dict[str, Any] = json.loads(
        model_explorer(analyze(str(path), DelegateOptions(target="cpu", serialization_dir=False, **options)))
    )
    return found


def test_a_node_is_its_position_with_place_partition_and_colour(tmp_path: Path) -> None:
    found = data(analyzed_models.in_partitions(), tmp_path, only_ops="CONV_2D", partitioning="all")
    assert found["main"]["results"] == {
        "0": {"value": "cpu #0", "bgColor": PARTITIONS[0]},
        "1": {"value": "litert #1", "bgColor": FIXED["litert"]},
        "2": {"value": "cpu #2", "bgColor": PARTITIONS[2]},
    }


def test_every_subgraph_that_is_entered_is_a_graph_by_its_name(tmp_path: Path) -> None:
    found = data(small_models.two_signatures(), tmp_path)
    assert set(found) == {"main", "second"}
    assert list(found["second"]["results"]) == ["0"]


@pytest.mark.parametrize(("signature", "name"), [("serve", "serve"), ("", "main")])
def test_a_subgraph_without_a_name_is_called_by_its_signature(tmp_path: Path, signature: str, name: str) -> None:
    model = ModelBuilder(name="")
    value = model.input((2,), name="value")
    result = model.op("RELU", [value], (2,))
    model.output(result)
    if signature:
        model.signature(signature, {"x": value}, {"y": result})
    assert set(data(model.finish(), tmp_path)) == {name}


def test_a_tensor_that_is_named_like_a_position_takes_no_node_s_place(tmp_path: Path) -> None:
    model = ModelBuilder()
    first = model.op("RELU", [model.input((2,), name="1")], (2,), name="first")
    model.output(model.op("ABS", [first], (2,), name="second"))
    assert set(data(model.finish(), tmp_path)["main"]["results"]) == {"0", "second"}
