"""Made up values for inputs, where nobody gives any."""

from __future__ import annotations

import numpy as np

TEXT = b"a sentence for a model that reads text"


def example_values(shape: tuple[int, ...], dtype: str, random: np.random.Generator) -> np.ndarray:
    """Plausible values: -1 to 1 for floats, any for narrow integers, 0 and 1 for wide ones, which often are indices."""
    if dtype == "string":
        return np.full(shape, TEXT)
    kind = np.dtype(dtype)
    if kind.kind in "fc":
        return np.asarray(random.uniform(-1, 1, shape)).astype(kind)
    if kind.kind in "iu" and kind.itemsize <= 2:
        limits = np.iinfo(kind)
        return np.asarray(random.integers(limits.min, limits.max, shape, dtype=kind, endpoint=True))
    return np.asarray(random.integers(0, 2, shape)).astype(kind)
