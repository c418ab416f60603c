"""The script that plants bugs in kernels counts what it planted, and its kernels run without a bug."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest

from jitdelegate.ir.forms import Softmax
from jitdelegate.ir.graph import Graph
from scripts import mutate_kernels
from tests.targets.cuda_graphs import graph_of

SHAPE = (3, 300)


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> Graph:
    """The only graph that the script has: rows that are longer than a warp."""
    graph = graph_of(Softmax(), [SHAPE], SHAPE)

    def settings() -> Iterator[mutate_kernels.Setting]:
        yield mutate_kernels.Setting(graph, "sm_90", "float32")

    monkeypatch.setattr(mutate_kernels, "settings", settings)
    return graph


def test_mutants_are_killed_idle_or_listed(graph: Graph, capsys: pytest.CaptureFixture[str]) -> None:
    status = mutate_kernels.main(["--most", "1", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert {one["family"] for one in found} == {"softmax sm_90"}
    assert {"a lane is another", "launches are not waited for"} < {one["kind"] for one in found}
    for one in found:
        assert one["planted"] == one["killed"] + one["idle"] + len(one["survivors"]) == 1
    killed, counted = (sum(one[key] for one in found) for key in ("killed", "planted"))
    idle = sum(one["idle"] for one in found)
    assert status == (killed < mutate_kernels.LEAST_KILLED * (counted - idle))


def test_a_family_that_no_graph_has_is_no_success(graph: Graph) -> None:
    assert mutate_kernels.main(["--only", "no such family"]) == 1


def test_results_that_differ_kill(graph: Graph) -> None:
    setting = next(mutate_kernels.settings())
    (template,) = mutate_kernels.families(1, "softmax")["softmax", "sm_90"]
    text = mutate_kernels.cuda_execute.ptx_of(template, "sm_90")
    right = mutate_kernels.Use(template, setting, mutate_kernels._outputs(setting, {}, "lockstep"))
    wrong = mutate_kernels.Use(template, setting, [np.zeros(SHAPE, np.float32)])
    assert (right.is_killed(text), wrong.is_killed(text)) == (False, True)
