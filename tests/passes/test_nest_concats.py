"""Concatenations of the operands of others."""

from __future__ import annotations

from jitdelegate.passes.nest_concats import nest_concats
from tests.targets.part_graphs import Draft


def test_features_of_a_dense_block_are_nested() -> None:
    draft = Draft((2, 3), (2, 1), (2, 2), (2, 1))
    two, three, four = draft.concat(1, 0, 1), draft.concat(1, 0, 1, 2), draft.concat(1, 0, 1, 2, 3)
    assert draft.operands_after(nest_concats, two, three, four) == [(0, 1), (two, 2), (three, 3)]


def test_runs_lie_anywhere_and_begin_anew_after_one_another() -> None:
    draft = Draft((2, 3), (2, 1), (2, 2))
    pair = draft.concat(1, 1, 2)
    assert draft.operands_after(nest_concats, pair, draft.concat(1, 0, 1, 2, 1, 2, 2)) == [(1, 2), (0, pair, pair, 2)]


def test_other_axes_other_orders_and_later_concatenations_do_not_count() -> None:
    draft = Draft((2, 2), (2, 2))
    other, turned = draft.concat(0, 0, 1), draft.concat(1, 1, 0)
    long, later = draft.concat(1, 0, 1, 1), draft.concat(1, 0, 1)
    assert draft.operands_after(nest_concats, other, turned, long, later) == [(0, 1), (1, 0), (0, 1, 1), (0, 1)]


def test_one_operand_is_no_run() -> None:
    draft = Draft((2, 2), (2, 2))
    alone = draft.concat(1, 0)
    assert draft.operands_after(nest_concats, alone, draft.concat(1, 0, 1)) == [(0,), (0, 1)]
