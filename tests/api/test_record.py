"""Record behaves as a dataclass does."""

from __future__ import annotations

import copy
import pickle

import pytest

from jitdelegate.base.record import Record


class Point(Record):
    x: int
    y: int = 0


def test_values_come_by_position_by_name_and_from_the_class() -> None:
    assert Point(1).values() == {"x": 1, "y": 0}
    assert Point(1, 2) == Point(y=2, x=1) != Point(1)
    assert repr(Point(1)) == "Point(x=1, y=0)"


@pytest.mark.parametrize(("values", "named"), [((), {}), ((1, 2, 3), {}), ((1,), {"x": 1}), ((1,), {"z": 1})])
def test_missing_doubled_and_unknown_values_are_refused(values: tuple[int, ...], named: dict[str, int]) -> None:
    with pytest.raises(TypeError, match="Point takes x, y, but got"):
        Point(*values, **named)


def test_unknown_attributes_are_refused_and_copies_are_equal() -> None:
    point = Point(1)
    point.y = 5
    with pytest.raises(AttributeError, match="no attribute 'z'"):
        point.z = 1  # type: ignore[attr-defined]
    assert copy.deepcopy(point) == pickle.loads(pickle.dumps(point)) == point
