"""A model's way to a worker of a cluster, and its programs' way back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jitdelegate.base.options import DelegateOptions
from jitdelegate.base.targets import LEVELS
from jitdelegate.commands.fleet import parcel
from jitdelegate.commands.fleet.parcel import Order, fill_order, order_for, unpack
from jitdelegate.engine.precompile import precompile
from jitdelegate.engine.verified import verified
from jitdelegate.errors import CacheError, DeviceError, ProgramError
from jitdelegate.runtime.cache.store import Store, open_store
from jitdelegate.targets.cpu.target import CpuDevice
from tests.api import small_models
from tests.api.test_shared_weights import DEPTH, MATRIX, MODEL

LEVEL = next(name for name, row in LEVELS.items() if row.host)


@pytest.fixture
def order(tmp_path: Path) -> Order:
    """For a model of two programs."""
    path = tmp_path / "model.tflite"
    path.write_bytes(small_models.two_signatures())
    return order_for(str(path), CpuDevice(LEVEL), {"target": "cpu"}, (), hosted=False)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "programs"))


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.jitd")}


def test_what_comes_back_is_what_would_have_been_compiled_here(order: Order, store: Store, tmp_path: Path) -> None:
    unpack(fill_order(order), store)
    here = DelegateOptions(target="cpu", serialization_dir=str(tmp_path / "here"))
    precompile(str(tmp_path / "model.tflite"), CpuDevice(LEVEL), here)
    assert _files(tmp_path / "programs") == _files(tmp_path / "here")
    assert len(_files(tmp_path / "here")) == 2


def test_what_a_worker_finds_in_its_own_folders_travels_all_the_same(
    order: Order, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = DelegateOptions(target="cpu", serialization_dir=str(tmp_path / "there"))
    precompile(str(tmp_path / "model.tflite"), CpuDevice(LEVEL), there)
    monkeypatch.setenv("JITDELEGATE_PREBUILT", str(tmp_path / "there"))
    assert dict(fill_order(order).entries) == _files(tmp_path / "there")


def test_no_programs_are_an_error(store: Store) -> None:
    with pytest.raises(CacheError, match="sent no programs"):
        unpack(parcel.Parcel((), 1.0), store)


def test_programs_that_share_weights_come_back_whole(store: Store, tmp_path: Path) -> None:
    path, options = tmp_path / "model.tflite", DelegateOptions(serialization_dir=str(tmp_path / "programs"))
    path.write_bytes(MODEL)
    shapes = [{"x": (4, DEPTH)}]
    found = fill_order(order_for(str(path), CpuDevice(LEVEL), {}, shapes, hosted=False))
    assert len(found.entries) == 6
    assert sum(len(content) for _, content in found.entries) < 6 * MATRIX  # 12, if each program had its own
    unpack(found, store)
    assert verified(str(path), CpuDevice(LEVEL), options, None, shapes).hit


def test_a_worker_with_other_versions_compiles_nothing(order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parcel, "precompile", None)
    for name, value in (("generators", "of yesterday"), ("toolchain", "llvmlite 0.1")):
        other = replace(order, key=tuple((part, value if part == name else old) for part, old in order.key))
        with pytest.raises(DeviceError, match=f"another version of jitdelegate or of {name}: .* expected '{value}'"):
            fill_order(other)


@pytest.mark.parametrize("place", [0, 200, -1])
def test_a_damaged_entry_stores_nothing(order: Order, store: Store, tmp_path: Path, place: int) -> None:
    found = fill_order(order)
    (first, good), (second, content) = found.entries
    damaged = bytearray(content)
    damaged[place] ^= 1
    with pytest.raises(ProgramError):
        unpack(replace(found, entries=[(first, good), (second, bytes(damaged))]), store)
    assert not _files(tmp_path / "programs")


def test_an_entry_has_the_name_of_its_key(order: Order, store: Store, tmp_path: Path) -> None:
    found = fill_order(order)
    (first, good), (second, content) = found.entries
    with pytest.raises(ProgramError, match="has the name of another key"):
        unpack(replace(found, entries=[(second, good), (first, content)]), store)
    assert not _files(tmp_path / "programs")
