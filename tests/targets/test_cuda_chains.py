"""Chains of nodes that one kernel computes together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from jitdelegate.ir.forms import Softmax
from jitdelegate.ir.graph import Graph, Node, Tensor
from jitdelegate.targets.cuda.code.gpu import GPUS
from jitdelegate.targets.cuda.code.writer import Writer
from jitdelegate.targets.cuda.forms.map import copy
from jitdelegate.targets.cuda.plan import plan as planning
from jitdelegate.targets.planning.chains import Chain, Finder, find_chains

SHAPE = (2, 8)


def three_softmaxes() -> Graph:
    tensors = tuple(Tensor(f"t{number}", SHAPE, "float32") for number in range(4))
    nodes = tuple(Node("SOFTMAX", (at,), (at + 1,), form=Softmax(), origin=(at,)) for at in range(3))
    return Graph(tensors, nodes, (0,), (3,))


def finder(*chains: tuple[int, ...]) -> Finder:
    def write(writer: Writer, nodes: Sequence[Node]) -> None:
        copy(writer, nodes[0].inputs[0], nodes[-1].outputs[0])

    def find(writer: Writer) -> Iterator[Chain]:
        return (Chain(positions, write) for positions in chains)

    return find


def test_a_node_belongs_to_the_first_chain_that_has_it() -> None:
    writer = Writer(three_softmaxes(), GPUS["sm_90"], "float32")
    found = find_chains(writer, [finder((0, 1)), finder((1, 2), (2,))])
    assert {last: chain.positions for last, chain in found.items()} == {1: (0, 1), 2: (2,)}


def test_the_nodes_of_a_chain_are_written_once_where_the_last_one_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planning, "FINDERS", ("test",))
    monkeypatch.setattr(planning, "load", lambda package, name: finder((0, 2)))
    middle, last = planning.plan(three_softmaxes(), GPUS["sm_90"], "float32").launches
    assert (middle.form, middle.origin) == ("Softmax", (1,))
    assert (last.form, last.origin) == ("Softmax + Softmax", (0, 2))
    assert set(last.tensors()) == {0, 3}
