"""Headlines: what runs where and why, in one or two sentences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jitdelegate.base.options import DelegateOptions
from jitdelegate.commands.analysis.survey import analyze
from tests.api import small_models
from tests.commands.analysis import analyzed_models

ALL = {"partitioning": "all"}
HEADLINES: dict[str, tuple[Callable[[], bytes], dict[str, Any], str]] = {
    "one": (small_models.convolution, {}, "The only operator is compiled for the CPU."),
    "both": (small_models.two_outputs, {}, "Both operators are compiled for the CPU."),
    "folded": (
        analyzed_models.reshaped,
        {},
        "All 3 operators are compiled for the CPU; 1 of them is computed while compiling.",
    ),
    "quantized": (
        small_models.quantized_by_channel,
        {},
        "The whole model (1 operator) runs on LiteRT: nothing is compiled for the quantized types or scales there.",
    ),
    "part": (
        analyzed_models.in_partitions,
        {"only_ops": "CONV_2D", **ALL},
        "2 of 3 operators, with > 99 % of the work, are compiled for the CPU. LiteRT runs the other one (RELU): "
        "options that are for debugging leave them to LiteRT.",
    ),
    "consequences": (
        analyzed_models.behind_different_values,
        {},
        "The whole model (3 operators) runs on LiteRT. Why: 1 (UNIQUE) because nothing is compiled for operators "
        "of these names; 2 because of these.",
    ),
    "shape inputs": (
        analyzed_models.asked_shape,
        {},
        "The only operator is compiled when a run brings the values of 'shape', which decide shapes.",
    ),
}


@pytest.mark.parametrize("name", HEADLINES)
def test_a_headline_says_what_runs_where_and_why(name: str, tmp_path: Path) -> None:
    make, options, expected = HEADLINES[name]
    path = tmp_path / "model.tflite"
    path.write_bytes(make())
    found = analyze(str(path), DelegateOptions(target="cpu", serialization_dir=False, **options))
    assert found.headline == found.main.headline == expected
