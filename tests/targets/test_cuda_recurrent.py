"""Recurrent on CUDA: cells of every kind and size, run over sequences in both directions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jitdelegate.errors import CompileError
from jitdelegate.ir.expr import Arg
from jitdelegate.ir.forms import Recurrent
from jitdelegate.ir.graph import Graph, Tensor
from jitdelegate.targets.cuda.code.gpu import GPUS, Costs
from jitdelegate.targets.cuda.products.recurrent import RecurrentTemplate
from tests.gpu.simulator import SimulationError
from tests.targets import cuda_execute
from tests.targets.cuda_execute import assert_compiles_everywhere, ptx_of, run, templates_of
from tests.targets.cuda_graphs import compare, stored_between
from tests.targets.planted_bugs import replaced
from tests.targets.recurrent_graphs import CLIPPED, COUPLED, LSTM, PEEPHOLES, PLAIN, kept, recurrent

CASES = {
    "one unit": recurrent(LSTM, 3, 1, 1),
    "one step": recurrent(LSTM, 1, 2, 7),
    "a warp": recurrent(LSTM, 3, 2, 32),
    "a warp and a tail": recurrent(LSTM, 2, 1, 33),
    "more slices than the sums need": recurrent(LSTM, 2, 1, 20),
    "backwards": recurrent(COUPLED, 4, 2, 17),
    "plain, sequences apart": recurrent(PLAIN, 3, 3, 40),
    "peepholes": recurrent(PEEPHOLES, 3, 2, 12, constants=2),
    "more units than columns": recurrent(PLAIN, 2, 1, 300),
}
PROJECTED = {
    "to less": recurrent(CLIPPED, 3, 2, 20, outputs=5),
    "to more": recurrent(PLAIN, 2, 1, 9, outputs=40),
    "to as many": recurrent(replace(CLIPPED, reverse=True), 2, 1, 33, outputs=33),
}


@pytest.mark.parametrize("graph", CASES.values(), ids=CASES.keys())
def test_cells_of_every_size_are_as_the_reference_has_them(graph: Graph) -> None:
    compare(graph, tolerance=3e-6, schedule="random", seed=1)


@pytest.mark.parametrize("graph", PROJECTED.values(), ids=PROJECTED.keys())
def test_projected_cells_are_as_the_reference_has_them(graph: Graph) -> None:
    compare(kept(graph), tolerance=3e-6, schedule="random", seed=1)


SHARED = {
    "a state": recurrent(LSTM, 3, 2, 40),
    "peepholes": recurrent(PEEPHOLES, 2, 1, 24, constants=2),
    "backwards": recurrent(COUPLED, 3, 1, 8),
}


@pytest.mark.parametrize("name", SHARED)
def test_the_blocks_of_a_cluster_share_out_units(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GPUS, "sm_90", replace(GPUS["sm_90"], costs=Costs(exchange=-1e6)))
    (template,) = templates_of(SHARED[name])
    assert template.cluster > 1
    compare(SHARED[name], tolerance=3e-6, schedule="random", seed=2)


def test_weights_stay_on_the_chip_where_they_fit() -> None:
    """64 units in a block; 256 in a cluster; 1024 in none."""
    found = {units: templates_of(large(LSTM, units))[0] for units in (64, 256, 1024)}
    kept = {units: (one.cluster > 1, one.is_kept) for units, one in found.items() if isinstance(one, RecurrentTemplate)}
    assert kept == {64: (False, True), 256: (True, True), 1024: (False, False)}
    assert not any(one.cluster > 1 for one in templates_of(large(LSTM, 256), "sm_80"))


def test_a_missing_barrier_of_a_cluster_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GPUS, "sm_90", replace(GPUS["sm_90"], costs=Costs(exchange=-1e6)))
    broken = replaced(r"barrier\.cluster\.[^;]*;\s*barrier\.cluster\.[^;]*;", "")
    (template,) = templates_of(SHARED["backwards"])
    text = ptx_of(template, "sm_90")
    for number in range(2):
        monkeypatch.setattr(cuda_execute, "ptx_of", lambda *_, number=number: broken(text, number))
        with pytest.raises(SimulationError):
            compare(SHARED["backwards"], tolerance=3e-6, schedule="random")


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_sequences_stored_as_16_bits_are_computed_in_float32(precision: str) -> None:
    compare(stored_between(CASES["backwards"]), precision)


def large(form: Recurrent, units: int) -> Graph:
    """One step of many units, whose weights are zeros that take no memory."""
    graph = recurrent(form, 1, 1, 1)
    weights = np.broadcast_to(np.float32(0), (form.gates * units, units))
    shapes = [(1, 1, form.gates * units), (1, units), (1, units), weights.shape, (2, 1, units)]
    tensors = tuple(Tensor(f"t{k}", shape, "float32") for k, shape in enumerate(shapes))
    return replace(graph, tensors=(*tensors[:3], replace(tensors[3], data=weights), tensors[4]))


def test_a_cell_that_does_not_fit_in_a_block_is_refused() -> None:
    with pytest.raises(CompileError, match="bytes of shared memory"):
        templates_of(large(PLAIN, 20_000))


def test_weights_that_padding_makes_too_many_are_refused() -> None:
    with pytest.raises(CompileError, match=r"A constant of \[11584, 4, 11776\]"):
        templates_of(large(LSTM, 11_584))


def test_recurrent_compiles_everywhere_without_local_memory() -> None:
    graphs = CASES["a warp and a tail"], CASES["peepholes"], *PROJECTED.values(), large(LSTM, 256), large(LSTM, 1024)
    assert_compiles_everywhere([template for graph in graphs for template in templates_of(graph)])


def test_a_step_reads_what_the_last_one_wrote() -> None:
    graph = recurrent(Recurrent(gates=1, cell=Arg(0) + Arg(1), output=Arg(1)), 3, 1, 1)
    graph.tensors[3].data[...] = 1.0
    (out,) = run(graph, [np.ones((3, 1, 1), np.float32), np.full((1, 1), 5, np.float32), np.zeros((1, 1), np.float32)])
    assert out.ravel().tolist() == [6, 13, 27, 27]
