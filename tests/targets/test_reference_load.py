"""The reference target as users select it: loaded, cached, in partitions, for other shapes, and with variables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import jitdelegate
from jitdelegate.base.options import DelegateOptions
from jitdelegate.commands.analysis.survey import analyze
from tests.api import partial_models as partial
from tests.api import resource_models, small_models
from tests.ops.recurrent_models import LstmModel

STATEFUL = {"variables": LstmModel(op="LSTM").content(), "resources": resource_models.streaming()}
PARTIAL: dict[str, Callable[[], bytes]] = {
    "alternating": partial.alternating,
    "loop": partial.loop,
    "branch": partial.branch,
    "remembering": partial.remembering,
}


def test_a_second_start_finds_the_program_and_answers_the_same(tmp_path: Path) -> None:
    value = np.random.default_rng(0).uniform(-1, 1, (1, 8, 8, 3)).astype(np.float32)
    answers = []
    for outcome in ("miss", "hit"):
        with jitdelegate.load(small_models.convolution(), target="reference", serialization_dir=tmp_path) as model:
            report = model.report()
            assert (report.target, report.cache.outcome, report.fully_delegated) == ("reference", outcome, True)
            assert {operator.place for operator in report.operators} == {"reference"}
            answers.append(bytes(model(value)))
    assert answers[0] == answers[1]


def test_analysis_tells_where_its_operators_run(tmp_path: Path) -> None:
    file = tmp_path / "model.tflite"
    file.write_bytes(partial.alternating())
    options = DelegateOptions(**partial.options(target="reference"))
    (subgraph,) = analyze(str(file), options).subgraphs
    assert [node.place for node in subgraph.nodes].count("reference") == 4
    assert "partitions" in subgraph.how
    file.write_bytes(small_models.convolution())
    assert analyze(str(file), DelegateOptions(target="reference")).subgraphs[0].how == "compiled whole"


def test_the_cpu_answers_as_the_reference_does() -> None:
    content = small_models.convolution(open_batch=True)
    models = [jitdelegate.load(content, target=target, serialization_dir=False) for target in ("reference", "cpu")]
    for batch in (1, 3):
        value = np.random.default_rng(batch).uniform(-1, 1, (batch, 8, 8, 3)).astype(np.float32)
        wanted, found = (np.asarray(model(value)) for model in models)
        assert wanted.shape[0] == batch
        np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("road", ["load", "interpreter"])
@pytest.mark.parametrize("name", PARTIAL)
def test_a_model_of_which_litert_keeps_a_part_answers_as_litert_does(name: str, road: str) -> None:
    content = PARTIAL[name]()
    rounds = partial.rounds_for(content)
    found = partial.ROADS[road](content, rounds, target="reference")
    partial.assert_same(found, partial.expected(content, rounds))


def test_partitions_are_evaluated_between_those_of_litert() -> None:
    with jitdelegate.load(partial.alternating(), options=partial.options(target="reference")) as model:
        places = [operator.place for operator in model.report().operators]
    assert places == ["reference", "reference", "litert", "reference", "litert", "reference"]


@pytest.mark.parametrize("name", STATEFUL)
def test_a_model_with_variables_goes_on_and_is_reset_as_litert_has_it(name: str) -> None:
    models = [
        jitdelegate.load(STATEFUL[name], target=target, serialization_dir=False) for target in ("reference", "litert")
    ]
    assert models[0].report().target == "reference"
    value = np.full(models[0].inputs[0].shape, 0.5, np.float32)
    for _ in range(2):
        for _ in range(3):
            found, wanted = (np.asarray(model(value)) for model in models)
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
        for model in models:
            model.reset_all_variables()
