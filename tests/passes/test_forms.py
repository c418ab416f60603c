"""What forms say of themselves, how they are printed and verified, and which sums kernels refuse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jitdelegate.ir.expr import RESULT
from jitdelegate.ir.forms import NO_HALO, Contract, Depthwise, Form, Pool, Reduce, Softmax, Window
from jitdelegate.ir.graph import ABSENT, Graph, Node, Tensor
from jitdelegate.ir.print import form_text
from jitdelegate.ir.verify import verify

INTEGER = Contract(kernel=(3, 3), padding=(1, 1, 1, 1), accumulator="int32", input_zero=-3, halo_value=-3)


def convolution(form: Form, dtype: str = "int8") -> Graph:
    """One window over an image of this type; weights are zeros."""
    tensors = (
        Tensor("data", (1, 6, 6, 8), dtype),
        Tensor("weights", (8, 3, 3, 8), dtype, np.zeros((8, 3, 3, 8), dtype)),
        Tensor("output", (1, 6, 6, 8), dtype),
    )
    return Graph(tensors, (Node("CONV_2D", (0, 1, ABSENT)[: form.core], (2,), form=form),), (0,), (2,))


def test_sums_of_integers_are_printed() -> None:
    assert "halo_value=-3, input_zero=-3, accumulator=int32" in form_text(INTEGER)
    assert form_text(replace(INTEGER, accumulator="float32", input_zero=0, halo_value=0.0)) == (
        "Contract(kernel=(3,3), padding=(1,1,1,1))"
    )


def test_sums_of_integers_are_well_formed() -> None:
    verify(convolution(INTEGER), "a test")


@pytest.mark.parametrize(
    "form, dtype, said",
    [
        (INTEGER, "float32", "sums up float32 in int32"),
        (replace(INTEGER, input_zero=200), "int8", "has 200 among its int8"),
        (replace(INTEGER, halo_value=0.5), "int8", "has 0.5 among its int8"),
        (replace(INTEGER, accumulator="int64"), "int8", "sums up int8 in int64"),
        (replace(INTEGER, accumulator="float32"), "float32", "sums up floats from -3"),
        (Softmax(epilogue=RESULT + 1), "float32", "an epilogue, which Softmax does not take"),
    ],
)
def test_sums_that_make_no_sense_are_found(form: Form, dtype: str, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        verify(convolution(form, dtype), "a test")


@pytest.mark.parametrize("kind", [Contract, Depthwise])
def test_a_window_has_a_halo_where_it_reaches_over_the_border(kind: type[Window]) -> None:
    form = kind(kernel=(3, 3), stride=(2, 2), padding=(1, 1, 0, 1))
    assert form.halo((1, 6, 6, 8), (1, 3, 3, 8)) == (1, 0, 0, 1)
    assert form.halo((6, 8), (6, 8)) == NO_HALO


def test_a_pool_has_a_halo_where_it_does_not_leave_it_out() -> None:
    form = Pool(kernel=(3, 3), padding=(1, 1, 1, 1))
    assert form.halo((1, 6, 6, 8), (1, 6, 6, 8)) == NO_HALO
    assert replace(form, halo_value=0.0).halo((1, 6, 6, 8), (1, 6, 6, 8)) == (1, 1, 1, 1)


def test_a_reduction_reads_images_where_it_is_a_pool_over_everything() -> None:
    form = Reduce(kind="mean", axes=(1, 2))
    assert form.reads_images((1, 6, 6, 8), (1, 1, 1, 8))
    assert not form.reads_images((1, 6, 6, 8), (1, 8))
    assert not replace(form, kind="sum").reads_images((1, 6, 6, 8), (1, 1, 1, 8))
