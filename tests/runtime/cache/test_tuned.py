"""Tables of tuned kernels: their format, damage, and writers at the same time."""

from __future__ import annotations

import os
from multiprocessing import get_context
from pathlib import Path

import pytest

from jitdelegate.runtime.cache.model_names import model_names, remember_model
from jitdelegate.runtime.cache.place import open_place
from jitdelegate.runtime.cache.store import DAMAGED, UNREADABLE, UNTRUSTED, counts
from jitdelegate.runtime.cache.tuned import (
    Winner,
    add_to_table,
    parse_table,
    read_table,
    table_content,
    table_name,
    tuned_digest,
)

KIND, NAME = "sm_90:132", "sm_90-132.tuned"
FIRST = {"contract_mma float16 M196": Winner("64-64/2", "full", 3.25, 4.5)}


def plain(table: dict[str, Winner]) -> dict[str, tuple[str, str, float, float]]:
    return {name: (each.candidate, each.effort, each.microseconds, each.before) for name, each in table.items()}


def test_a_table_is_what_was_written_and_equal_tables_have_equal_bytes() -> None:
    table = {**FIRST, "a": Winner("b", "fast", 1.0, 1.0)}
    content = table_content(table)
    assert plain(parse_table(content)) == plain(table)
    assert content == table_content(dict(reversed(table.items())))
    assert table_name(KIND) == NAME


def test_an_effort_serves_itself_and_lower_ones() -> None:
    fast, full = (Winner("", effort, 0, 0) for effort in ("fast", "full"))
    assert [full.serves("fast"), full.serves("full"), fast.serves("fast"), fast.serves("full")] == [1, 1, 1, 0]


def test_winners_are_added_over_those_that_are_there(tmp_path: Path) -> None:
    place = open_place(str(tmp_path))
    assert read_table(place, KIND) == {} == read_table(None, KIND)
    add_to_table(place, KIND, {**FIRST, "b": Winner("b", "fast", 2, 3)})
    add_to_table(place, KIND, {"b": Winner("c", "full", 1, 3)})
    assert plain(read_table(place, KIND)) == {**plain(FIRST), "b": ("c", "full", 1.0, 3.0)}
    assert read_table(place, "sm_90:114") == {}
    assert sorted(os.listdir(tmp_path)) == [NAME]


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (table_content(FIRST).replace(b"64-64/2", b"64-64/4"), DAMAGED),
        (table_content(FIRST)[:-5], DAMAGED),
        (b"", DAMAGED),
        (b"\xff" * 80, DAMAGED),
        (None, UNREADABLE),
    ],
)
def test_damage_is_a_counted_miss_and_the_next_winner_replaces_it(
    content: bytes | None, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = open_place(str(tmp_path))
    place.write(NAME, content or b"")
    with monkeypatch.context() as patch:
        if content is None:
            patch.setattr("os.read", lambda *_: (_ for _ in ()).throw(OSError("no disk")))
        before = counts.misses.get(kind, 0)
        assert read_table(place, KIND) == {}
    assert counts.misses[kind] == before + 1
    add_to_table(place, KIND, FIRST)
    assert plain(read_table(place, KIND)) == plain(FIRST)


def test_a_table_that_cannot_be_read_for_a_moment_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = open_place(str(tmp_path))
    add_to_table(place, KIND, FIRST)
    remember_model(place, "a" * 32, "first.tflite")
    with monkeypatch.context() as patch:
        patch.setattr("os.read", lambda *_: (_ for _ in ()).throw(OSError("too many files")))
        before = counts.write_failures
        add_to_table(place, KIND, {"other": Winner("x", "fast", 1, 1)})
        assert counts.write_failures == before + 1
        remember_model(place, "b" * 32, "second.tflite")
        assert model_names(place) == {}
    assert plain(read_table(place, KIND)) == plain(FIRST)
    assert model_names(place) == {"a" * 32: "first.tflite"}


def test_a_table_that_others_may_write_is_not_read(tmp_path: Path) -> None:
    place = open_place(str(tmp_path))
    add_to_table(place, KIND, FIRST)
    (tmp_path / NAME).chmod(0o666)
    before = counts.misses.get(UNTRUSTED, 0)
    assert read_table(place, KIND) == {}
    assert counts.misses[UNTRUSTED] == before + 1


def add_many(path: str, number: int) -> None:
    for at in range(10):
        add_to_table(open_place(path), KIND, {f"{number} {at}": Winner("x", "fast", 1, 1)})


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    context = get_context("fork")
    writers = [context.Process(target=add_many, args=(str(tmp_path), number)) for number in range(3)]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    assert len(read_table(open_place(str(tmp_path)), KIND)) == 30


def test_the_digest_depends_on_problems_and_candidates_alone() -> None:
    assert tuned_digest({"a": "b", "c": "d"}) == tuned_digest({"c": "d", "a": "b"})
    assert len({tuned_digest(used) for used in ({}, {"a": "b"}, {"a": "c"}, {"b": "b"})}) == 4
