"""The constants of a program: aligned, whole, and each written once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from jitdelegate.targets.constants import Constants

ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)


def read(constants: Constants, offset: int, count: int) -> list[float]:
    return np.frombuffer(bytes(constants.content), np.float32, count, offset).tolist()


def test_constants_lie_at_multiples_of_the_alignment() -> None:
    constants = Constants(64)
    assert [constants.add(np.float32([1, 2, 3])), constants.add(np.float32([4]))] == [0, 64]
    assert read(constants, 0, 3) == [1, 2, 3] and read(constants, 64, 1) == [4]


@pytest.mark.parametrize("again", [ROWS.copy(), ROWS.T.copy().T, ROWS.reshape(6)])
def test_equal_bytes_are_kept_once(again: np.ndarray) -> None:
    constants = Constants(64)
    assert constants.add(ROWS) == constants.add(again) == 0
    assert len(constants.content) == ROWS.nbytes


@pytest.mark.parametrize("other", [ROWS + 1, ROWS[:1], ROWS.T])
def test_other_bytes_are_kept_beside_them(other: np.ndarray) -> None:
    constants = Constants(64)
    constants.add(ROWS)
    assert read(constants, constants.add(other), other.size) == other.reshape(-1).tolist()


def test_what_is_made_of_the_same_constants_in_the_same_form_is_made_once() -> None:
    constants, made = Constants(64), list[str]()

    def pack(form: str, *sources: np.ndarray) -> int:
        def parts() -> Iterator[np.ndarray]:
            made.append(form)
            for source in sources:
                yield np.float32([source.sum()])

        return constants.pack(form, sources, parts)

    offsets = [pack("a", ROWS), pack("a", ROWS.copy()), pack("b", ROWS), pack("a", ROWS, ROWS), pack("a", ROWS.T)]
    assert offsets == [0, 0, 64, 128, 192]
    assert made == ["a", "b", "a", "a"]
    assert read(constants, 128, 2) == [15, 15]


def test_sources_of_equal_bytes_and_other_shapes_differ() -> None:
    constants = Constants(64)
    offsets = [constants.pack("form", [ROWS.reshape(shape)], lambda: [ROWS]) for shape in ((2, 3), (3, 2))]
    assert offsets == [0, 64]
