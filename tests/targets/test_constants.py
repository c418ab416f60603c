"""The constants of a program: aligned, whole, and each written once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from jitdelegate.program.known_constants import known_constants
from jitdelegate.program.program import Program
from jitdelegate.targets.planning.constants import LARGE, PAGE, Constants

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


def test_large_constants_have_their_pages_for_themselves_and_equal_ones_are_stored_once() -> None:
    constants, large = Constants(64), np.arange(LARGE // 4 + 1, dtype=np.int32)
    small = constants.add(np.ones(3, np.int32))
    first = constants.add(large)
    after = constants.add(np.full(3, 2, np.int32))
    end = len(constants.content)
    same = constants.pack("rows", [large], lambda: [large])
    assert (small, first, after, same) == (0, PAGE, LARGE + 2 * PAGE, first)
    assert len(constants.content) == end and constants.large == [1, LARGE // PAGE + 1]
    assert constants.add(np.full(3, 4, np.int32)) == after + 64
    assert constants.pack("more rows", [large], lambda: [large + 1]) % PAGE == 0
    assert constants.content[first : first + large.nbytes] == large.tobytes()


def test_known_constants_are_neither_made_nor_stored() -> None:
    matrices = [np.full(LARGE // 4 + extra, extra, np.int32) for extra in range(3)]

    def packed(constants: Constants, *numbers: int) -> list[int]:
        return [
            constants.pack("form", [matrices[number]], lambda number=number: made.append(number) or [matrices[number]])
            for number in numbers
        ]

    made: list[int] = []
    main = Constants(64)
    main.add(np.ones(3, np.int32))
    packed(main, 0, 1, 2)
    source = Program(key=(), target="cpu", **main.of_program())
    further = Constants(64, known_constants([source]))
    made.clear()
    small = further.add(np.ones(3, np.int32))
    first, second, third = packed(further, 1, 2, 1)
    assert made == [] and len(further.content) == PAGE
    pages = -(-matrices[1].nbytes // PAGE)
    assert (small, first, second, third) == (0, PAGE, PAGE + pages * PAGE, first)
    assert further.shared == [(1, 0, 1 + LARGE // PAGE, 2 * pages)]  # one run
    assert further.large == [1, pages, 1 + pages, pages] and further.sizes[first] == matrices[1].nbytes
    last = further.add(np.full(2, 9, np.int32))
    assert last == further.end - 8 == PAGE + 2 * pages * PAGE
    stored = [further.read(offset) for offset in (small, first, last)]
    assert stored == [np.ones(3, np.int32).tobytes(), None, np.full(2, 9, np.int32).tobytes()]


def test_what_a_program_shares_itself_is_known_by_the_program_that_stores_it() -> None:
    name, other = (1, 2), (3, 4)
    main = Program(key=(), target="cpu", weights=bytes(40 * PAGE), named_constants=((*other, 3, 20 * PAGE),))
    second = Program(
        key=(),
        target="cpu",
        weights=bytes(60 * PAGE),
        shared=((2, 0, 3, 20), (30, 0, 23, 17)),
        named_constants=((*name, 2, 20 * PAGE), (5, 6, 22, 8 * PAGE), (7, 8, 25, 10 * PAGE), (9, 9, 50, 99 * PAGE)),
    )
    assert known_constants([main, second]) == {
        other: (0, 3, 20 * PAGE),
        name: (0, 3, 20 * PAGE),
        (5, 6): (1, 2, 8 * PAGE),
    }
    assert known_constants([None, None]) == {}
