"""Reads LiteRT's op tests: zip archives, one per generator, of small models with their inputs and outputs.

An archive holds `cases.tsv` (case, number of value sets, parameters) and per case `NNN.tflite` and `NNN.npz`, whose
arrays are named `<set>/in/<tensor>` and `<set>/out/<tensor>`.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jitdelegate.errors import ModelError
from jitdelegate.ir.graph import Graph
from jitdelegate.tflite.read import read

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class ValueSet:
    """Inputs of a model and the outputs that belong to them, by tensor name."""

    inputs: Arrays
    outputs: Arrays


@dataclass(frozen=True, slots=True)
class OpTest:
    """One case.

    Attributes:
        op: the archive's name.
        number: the case's, three digits.
        parameters: what the generator made it from, `name=value` separated by commas.
        model: the .tflite file.
        graph: its main subgraph, None where the file is not a model.
        sets: the values to run it with, one set after the other.
    """

    op: str
    number: str
    parameters: str
    model: bytes
    graph: Graph | None
    sets: tuple[ValueSet, ...]

    @property
    def stored(self) -> list[np.ndarray]:
        """The outputs in the model's order, for one value set after the other."""
        names = [self.graph.tensors[index].name for index in self.graph.outputs] if self.graph else None
        return [array for each in self.sets for array in in_order(names or list(each.outputs), each.outputs)]

    @property
    def steps(self) -> list[float]:
        """How large a step of each stored output is: 0.0 for what was never quantized."""
        if not self.graph:
            return [0.0] * len(self.stored)
        return [step(self.graph, index) for index in self.graph.outputs] * len(self.sets)

    @property
    def is_float(self) -> bool:
        """Whether nothing in the model is quantized and every output is float32."""
        quantized = self.graph and any(tensor.is_quantized for tensor in self.graph.tensors)
        return not quantized and all(array.dtype == np.float32 for array in self.stored)


def step(graph: Graph, index: int) -> float:
    """Of integers that stand for other numbers 1, of what DEQUANTIZE wrote the scale, else 0."""
    writer = graph.writer[index]
    if graph.tensors[index].is_quantized:
        return 1.0
    if writer is None or graph.nodes[writer].op != "DEQUANTIZE":
        return 0.0
    source = graph.tensors[graph.nodes[writer].inputs[0]].quant
    return max(source.scales, default=0.0) if source else 0.0


def read_archives(folder: Path) -> Iterator[OpTest]:
    """Every case of every archive of a folder, in the order of their names."""
    for path in sorted(folder.glob("*.zip")):
        yield from read_archive(path)


def read_archive(path: Path) -> Iterator[OpTest]:
    """The cases of one archive, in order."""
    with zipfile.ZipFile(path) as archive:
        for line in archive.read("cases.tsv").decode().splitlines()[1:]:
            number, sets, parameters = line.split("\t")
            with np.load(io.BytesIO(archive.read(f"{number}.npz"))) as arrays:
                values = tuple(_value_set(arrays, each) for each in range(int(sets)))
            model = archive.read(f"{number}.tflite")
            yield OpTest(path.stem, number, parameters, model, _graph(model), values)


def _graph(model: bytes) -> Graph | None:
    try:
        return read(model).graphs[0]
    except ModelError:
        return None


def _value_set(arrays: Arrays, number: int) -> ValueSet:
    return ValueSet(_below(arrays, f"{number}/in/"), _below(arrays, f"{number}/out/"))


def _below(arrays: Arrays, prefix: str) -> Arrays:
    return {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}


def in_order(names: Sequence[str], arrays: Arrays) -> list[np.ndarray]:
    """The arrays in the order of a model's tensors: by name where all are found so, else in their own order.

    Raises:
        LookupError: there are more or fewer arrays than tensors.
    """
    if len(names) != len(arrays):
        raise LookupError(f"{len(arrays)} arrays ({', '.join(arrays)}) for the {len(names)} tensors {', '.join(names)}")
    found = {_plain(name): array for name, array in arrays.items()}
    plain = [_plain(name) for name in names]
    return [found[name] for name in plain] if set(plain) == set(found) else list(arrays.values())


def _plain(name: str) -> str:
    """The name without what converters add to it."""
    return name.removeprefix("serving_default_").removesuffix(":0")
