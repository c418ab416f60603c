"""Concatenations of parts of others."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate.passes.flatten_concats import flatten_concats
from tests.targets.part_graphs import Draft


def test_a_list_that_is_filled_row_by_row_is_one_concatenation() -> None:
    draft = Draft((1, 3), (1, 3), (1, 3))
    rows = draft.concat(0, 0, draft.constant(np.ones((2, 3), np.float32)))
    rows = draft.concat(0, draft.slice(rows, (0, 0), (1, 3)), 1, draft.slice(rows, (2, 0), (1, 3)))
    assert draft.operands_after(flatten_concats, draft.concat(0, draft.slice(rows, (0, 0), (2, 3)), 2)) == [(0, 1, 2)]


def test_constants_are_cut() -> None:
    draft = Draft((2, 1), (2, 1))
    rows = draft.concat(1, draft.constant(np.arange(8, dtype=np.float32).reshape(2, 4)), 0)
    ((first, second, third),) = draft.operands_after(
        flatten_concats, draft.concat(1, draft.slice(rows, (0, 1), (2, 4)), 1)
    )
    assert (second, third) == (0, 1) and first >= len(draft.tensors)


KEPT = {
    "a part of an operand": lambda draft, rows: draft.concat(0, draft.slice(rows, (1, 0), (2, 3)), 1),
    "another axis": lambda draft, rows: draft.concat(1, draft.slice(rows, (0, 0), (2, 3)), 0),
    "columns": lambda draft, rows: draft.concat(0, draft.slice(rows, (0, 0), (2, 2)), draft.slice(1, (0, 0), (2, 2))),
    "every second row": lambda draft, rows: draft.concat(0, draft.slice(rows, (0, 0), (2, 3), (2, 1)), 1),
    "another reader": lambda draft, rows: draft.concat(0, draft.slice(rows, (0, 0), (2, 3)), draft.made(rows)),
}


@pytest.mark.parametrize("case", KEPT)
def test_all_others_stay(case: str) -> None:
    draft = Draft((2, 3), (2, 3))
    result = KEPT[case](draft, draft.concat(0, 0, 1))
    before = [node.inputs for node in draft.graph(result).nodes]
    assert draft.operands_after(flatten_concats, result) == before


def test_a_list_that_is_an_output_stays() -> None:
    draft = Draft((2, 3), (2, 3))
    rows = draft.concat(0, 0, 1)
    result = draft.concat(0, draft.slice(rows, (0, 0), (2, 3)), 1)
    assert draft.operands_after(flatten_concats, rows, result) == [(0, 1), (rows,), (rows + 1, 1)]
