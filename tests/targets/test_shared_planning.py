"""What all targets share: buffers and their lives, operands of epilogues, phases of convolutions, dispatch by form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from jitdelegate.errors import CompileError
from jitdelegate.ir.forms import Contract, Form, IndexMap, Shape
from jitdelegate.ir.graph import Node
from jitdelegate.targets.cpu.accepts import ACCEPTS
from jitdelegate.targets.cuda.plan.accepts import ACCEPTS as CUDA_ACCEPTS
from jitdelegate.targets.planning.buffer_plan import Buffers, Life, lives_of, plan_memory
from jitdelegate.targets.planning.epilogue import EpilogueOperand, Reach, reach
from jitdelegate.targets.planning.implicit_gemm import filters_of, grid_phases, matrix_strides
from jitdelegate.targets.planning.steps import Accepts, Task


def test_an_alias_of_an_alias_has_the_first_ones_buffer() -> None:
    buffers = Buffers()
    buffers.alias(4, 2)
    buffers.alias(7, 4)
    assert [buffers[index] for index in (2, 4, 7, 9)] == [2, 2, 2, 9]


def test_a_buffer_lives_from_the_first_step_that_touches_it_to_the_last() -> None:
    lives = lives_of([[3, 1], [1, 2], [3]], lambda index: 100 * index)
    assert lives == {3: Life(300, 0, 2), 1: Life(100, 0, 1), 2: Life(200, 1, 1)}
    assert plan_memory({3: Life(300, 0, 0), 5: Life(300, 1, 1)}, 64) == (320, {3: 0, 5: 0})


@pytest.mark.parametrize(
    "shape, output, expected",
    [
        ((2, 3, 4, 5), (2, 3, 4, 5), Reach.ELEMENT),
        ((5,), (2, 3, 4, 5), Reach.CHANNEL),
        ((2, 3, 4, 1), (2, 3, 4, 5), Reach.PIXEL),
        ((1, 1), (2, 3, 4, 5), Reach.SCALAR),
        ((2, 1, 1, 5), (2, 3, 4, 5), None),
        ((3, 5), (1, 3, 5), Reach.ELEMENT),
        ((1, 3, 5), (2, 3, 5), None),
        ((), (), Reach.SCALAR),
    ],
)
def test_an_operand_is_read_by_pixel_and_channel_where_a_formula_says_how(
    shape: Shape, output: Shape, expected: Reach | None
) -> None:
    assert reach(IndexMap.broadcast(shape, output), shape, output) is expected


def test_an_operand_goes_along_some_axes_and_is_repeated_along_others() -> None:
    access = IndexMap.broadcast((3, 1, 5), (2, 3, 4, 5))
    operand = EpilogueOperand.of(access, (3, 1, 5), (2, 3, 4, 5))
    assert operand is not None
    assert operand.axes == (None, 0, None, 2)


@pytest.mark.parametrize(
    "access",
    [
        IndexMap((1, 0), (0, 0), (1, 1)),
        IndexMap((0, 1), (1, 0), (1, 1)),
        IndexMap((0, 1), (0, 0), (1, 2)),
        IndexMap.along(0, 1, fill=0.0),
    ],
)
def test_an_operand_that_is_moved_does_not_go_along(access: IndexMap) -> None:
    assert EpilogueOperand.of(access, (4, 4), (4, 4)) is None


@pytest.mark.parametrize("form", [Contract(kernel=(3, 2), stride=(2, 3), padding=(1, 0, 2, 1), transposed=True)])
def test_the_phases_of_a_transposed_convolution_make_every_pixel_once(form: Contract) -> None:
    """Each output pixel adds up weights times ones of those data pixels that its phase names."""
    weights = np.arange(1, 7, dtype=np.float32).reshape(1, 3, 2, 1)
    expected, found = np.zeros((9, 9)), np.zeros((9, 9))
    for y, x, ky, kx in np.ndindex(20, 20, 3, 2):
        row, column = (y - 5) * 2 - 1 + ky, (x - 5) * 3 - 2 + kx
        if 0 <= row < 9 and 0 <= column < 9:
            expected[row, column] += weights[0, ky, kx, 0]
    for phase in grid_phases(form, (1, 9, 9, 1), weights):
        rows, columns = (slice(axis.first, None, axis.step) for axis in (phase.rows, phase.columns))
        assert found[rows, columns].shape == (phase.rows.size, phase.columns.size)
        found[rows, columns] += phase.weights.sum()
    np.testing.assert_array_equal(found, expected)


def test_rows_of_numbers_are_filters_of_one_tap() -> None:
    assert filters_of(np.zeros((4, 7))).shape == (4, 1, 1, 7)


def test_matrices_are_repeated_along_axes_that_an_operand_lacks() -> None:
    assert matrix_strides((3, 1, 5, 7), (35, 35, 7, 1), 3) == [0, 35, 0]


@pytest.mark.parametrize("accepts", [ACCEPTS, CUDA_ACCEPTS], ids=["cpu", "cuda"])
def test_every_function_that_a_target_names_exists(accepts: Accepts) -> None:
    if accepts is CUDA_ACCEPTS:
        pytest.importorskip("numba.cuda", reason="needs numba-cuda, the extra 'cuda'")
    assert all(callable(accepts.load(name)) for name in (*accepts.writers.values(), *accepts.fusions.values()))


def test_a_form_that_is_in_no_table_is_refused() -> None:
    @dataclass(frozen=True, slots=True)
    class Unheard(Form):
        pass

    with pytest.raises(CompileError, match="ADD needs a Unheard, which has no CPU kernel"):
        ACCEPTS.write(Task((Node("ADD", (0,), (1,), form=Unheard()),)), None)
