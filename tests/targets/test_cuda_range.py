"""The range of float16 and of denormal numbers: results overflow only where they are too large themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from jitdelegate.ir.expr import Arg
from jitdelegate.ir.forms import IndexMap, Map, Recurrent
from jitdelegate.ir.graph import Graph
from jitdelegate.ops import OPS
from jitdelegate.ops.case import Case
from jitdelegate.passes.lower import lower
from jitdelegate.targets.cuda.code.choices import Choices
from jitdelegate.targets.cuda.code.element import Element
from jitdelegate.targets.cuda.code.gpu import GPUS
from jitdelegate.targets.cuda.plan.plan import written
from jitdelegate.targets.cuda.tuning import problems_of
from jitdelegate.targets.reference.evaluate import run_graph
from tests.targets.cuda_execute import ptx_of, run, templates_of
from tests.targets.cuda_graphs import graph_of, stored_between
from tests.targets.part_graphs import Draft

LARGEST = float(np.finfo(np.float16).max)
SMALLEST = np.float32(2**-149)


def graphs() -> Iterator[tuple[str, Case, Graph]]:
    """The operators of floats that several nodes compute."""
    for name, op in OPS.items():
        for case in op.cases:
            graph = case.graph(op)
            if op.check(graph, graph.nodes[0]) is None and graph.tensors[graph.inputs[0]].dtype == "float32":
                lowered = lower(graph)
                if len(lowered.nodes) > 1:
                    yield name, case, lowered


def scaled(array: np.ndarray, factor: float) -> np.ndarray:
    """Floats that are larger by the factor, but not as large as what float16 has no number for."""
    if array.dtype != np.float32 or not array.size:
        return array
    largest = float(np.abs(array[np.isfinite(array)]).max(initial=1e-9))
    return np.asarray(array * np.float32(min(factor, LARGEST / 2 / largest)))


def is_in_range(array: np.ndarray) -> bool:
    return array.dtype.kind != "f" or bool((np.abs(array) <= LARGEST).all())


def test_what_an_operator_stores_in_float16_overflows_only_with_its_result() -> None:
    """Infinite gates of recurrent cells are as good as gates of 65504."""
    seen = 0
    for name, case, graph in graphs():
        writer, _ = written(graph, GPUS["sm_80"], "float16", Choices())
        accesses = (access for launch in writer.launches for access in launch.accesses())
        stored = {index for index, writes in accesses if writes and index >= 0}.difference(writer.graph.outputs)
        stored -= {index for node in writer.graph.nodes if isinstance(node.form, Recurrent) for index in node.inputs}
        narrow = [index for index in stored if writer.element(index) is Element.FLOAT16]
        for factor in (30, 1e3, 3e4) if narrow else ():
            feeds = [scaled(array, factor) for array in case.feeds()]
            with np.errstate(all="ignore"):
                results = run_graph(writer.graph, feeds)
                between = run_graph(replace(writer.graph, outputs=tuple(narrow)), feeds)
            if all(map(is_in_range, results)):
                assert all(map(is_in_range, between)), (name, factor)
                seen += 1
    assert seen > 20


@pytest.mark.parametrize("architecture", ["sm_75", "sm_90"])
@pytest.mark.parametrize("name", ["L2_NORMALIZATION", "L2_POOL_2D", "LOCAL_RESPONSE_NORMALIZATION"])
def test_sums_of_squares_are_not_stored_in_float16(name: str, architecture: str) -> None:
    op = OPS[name]
    (data,) = (scaled(array, 1e3) for array in op.cases[0].feeds())
    graph = lower(op.cases[0].graph(op))
    (found,), (expected,) = run(graph, [data], architecture, "float16"), run_graph(graph, [data])
    scale = float(np.abs(expected).max())
    assert 0 < scale <= LARGEST < float(np.square(data).max())
    np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-2 * scale)


def test_constants_that_an_operator_repeats_for_itself_are_stored_as_they_are_read() -> None:
    draft = Draft((4, 6))
    repeated = draft.node(Map(operands=(IndexMap.along(1),)), [draft.constant(np.ones(6, np.float32))], (4, 6))
    draft.tensors[repeated] = replace(draft.tensors[repeated], is_inner=True)
    graph = draft.graph(draft.made(draft.map(Arg(0) * Arg(1), repeated, draft.made(0))))
    feeds = [np.eye(4, 6, dtype=np.float32)]
    np.testing.assert_allclose(run(graph, feeds, precision="float16"), run_graph(graph, feeds), rtol=1e-2)


def test_tuning_measures_the_problem_that_was_asked() -> None:
    case = OPS["LOCAL_RESPONSE_NORMALIZATION"].cases[0]
    graph = lower(case.graph(OPS["LOCAL_RESPONSE_NORMALIZATION"]))
    asked = problems_of(graph, GPUS["sm_90"], "float16", Choices())
    assert asked
    for one in asked:
        assert all(list(plan.writer.choices.asked) == [one.problem] for plan in one.plans(2).values())


@pytest.mark.parametrize("architecture", ["sm_75", "sm_90"])
def test_denormal_numbers_are_kept(architecture: str) -> None:
    """Also those of float16, in which the numbers between the Maps are stored."""
    shape, access = (4, 8), IndexMap.broadcast((4, 8), (4, 8))
    graph = graph_of(Map(Arg(0) * Arg(1), (access, access)), [shape, shape], shape)
    tiny = np.arange(32, dtype=np.float32).reshape(shape) * SMALLEST
    (found,) = run(graph, [tiny, np.full(shape, 3, np.float32)], architecture)
    np.testing.assert_array_equal(found, tiny * np.float32(3))
    halves = np.arange(32, dtype=np.float32).reshape(shape) * np.float32(2**-24)
    (found,) = run(stored_between(graph), [halves, np.ones(shape, np.float32)], architecture, "float16")
    np.testing.assert_array_equal(found, halves * np.float32(2))
    for template in templates_of(graph, architecture):
        assert not re.search(r"\.ftz\b", ptx_of(template, architecture))
