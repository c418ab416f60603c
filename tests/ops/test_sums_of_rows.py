"""Sums of rows of constants with a scale for each block: found once for each content."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jitdelegate.ir import dequantize
from jitdelegate.ir.dequantize import real_numbers, sums_of_rows
from jitdelegate.ir.graph import Quant, Tensor


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """Receives the numbers of each constant that is unpacked."""
    found: list[np.ndarray] = []
    centred = dequantize.centred

    def counted(tensor: Tensor) -> np.ndarray:
        found.append(centred(tensor))
        return found[-1]

    monkeypatch.setattr(dequantize, "centred", counted)
    monkeypatch.setattr(dequantize, "_SUMS", {})
    return found


def constant(seed: int, zero: int = 0) -> Tensor:
    """int4[6,64] with a scale for each 32 elements."""
    random = np.random.default_rng(seed)
    scales = random.uniform(0.1, 2, 12).astype(np.float32)
    quant = Quant(tuple(scales.tolist()), (zero,) * 12, block_size=32)
    return Tensor("w", (6, 64), "int4", random.integers(0, 256, 192).astype(np.uint8), quant)


def check(tensor: Tensor) -> None:
    expected = real_numbers(tensor).astype(np.float64).sum(1)
    np.testing.assert_allclose(sums_of_rows(tensor), expected, rtol=1e-5, atol=1e-5)


def test_equal_constants_are_unpacked_once(unpacked: list[np.ndarray]) -> None:
    first = sums_of_rows(constant(0))
    assert sums_of_rows(constant(0)) is first
    assert len(unpacked) == 1
    check(constant(0))


@pytest.mark.parametrize("change", ["data", "scales", "zeros", "type"])
def test_any_difference_counts(unpacked: list[np.ndarray], change: str) -> None:
    one, other = constant(0), constant(1)
    assert one.quant is not None
    sums_of_rows(one)
    changed = {
        "data": replace(one, data=other.data),
        "scales": replace(one, quant=other.quant),
        "zeros": constant(0, zero=1),
        "type": replace(one, dtype="int8", shape=(6, 32), quant=replace(one.quant, block_size=16)),
    }
    if change == "type":
        assert one.data is not None
        changed["type"] = replace(changed["type"], data=one.data.view(np.int8).reshape(6, 32))
    check(changed[change])
    assert not np.array_equal(sums_of_rows(changed[change]), sums_of_rows(one))


def test_the_oldest_are_forgotten(unpacked: list[np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dequantize, "MOST_SUMS", 2)
    for seed in (0, 1, 2, 1, 2):
        sums_of_rows(constant(seed))
    assert len(unpacked) == 3
    sums_of_rows(constant(0))
    assert len(unpacked) == 4
