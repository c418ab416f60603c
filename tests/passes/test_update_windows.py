"""Which inputs decide where a graph writes into its other inputs."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.ir.graph import Graph
from jitdelegate.passes import FOLD, run
from jitdelegate.passes.update_windows import update_windows
from jitdelegate.tflite.read import read
from jitdelegate.tflite.write import ModelBuilder

ZERO = np.zeros(1, np.int32)


def graph_of(way: str) -> Graph:
    """f32[1,9,4] with two rows replaced from an element of i32[3] on, which comes there on some way."""
    model = ModelBuilder()
    cache, rows = model.input((1, 9, 4)), model.input((1, 2, 4))
    place = model.input((3,), "int64" if way == "cast" else "int32")
    zero = model.constant(ZERO)
    if way == "cast":
        place = model.op("CAST", [place], (3,), dtype="int32")
    if way == "sum":
        place = model.op("ADD", [place, zero], (3,), dtype="int32")
        place = model.op("ADD", [place, place], (3,), dtype="int32")
    one = model.constant(np.array([1], np.int32))
    if way == "gather":
        first = model.op("GATHER", [place, one], (1,), dtype="int32", options={"axis": 0})
    else:
        first = model.op("SLICE", [place, one, one], (1,), dtype="int32")
    if way == "pack":
        scalars = [
            model.op("RESHAPE", [each, model.constant(np.zeros(0, np.int32))], (), dtype="int32")
            for each in (zero, first)
        ]
        start = model.op(
            "PACK", [scalars[0], scalars[1], scalars[0]], (3,), dtype="int32", options={"axis": 0, "values_count": 3}
        )
    else:
        start = model.op("CONCATENATION", [zero, first, zero], (3,), dtype="int32", options={"axis": 0})
    model.output(model.op("DYNAMIC_UPDATE_SLICE", [cache, rows, start], (1, 9, 4)))
    return run(read(model.finish()).graphs[0], lambda *_: None, FOLD)


@pytest.mark.parametrize("way", ["plain", "cast", "gather", "pack"])
def test_a_window_begins_at_an_element_of_an_input(way: str) -> None:
    assert update_windows(graph_of(way)) == ((0, 2, 1, 7),)


def test_what_is_computed_is_not_known() -> None:
    assert update_windows(graph_of("sum")) == ()


def test_updates_follow_each_other_and_the_least_room_counts() -> None:
    model = ModelBuilder()
    cache, place = model.input((9, 4)), model.input((2,), "int32")
    for rows in (2, 5, 1):
        cache = model.op("DYNAMIC_UPDATE_SLICE", [cache, model.input((rows, 4)), place], (9, 4))
    model.output(cache)
    graph = read(model.finish()).graphs[0]
    assert update_windows(graph) == ((0, 1, 0, 4), (0, 1, 1, 0))


def test_caches_of_open_sizes_have_no_window() -> None:
    """The sizes in the file are placeholders then."""
    model = ModelBuilder()
    cache, place = model.input((1, 4), shape_signature=(-1, 4)), model.input((2,), "int32")
    model.output(model.op("DYNAMIC_UPDATE_SLICE", [cache, model.input((1, 4)), place], (1, 4)))
    assert update_windows(read(model.finish()).graphs[0]) == ()


def test_what_the_graph_computes_itself_has_no_window() -> None:
    model = ModelBuilder()
    cache, rows, place = model.input((9, 4)), model.input((2, 4)), model.input((2,), "int32")
    model.output(model.op("DYNAMIC_UPDATE_SLICE", [model.op("NEG", [cache], (9, 4)), rows, place], (9, 4)))
    assert update_windows(read(model.finish()).graphs[0]) == ()
