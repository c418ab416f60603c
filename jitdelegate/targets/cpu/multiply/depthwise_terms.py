"""Taps of a Depthwise as int8 that are multiplied by four interleaved rows of bytes, by VNNI or by `plus_quads`.

A tap of nine bits, the difference of two uint8, is the sum of two int8. Where a window does not fill the four rows, a
further one repeats one of its rows, and takes the rest of that row's taps at no cost.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from jitdelegate.targets.cpu.multiply.byte_pairs import LARGEST, BytePairs

QUAD = 4
"""Taps that one instruction adds up."""
MOST_TERMS = 2


def terms_of(taps: np.ndarray) -> tuple[tuple[int, ...], tuple[np.ndarray, ...]] | None:
    """(rows, terms): the row of the window that each interleaved row is, and int8[rows, kw, C] of which each row of
    `taps` [kh, kw, C] is the sum. There are one or two terms; None if the taps are too large for two."""
    found = [(rows, _terms(taps, rows)) for rows in _choices(len(taps))]
    rows, terms = min(found, key=lambda choice: len(choice[1]))
    return (rows, terms) if len(terms) <= MOST_TERMS else None


def words_of(taps: np.ndarray) -> tuple[tuple[int, ...], tuple[np.ndarray, ...]]:
    """As `terms_of`, for pairs of rows and taps of int16: one term, in which a row that is repeated counts once."""
    rows = (*range(len(taps)), *([len(taps) - 1] if len(taps) % 2 else ()))
    term = np.zeros((len(rows), *taps.shape[1:]), np.int16)
    term[: len(taps)] = taps
    return rows, (term,)


def quads_of(taps: np.ndarray) -> tuple[tuple[int, ...], tuple[np.ndarray, ...]] | None:
    """As `terms_of`, of three rows: one term, for which no sum of two neighbouring products saturates, since one of the
    rows is interleaved twice and its taps are divided. None where taps are too large, or other rows are not faster."""
    for divided in range(QUAD - 1) if len(taps) == QUAD - 1 else ():
        first, second = (row for row in range(QUAD - 1) if row != divided)
        upper, middle, lower = taps[[first, divided, second]].astype(np.int16)
        part = np.clip(middle, np.maximum(-upper, 0) - LARGEST, LARGEST - np.maximum(upper, 0))
        term = np.stack([upper, part, lower, middle - part])
        if term.min() >= -LARGEST and term.max() < LARGEST and BytePairs.fits(term.reshape(QUAD, -1).T[:, None]).all():
            return (first, divided, second, divided), (term.astype(np.int8),)
    return None


def bytes_of(taps: np.ndarray) -> tuple[tuple[int, ...], tuple[np.ndarray, ...]] | None:
    """As `terms_of`, of rows as they are: one term of int8, two of whose products with bytes fit an int16. None where
    taps are too large."""
    if taps.min() <= -LARGEST or taps.max() >= LARGEST:
        return None
    return tuple(range(len(taps))), (taps.astype(np.int8),)


def _choices(height: int) -> Iterator[tuple[int, ...]]:
    """Ways to fill up the last four of the rows; pairs of rows that are repeated cost no instruction."""
    whole, left = divmod(height, QUAD)
    first = tuple(range(whole * QUAD))
    last = range(whole * QUAD, height)
    if left == QUAD - 1:
        for row in reversed(last):
            yield (*first, *last, row)
    else:
        yield (*first, *(tuple(last) * (QUAD // left) if left else ()))


def _terms(taps: np.ndarray, rows: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    limits, left = np.iinfo(np.int8), taps.astype(np.int32)
    terms = list[np.ndarray]()
    while not terms or (left.any() and len(terms) <= MOST_TERMS):
        terms.append(np.zeros((len(rows), *taps.shape[1:]), np.int8))
        for place, row in enumerate(rows):
            terms[-1][place] = np.clip(left[row], limits.min, limits.max)
            left[row] -= terms[-1][place]
    return tuple(terms)
