"""Entries that borrow weights from others: what the table may say, and where the parts of the weights lie."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jitdelegate.errors import IncompleteError, ProgramError
from jitdelegate.program.layout import ALIGNMENT as PAGE
from jitdelegate.program.program import Program
from jitdelegate.program.read import read, verify_weights
from jitdelegate.program.write import _front, parts
from jitdelegate.runtime.cache.entry import open_entry
from jitdelegate.runtime.cache.key import Key, KeyParts, model_key, this_machine, variant_parts
from jitdelegate.runtime.cache.store import Store, open_store

if TYPE_CHECKING:
    from jitdelegate.program.program import Loans

MAIN = os.urandom(40 * PAGE + 100)
OWN = os.urandom(3 * PAGE)


def key(subgraph: int = 0) -> Key:
    own = KeyParts("cpu", "x86-64-v3", "none", this_machine(), toolchain="")
    return model_key("a" * 32, own, options=variant_parts(subgraph))


def program(subgraph: int, weights: bytes) -> Program:
    return Program(key=key(subgraph).parts, target="cpu", code=b"\xc3" * 10, weights=weights)


def keep(store: Store, subgraph: int, weights: bytes) -> Program:
    """A program that is stored."""
    lenders = store.lenders(key(subgraph))
    found = store.fetch(key(subgraph), lambda: parts(program(subgraph, weights), lenders)).program
    assert found is not None
    return found


WEIGHTS = (
    (OWN + MAIN[: 20 * PAGE], ((3, 0, 0, 20),)),
    (MAIN[: 20 * PAGE] + OWN, ((0, 0, 0, 20),)),
    (OWN[:PAGE] + MAIN[20 * PAGE : 40 * PAGE] + OWN + MAIN[: 16 * PAGE] + b"end", ((1, 0, 20, 20), (24, 0, 0, 16))),
    (MAIN[20 * PAGE : 40 * PAGE] + MAIN[: 20 * PAGE], ((0, 0, 20, 20), (20, 0, 0, 20))),
    (OWN + MAIN[: 15 * PAGE], ()),
    (OWN + b"odd" + MAIN, ()),
    (MAIN, ((0, 0, 0, 40),)),
    (b"", ()),
)


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize(("weights", "borrowed"), WEIGHTS)
def test_weights_are_whole_again(store: Store, folder: Path, weights: bytes, borrowed: Loans, private: bool) -> None:
    keep(store, 0, MAIN)
    found = keep(store, 1, weights)
    assert tuple(map(tuple, found.borrowed)) == borrowed
    own = (folder / key(1).entry_name()).stat().st_size
    assert own <= 3 * PAGE + len(weights) - PAGE * sum(pages for *_, pages in borrowed)
    assert store.place is not None
    again = open_entry(store.place, key(1).entry_name(), private=private)
    verify_weights(again)
    assert bytes(again.weights) == bytes(found.weights) == weights


def test_a_lender_that_goes_while_nothing_can_be_written_is_done_without(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(store, 0, MAIN)

    def put(*_: object) -> str:
        (folder / key(0).entry_name()).unlink(missing_ok=True)
        return "the disk is full"

    monkeypatch.setattr(Store, "put", put)
    weights = OWN + MAIN[: 20 * PAGE]
    lookup = store.fetch(key(1), lambda: parts(program(1, weights), store.lenders(key(1))))
    assert lookup.program is not None and lookup.write_failure
    assert bytes(lookup.program.weights) == weights


BAD = {
    "no such lender": ((0, 1, 0, 1),),
    "a negative lender": ((0, -1, 0, 1),),
    "no pages": ((0, 0, 0, 0),),
    "a negative page": ((-1, 0, 0, 1),),
    "a negative page of the lender": ((0, 0, -1, 1),),
    "an overlap": ((0, 0, 0, 3), (2, 0, 0, 3)),
    "no order": ((5, 0, 0, 1), (0, 0, 0, 1)),
    "beyond the end": ((9, 0, 0, 1),),
    "more than any memory": ((0, 0, 0, 1 << 60),),
}


@pytest.mark.parametrize("borrowed", BAD.values(), ids=BAD)
def test_loans_out_of_bounds_are_damage(store: Store, folder: Path, borrowed: Loans) -> None:
    keep(store, 0, MAIN)
    made = program(1, OWN)
    store.put(key(1), _front(made, len(OWN), borrowed, ""), OWN)
    assert store.get(key(1)).kind == "damaged"


def test_pages_that_a_lender_lacks_make_an_entry_incomplete(store: Store) -> None:
    keep(store, 0, MAIN)
    store.put(key(1), _front(program(1, OWN), len(OWN), ((0, 0, 30, 11),), ""), OWN)
    lookup = store.get(key(1))
    assert (lookup.kind, "stores 163940 bytes" in lookup.reason) == ("incomplete", True)
    assert store.place is not None
    with pytest.raises(IncompleteError):
        open_entry(store.place, key(1).entry_name())


def test_a_lender_that_borrows_itself_lends_what_its_file_stores(store: Store) -> None:
    """As the program for the file's shapes does to those of the same subgraph for others."""
    keep(store, 0, MAIN)
    second = os.urandom(20 * PAGE)
    keep(store, 1, MAIN[: 20 * PAGE] + second)
    own = KeyParts("cpu", "x86-64-v3", "none", this_machine(), toolchain="")
    resized = model_key("a" * 32, own, options=variant_parts(1, ((2, 2),)))
    made = Program(key=resized.parts, target="cpu", weights=second + MAIN[: 20 * PAGE])
    found = store.fetch(resized, lambda: parts(made, store.lenders(resized))).program
    assert found is not None and bytes(found.weights) == made.weights
    assert tuple(map(tuple, found.borrowed)) == ((0, 1, 0, 20), (20, 0, 0, 20))


def test_no_descriptor_is_left_of_the_entries(folder: Path) -> None:
    before = sorted(os.listdir("/dev/fd"))
    store = open_store(str(folder))
    keep(store, 0, MAIN)
    keep(store, 1, OWN + MAIN)
    (folder / key(0).entry_name()).unlink()
    assert store.get(key(1)).kind == "incomplete"
    del store
    assert sorted(os.listdir("/dev/fd")) == before


def test_a_file_that_is_read_alone_is_refused(store: Store, folder: Path) -> None:
    keep(store, 0, MAIN)
    keep(store, 1, OWN + MAIN)
    with pytest.raises(ProgramError, match="lies in another entry"):
        read((folder / key(1).entry_name()).read_bytes())
