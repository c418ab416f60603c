"""Parts of tensors: which tensors a target may write and read inside larger ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from jitdelegate.ir.expr import Arg
from jitdelegate.ir.forms import IndexMap, Map, Shape, View
from jitdelegate.ir.graph import Graph, Node
from jitdelegate.targets.planning.parts import Part, Parts, dense_strides, find_parts
from tests.targets.part_graphs import Draft


def parts_of(draft: Draft, *outputs: int, fixed: Sequence[int] = (), **rules: Callable[..., bool]) -> Parts:
    return find_parts(draft.graph(*outputs), Allowing(**rules), fixed)


class Allowing:
    """Kernels that write and read everything, except what is said."""

    def __init__(self, write: Callable[..., bool] = lambda *_: True, read: Callable[..., bool] = lambda *_: True):
        self.write, self.read = write, read

    def may_write(self, node: Node, part: Part) -> bool:
        return self.write(node, part)

    def may_read(self, node: Node, operand: int, part: Part) -> bool:
        return self.read(node, operand, part)


def values(graph: Graph, parts: Mapping[int, Part], index: int) -> np.ndarray:
    """The numbers of the whole's elements that a part consists of, in the part's shape."""
    part, shape = parts[index], graph.tensors[index].shape
    whole = np.arange(graph.tensors[part.whole].size)
    places = np.arange(graph.tensors[index].size)
    found = whole[part.first + places // part.length * part.pitch + places % part.length].reshape(shape)
    strides = part.strides(shape)
    if strides is not None:
        same = part.first + sum(i * stride for i, stride in zip(np.indices(shape), strides, strict=True))
        np.testing.assert_array_equal(found, same)
    return found


def numbered(shape: Shape) -> np.ndarray:
    return np.arange(np.prod(shape)).reshape(shape)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_operands_are_written_into_the_concatenation(axis: int) -> None:
    draft = Draft((2, 3, 4), (2, 3, 4))
    a, b = map(draft.made, draft.inputs)
    joined = draft.concat(axis, a, b)
    graph, parts = draft.graph(draft.made(joined)), parts_of(draft, draft.made(joined))
    first, second = np.split(numbered(graph.tensors[joined].shape), 2, axis)
    np.testing.assert_array_equal(values(graph, parts.of, a), first)
    np.testing.assert_array_equal(values(graph, parts.of, b), second)
    assert parts.copied == {joined: ()}
    assert parts.of[a].is_dense == (axis == 0)


def test_what_is_no_kernels_result_or_already_a_part_is_copied() -> None:
    draft = Draft((2, 3), (2, 3))
    made, kept = draft.made(0), draft.made(0)
    first, second = draft.concat(1, made, 1, made, kept), draft.concat(1, made, draft.made(1))
    parts = parts_of(draft, draft.made(first), draft.made(second), kept)
    assert parts.copied == {second: ()}
    assert parts.of[made].whole == second


def test_concatenations_within_concatenations_have_one_memory() -> None:
    draft = Draft((2, 3, 4))
    a, b, c = (draft.made(0) for _ in range(3))
    inner = draft.concat(2, a, b)
    outer = draft.concat(2, c, inner)
    graph, parts = draft.graph(draft.made(outer)), parts_of(draft, draft.made(outer))
    assert parts.copied == {inner: (), outer: ()}
    np.testing.assert_array_equal(values(graph, parts.of, b), numbered((2, 3, 12))[..., 8:])
    np.testing.assert_array_equal(values(graph, parts.of, inner), numbered((2, 3, 12))[..., 4:])


@pytest.mark.parametrize(("inner", "outer"), [(1, 2), (0, 1)])
def test_rows_within_rows_have_a_pitch_only_if_the_first_axes_have_size_one(inner: int, outer: int) -> None:
    draft = Draft((1, 2, 3), (1, 4, 3)) if inner == 1 else Draft((2, 2, 3), (4, 2, 3))
    a, b, wide = draft.made(0), draft.made(0), draft.made(1)
    joined = draft.concat(inner, a, b)
    whole = draft.concat(outer, wide, joined)
    graph, parts = draft.graph(draft.made(whole)), parts_of(draft, draft.made(whole))
    assert parts.copied.get(whole) == ()
    if inner == 1:
        assert parts.copied == {joined: (), whole: ()}
        np.testing.assert_array_equal(values(graph, parts.of, b), numbered((1, 4, 6))[:, 2:, 3:])
    else:
        np.testing.assert_array_equal(values(graph, parts.of, joined), numbered((4, 4, 3))[:, 2:])


def test_slices_are_read_where_they_lie() -> None:
    draft = Draft((3, 8))
    made = draft.made(0)
    left, right = draft.slice(made, (0, 0), (3, 6)), draft.slice(made, (0, 6), (3, 2))
    inside = draft.slice(left, (1, 2), (2, 3))
    every = draft.slice(made, (0, 0), (2, 8), (2, 1))
    apart = draft.slice(made, (0, 0), (3, 4), (1, 2))
    outputs = [draft.made(index) for index in (left, right, inside, every, apart)]
    graph, parts = draft.graph(*outputs), parts_of(draft, *outputs)
    assert parts.copied == dict.fromkeys((left, right, inside, every, apart), ())
    np.testing.assert_array_equal(values(graph, parts.of, inside), numbered((3, 8))[1:3, 2:5])
    np.testing.assert_array_equal(values(graph, parts.of, right), numbered((3, 8))[:, 6:])
    np.testing.assert_array_equal(values(graph, parts.of, every), numbered((3, 8))[::2])
    np.testing.assert_array_equal(values(graph, parts.of, apart), numbered((3, 8))[:, ::2])


@pytest.mark.parametrize(("shape", "steps"), [((2, 3), (1, 2)), ((3, 2), (-1, 1)), ((2, 2), (1, 1))])
def test_other_maps_are_no_slices(shape: Shape, steps: Shape) -> None:
    """Uneven distances, a reversed axis, an axis that is repeated."""
    draft = Draft((3, 7) if steps == (1, 2) else (3, 2))
    access = IndexMap((0, 1), (2 if steps[0] < 0 else 0, 0), steps)
    if shape == (2, 2):
        access = IndexMap((-1, 1), (0, 0), (1, 1))
    moved = draft.node(Map(Arg(0), (access,)), [draft.made(0)], shape)
    assert parts_of(draft, draft.made(moved)).of == {}


def test_a_slice_of_a_concatenation_is_its_operand() -> None:
    draft = Draft((2, 3), (2, 3))
    a, b = map(draft.made, draft.inputs)
    again = draft.slice(draft.concat(1, a, b), (0, 3), (2, 3))
    parts = parts_of(draft, draft.made(again))
    assert parts.of[again] == parts.of[b]


def test_an_operand_that_is_a_slice_is_read_in_place_and_copied() -> None:
    draft = Draft((2, 6))
    source = draft.made(0)
    part = draft.slice(source, (0, 3), (2, 3))
    joined = draft.concat(1, part, draft.made(part))
    parts = parts_of(draft, draft.made(joined))
    assert parts.of[part].whole == source
    assert parts.copied == {part: (), joined: (0,)}


def test_views_of_parts_are_parts() -> None:
    draft = Draft((2, 3, 4))
    flat = draft.node(View(), [draft.made(0)], (6, 4))
    joined = draft.concat(1, flat, draft.made(draft.node(View(), [0], (6, 4))))
    graph, parts = draft.graph(draft.made(joined)), parts_of(draft, draft.made(joined))
    assert parts.of[1] == parts.of[flat] == Part(joined, 0, 4, 8)
    np.testing.assert_array_equal(values(graph, parts.of, 1), numbered((2, 3, 8))[..., :4])


def test_views_as_another_type_are_no_parts() -> None:
    draft = Draft((6, 2))
    pairs = draft.node(View(), [draft.made(0)], (6,), "complex64")
    joined = draft.concat(0, pairs, pairs)
    assert parts_of(draft, draft.node(View(), [joined], (12, 2))).of == {}


def test_all_readers_must_be_able_to_read_a_part() -> None:
    draft = Draft((2, 3), (2, 3))
    a, b = map(draft.made, draft.inputs)
    joined = draft.concat(1, a, b)
    outputs = draft.made(joined), draft.made(a)
    parts = parts_of(draft, *outputs, read=lambda node, operand, part: node.outputs[0] != outputs[1])
    assert parts.copied == {joined: (0,)}
    parts = parts_of(draft, *outputs, write=lambda node, part: node.outputs[0] != b)
    assert parts.copied == {joined: (1,)}


def test_memory_that_is_overwritten_has_no_parts() -> None:
    draft = Draft((2, 3), (2, 3))
    a, b = map(draft.made, draft.inputs)
    joined = draft.concat(1, a, b)
    half = draft.slice(joined, (0, 0), (2, 3))
    assert parts_of(draft, draft.made(half), fixed=[joined]).of == {}


def test_outputs_and_constants_are_no_parts() -> None:
    draft = Draft((2, 3))
    made, part = draft.made(0), draft.slice(0, (0, 0), (1, 3))
    joined = draft.concat(0, made, part)
    assert parts_of(draft, made, part, joined).of == {}


@pytest.mark.parametrize("shape", [(), (5,), (2, 3, 4)])
def test_a_dense_part_has_the_strides_of_its_shape(shape: Shape) -> None:
    size = int(np.prod(shape))
    part = Part.of(0, 7, size, size, size)
    assert (part.strides(shape), part.pitch_of(1)) == (dense_strides(shape), 1)


def test_rows_of_another_length_have_no_pitch() -> None:
    part = Part.of(0, 0, 12, 24, 48)
    assert (part.pitch_of(12), part.pitch_of(4), part.strides((4, 3, 4)), part.strides((2, 4, 6))) == (
        24, None, (24, 4, 1), None,
    )  # fmt: skip
