"""Chains of slices, concatenations and transposes that move whole rows."""

from __future__ import annotations

from collections.abc import Sequence

from jitdelegate.ir.forms import Concat, Map, View
from jitdelegate.ir.graph import Graph
from jitdelegate.ir.index_forms import Gather
from jitdelegate.passes import gather_rows, lower, remove_identity
from tests.passes.graphs import Builder, assert_same


class Rows(Builder):
    """A builder of moves."""

    def part(self, x: int, axis: int, first: int, size: int) -> int:
        shape = list(self.shape(x))
        start, shape[axis] = [first * (axis == each) for each in range(len(shape))], size
        return self.op("SLICE", [x, self.constant(start, "int32"), self.constant(shape, "int32")], tuple(shape))

    def join(self, axis: int, *parts: int) -> int:
        shape = list(self.shape(parts[0]))
        shape[axis] = sum(self.shape(part)[axis] for part in parts)
        return self.op("CONCATENATION", list(parts), tuple(shape), axis=axis, fused_activation_function="NONE")

    def rolled(self, x: int, axis: int, by: int) -> int:
        size = self.shape(x)[axis]
        return self.join(axis, self.part(x, axis, by, size - by), self.part(x, axis, 0, by))

    def reshape(self, x: int, *shape: int) -> int:
        return self.op("RESHAPE", [x, self.constant(shape, "int32")], shape)

    def transpose(self, x: int, order: Sequence[int]) -> int:
        shape = tuple(self.shape(x)[axis] for axis in order)
        return self.op("TRANSPOSE", [x, self.constant(order, "int32")], shape)

    def windows(self, x: int) -> int:
        """[1, 4, 6, C] as windows of 2 x 3 pixels."""
        channels = self.shape(x)[-1]
        return self.transpose(self.reshape(x, 1, 2, 2, 2, 3, channels), (0, 1, 3, 2, 4, 5))

    def relu(self, x: int) -> int:
        return self.op("RELU", [x], self.shape(x))


def forms(graph: Graph) -> list[type]:
    found = gather_rows(remove_identity(lower(graph)))
    assert_same(graph, found)
    return [type(node.form) for node in found.nodes if isinstance(node.form, Map | Concat | Gather)]


def test_a_shifted_window_is_gathered_at_once() -> None:
    build = Rows()
    shifted = build.rolled(build.rolled(build.relu(build.input(1, 4, 6, 8)), 1, 1), 2, 2)
    assert forms(build.finish(build.relu(build.windows(shifted)))) == [Map, Gather, Map]


def test_mirrored_borders_are_gathered_at_once() -> None:
    build = Rows()
    borders = build.constant([[0, 0], [1, 1], [2, 1], [0, 0]], "int32")
    padded = build.op("MIRROR_PAD", [build.input(1, 4, 6, 8), borders], (1, 6, 9, 8), mode="REFLECT")
    assert forms(build.finish(build.relu(padded))) == [Gather, Map]


def test_what_others_read_on_the_way_is_still_written() -> None:
    build = Rows()
    once = build.rolled(build.input(1, 4, 6, 8), 1, 1)
    graph = build.finish(build.relu(build.windows(build.rolled(once, 2, 2))), once)
    assert Gather not in forms(graph)


def test_rows_of_two_tensors_are_joined() -> None:
    build = Rows()
    both = build.join(1, build.input(1, 4, 6, 8), build.input(1, 4, 6, 8))
    build_graph = build.finish(build.relu(build.rolled(both, 1, 1)))
    assert forms(build_graph).count(Concat) == 2


def test_short_rows_and_single_kernels_stay() -> None:
    for channels, moves in ((4, 2), (8, 1)):
        build = Rows()
        x = build.input(1, 4, 6, channels)
        for axis in range(1, 1 + moves):
            x = build.rolled(x, axis, 1)
        assert Gather not in forms(build.finish(build.relu(x)))


def test_rows_of_complex_numbers_are_not_those_of_floats() -> None:
    build = Rows()
    real = build.op("REAL", [build.input(5, 2, dtype="complex64")], (5, 2))
    found = gather_rows(lower(build.finish(build.join(0, real, build.input(3, 2)))))
    assert [type(node.form) for node in found.nodes] == [View, Map, Concat]
