"""Values for a model's inputs: seeded, within given ranges, or from files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from jitdelegate.commands.measurement.entry import Entry, Interface
from jitdelegate.engine.example_values import example_values
from jitdelegate.errors import TensorError

Values = list[np.ndarray]


def seeded(entry: Entry, seed: int, given: Mapping[int, np.ndarray] | None = None) -> Values:
    """One value per input, the same for the same seed in every process; `given` ones by position stay."""
    random = np.random.default_rng(seed)
    values = [example_values(each.shape, each.dtype, random) for each in entry.inputs]
    return [(given or {}).get(place, value) for place, value in enumerate(values)]


def within(found: Interface, low: int, high: int, seed: int = 0) -> np.ndarray:
    """Whole numbers from `low` to `high`, both included, in the input's type.

    Raises:
        TensorError: the type does not hold them.
    """
    if found.dtype == "string":
        raise TensorError(f"input {found.name!r} is text, and has no range of values")
    kind = np.dtype(found.dtype)
    if kind.kind in "iu" and not np.iinfo(kind).min <= low <= high <= np.iinfo(kind).max:
        raise TensorError(f"input {found.name!r} is {found.dtype}, which does not hold {low} to {high}")
    return np.random.default_rng(seed).integers(low, high, found.shape, endpoint=True).astype(kind)


def from_file(path: str, entry: Entry, place: int | None = None) -> dict[int, np.ndarray]:
    """The values in a file by the position of their input.

    Args:
        path: .npy holds one array, .npz arrays by the inputs' names, any other file raw bytes of one array, or texts
            that end with a zero byte.
        place: position of the input of a file with one array; None is the only input.
    Raises:
        TensorError: the file cannot be read, or its arrays fit no input.
    """
    try:
        return _read(path, entry, place)
    except OSError as error:
        raise TensorError(f"could not read {path!r}: {error.strerror or error}") from error
    except ValueError as error:
        if isinstance(error, TensorError):
            raise
        raise TensorError(f"{path!r} is no file of arrays: {error}") from error


def _read(path: str, entry: Entry, place: int | None) -> dict[int, np.ndarray]:
    if path.endswith(".npz"):
        with np.load(path, allow_pickle=False) as arrays:
            places = {entry.place(name): name for name in arrays.files}
            return {each: _as_input(arrays[name], entry.inputs[each], path) for each, name in places.items()}
    if place is None and len(entry.inputs) != 1:
        names = [each.name for each in entry.inputs]
        raise TensorError(f"{path!r} holds one array, but the inputs are {names}; expected NAME=FILE")
    found = entry.inputs[place or 0]
    if path.endswith(".npy"):
        return {place or 0: _as_input(np.load(path, allow_pickle=False), found, path)}
    return {place or 0: _raw(Path(path).read_bytes(), found, path)}


def _as_input(array: np.ndarray, found: Interface, path: str) -> np.ndarray:
    """The array, as an input of the run; its shape becomes the input's."""
    if found.dtype == "string":
        return array
    if array.dtype != np.dtype(found.dtype):
        raise TensorError(f"{path!r} holds {array.dtype}, but input {found.name!r} is {found.dtype}")
    return np.ascontiguousarray(array)


def _raw(content: bytes, found: Interface, path: str) -> np.ndarray:
    if found.dtype == "string":
        texts = content.split(b"\0")[: -1 if content.endswith(b"\0") else None]
        if len(texts) != found.size:
            raise TensorError(f"{path!r} holds {len(texts)} texts, but input {found.name!r} has {found.size}")
        return np.array(texts, object).reshape(found.shape)
    expected = found.size * np.dtype(found.dtype).itemsize
    if len(content) != expected:
        raise TensorError(f"{path!r} holds {len(content)} bytes, but input {found.name!r} has {expected}")
    return np.frombuffer(content, found.dtype).reshape(found.shape)


def shapes_of(given: Mapping[int, np.ndarray]) -> dict[int, tuple[int, ...]]:
    """The shapes of given values, which a run takes."""
    return {place: value.shape for place, value in given.items()}


def sets(entry: Entry, seed: int, count: int, given: Sequence[Mapping[int, np.ndarray]]) -> Iterator[Values]:
    """`count` sets of values for all inputs; the given ones, if any, take turns, the rest is seeded."""
    for number in range(count):
        yield seeded(entry, seed + number, given[number % len(given)] if given else None)
