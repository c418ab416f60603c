"""What an analysis suggests: every rule speaks of a model that it is about, and is silent about others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jitdelegate.base.options import DelegateOptions
from jitdelegate.commands.analysis.facts import Analysis, NodeFact, Suggestion
from jitdelegate.commands.analysis.reasons import REASONS
from jitdelegate.commands.analysis.suggestions import RULES
from jitdelegate.commands.analysis.survey import analyze
from jitdelegate.runtime.cuda.toolchain import installed_toolchain
from jitdelegate.targets.cuda.target import CudaDevice
from tests.api import resource_models, small_models
from tests.commands.analysis import analyzed_models

ALL = {"partitioning": "all"}
GPU = "sm_80"


def analysis(content: bytes, folder: Path, architecture: str = "", **options: Any) -> Analysis:
    path = folder / "model.tflite"
    path.write_bytes(content)
    target = "cuda" if architecture else "cpu"
    given = {"serialization_dir": False, "target": target, **options}
    return analyze(str(path), DelegateOptions(**given), CudaDevice(architecture) if architecture else None)


CASES: dict[str, tuple[Callable[[], bytes], dict[str, Any], tuple[int, ...]]] = {
    "asked_for_litert": (small_models.two_outputs, {"target": "litert"}, (0, 1)),
    "excluded_by_options": (small_models.two_outputs, {"only_ops": "ADD"} | ALL, (1,)),
    "too_many_partitions": (
        lambda: analyzed_models.chain("RELU", "ABS", "RELU", "RELU"),
        {"only_ops": "RELU", "max_delegated_partitions": 1} | ALL,
        (0,),
    ),
    "small_partitions": (
        lambda: analyzed_models.chain("RELU", "ABS", "RELU", "RELU"),
        {"only_ops": "RELU", "min_nodes_per_partition": 2} | ALL,
        (0,),
    ),
    "not_worth_it": (lambda: analyzed_models.chain("RELU", "FAKE_QUANT"), {}, (0,)),
    "quantized": (small_models.quantized_by_channel, {}, (0,)),
    "quantized_not_allowed": (small_models.quantized, {"quantized_models_allowed": False}, (0,)),
    "control_flow": (analyzed_models.loop, {}, (1,)),
    "unknown_operators": (small_models.uncompiled, {}, (0,)),
    "constant_operand": (analyzed_models.filled, {}, (1,)),
    "behind_unknown_shapes": (analyzed_models.behind_different_values, {}, (1, 2)),
    "deciding_input": (analyzed_models.asked_shape, {}, (0,)),
    "open_sizes": (lambda: small_models.convolution(open_batch=True), {}, ()),
    "moving_alone": (analyzed_models.moved_between, {"only_ops": "RELU"} | ALL, (1,)),
    "dead_operators": (analyzed_models.dead, {}, (0,)),
    "padded_channels": (analyzed_models.narrow, {"cpu_features": "x86-64-v3"}, (0, 1)),
}
"""Rule -> a model that it is about, options for it, the operators that it names."""


def of_rule(found: Analysis, rule: str) -> list[Suggestion]:
    return [each for each in found.suggestions if each.rule == rule]


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_names_the_operators_that_it_is_about(rule: str, tmp_path: Path) -> None:
    make, options, nodes = CASES[rule]
    (suggestion,) = of_rule(analysis(make(), tmp_path, **options), rule)
    assert (suggestion.subgraph, suggestion.nodes) == (0, nodes)
    sentences = (suggestion.change, suggestion.why, suggestion.gain)
    assert all(sentence.endswith(".") and "{" not in sentence for sentence in sentences)


def test_unknown_shapes_are_the_fault_of_what_comes_first(tmp_path: Path) -> None:
    found = analysis(analyzed_models.behind_different_values(), tmp_path)
    assert {each.rule for each in found.suggestions} == {"unknown_operators", "behind_unknown_shapes"}


def test_a_model_that_is_compiled_whole_needs_no_suggestion(tmp_path: Path) -> None:
    assert analysis(small_models.two_outputs(), tmp_path).suggestions == ()


@pytest.mark.skipif(not installed_toolchain(), reason="the CUDA compilers are not installed")
def test_a_gpu_hears_of_precision_narrow_reads_and_padding(tmp_path: Path) -> None:
    found = analysis(analyzed_models.narrow(), tmp_path, GPU)
    rules = {suggestion.rule: suggestion for suggestion in found.suggestions}
    assert rules.keys() == {"padded_channels", "narrow_reads", "precision", "too_small_for_gpu"}
    assert rules["narrow_reads"].nodes == (1,)  # the picture's three channels are nobody's fault
    assert (found.asked, found.main.target, found.main.features) == (f"cuda:{GPU}", "cuda", GPU)


def test_the_waste_of_padding_is_that_of_whole_vectors(tmp_path: Path) -> None:
    (suggestion,) = of_rule(analysis(analyzed_models.narrow(), tmp_path, cpu_features="x86-64-v3"), "padded_channels")
    first, second = 64 * 64 * 9 * 3 * (8 - 5), 64 * 64 * 9 * 5 * (8 - 6)
    assert f"{first + second:,} multiply-adds" in suggestion.why


def test_what_moving_alone_costs_are_the_bytes_there_and_back(tmp_path: Path) -> None:
    found = analysis(analyzed_models.moved_between(), tmp_path, only_ops="RELU", **ALL)
    (suggestion,) = of_rule(found, "moving_alone")
    assert suggestion.gain.startswith("Two crossings and 48 bytes")
    assert found.main.totals.crossing_bytes == 48


def node(op: str, reason: str, *, custom: bool = False) -> NodeFact:
    """An operator on LiteRT, as a rule sees it."""
    whole = dict.fromkeys(("inputs", "outputs"), ())
    return NodeFact(0, op, 0, 1, custom, False, "litert", reason, None, None, "", None, 0, **whole)


@pytest.mark.parametrize(
    ("fact", "rule"),
    [
        (node("Nonesuch", "The custom operator Nonesuch is not supported.", custom=True), "custom_operators"),
        (node("READ_VARIABLE", "The variable 'x' begins with nothing."), "resource_variables"),
        (node("ADD", "ADD: the rank of 'x' is not known."), "unknown_shapes"),
        (node("TRANSPOSE", "TRANSPOSE: 'x' is float64, which does not pass to and from LiteRT."), "types"),
        (node("CONV_2D", "CONV_2D: input 0 is float64, only float32 is supported."), "types"),
        (node("RESHAPE", "RESHAPE: input 0 is string, only float32 is supported."), "strings"),
        (node("SHAPE", "SHAPE is supported on constants only."), "constant_operand"),
        (node("IF", ""), None),
        (node("FILL", "It has hiccups."), None),
    ],
)
def test_the_first_reason_that_fits_counts(fact: NodeFact, rule: str | None) -> None:
    assert next((each.name for each in REASONS if each.fits(fact)), None) == rule


def test_every_rule_is_tested() -> None:
    elsewhere = {"narrow_reads", "precision", "too_small_for_gpu", "cpu_without_avx2"}
    by_reason = {"custom_operators", "resource_variables", "unknown_shapes", "strings", "types"}
    assert RULES.keys() == CASES.keys() | elsewhere | by_reason


def test_variables_that_compiled_code_keeps_are_no_matter(tmp_path: Path) -> None:
    found = analysis(resource_models.streaming(), tmp_path)
    assert [node.place for node in found.main.nodes if node.place == "litert"] == []
    assert of_rule(found, "resource_variables") == []
