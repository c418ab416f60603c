"""benchmark_model's flags about inputs: --input_layer, --input_layer_shape, --input_layer_value_range and _files."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass

import numpy as np

from jitdelegate.commands.measurement.entry import Entry
from jitdelegate.commands.measurement.inputs import Values, from_file, seeded, within
from jitdelegate.commands.measurement.inputs import shapes_of as shapes_of_values
from jitdelegate.commands.run_arguments import add_shape, shapes_of, sizes
from jitdelegate.errors import OptionError

SEED = 0


@dataclass(frozen=True)
class _Named:
    """Inputs by the names that --input_layer gives them, which need not be the model's."""

    entry: Entry
    names: list[str]

    def place(self, name: str, flag: str) -> int:
        """
        Raises:
            OptionError: no input has the name.
        """
        if name in self.names:
            return self.names.index(name)
        if self.names:
            raise OptionError(f"{flag} names {name!r}, but --input_layer names {self.names}")
        return self.entry.place(name)


def add_inputs(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("inputs; seeded noise where nothing else is said")
    group.add_argument("--input_layer", default="", metavar="NAMES", help="names for all inputs, with commas, in order")
    group.add_argument(
        "--input_layer_shape", default="", metavar="SHAPES", help="of all inputs, in order: 1,224,224,3:1,10"
    )
    group.add_argument(
        "--input_layer_value_range", default="", metavar="RANGES", help="whole numbers: NAME,LOW,HIGH:NAME,LOW,HIGH"
    )
    group.add_argument(
        "--input_layer_value_files", default="", metavar="FILES", help=".npy or raw bytes: NAME:FILE,NAME:FILE"
    )
    add_shape(group)


def inputs_of(arguments: argparse.Namespace, entry: Entry) -> tuple[Entry, Values]:
    """The entry with the shapes that the arguments ask for, and the inputs' values.

    Raises:
        OptionError, TensorError: names, shapes, ranges or files do not fit the inputs.
    """
    names = arguments.input_layer.split(",") if arguments.input_layer else []
    if names and len(names) != len(entry.inputs):
        raise OptionError(f"--input_layer names {len(names)} inputs, but the model has {len(entry.inputs)}")
    entry = entry.with_shapes({**_positional(arguments, entry), **shapes_of(arguments, entry)})
    named, given = _Named(entry, names), dict[int, np.ndarray]()
    for text in filter(None, arguments.input_layer_value_range.split(":")):
        place, low, high = _range(text, named)
        given[place] = within(entry.inputs[place], low, high)
    for text in filter(None, arguments.input_layer_value_files.split(",")):
        name, path = _named_file(text)
        given |= from_file(path, entry, named.place(name, "--input_layer_value_files"))
    entry = entry.with_shapes(shapes_of_values(given))
    return entry, seeded(entry, SEED, given)


def _positional(arguments: argparse.Namespace, entry: Entry) -> dict[int, tuple[int, ...]]:
    texts = arguments.input_layer_shape.split(":") if arguments.input_layer_shape else []
    if texts and len(texts) != len(entry.inputs):
        raise OptionError(f"--input_layer_shape has {len(texts)} shapes, but the model has {len(entry.inputs)} inputs")
    try:
        return dict(enumerate(map(sizes, texts)))
    except argparse.ArgumentTypeError as error:
        raise OptionError(f"--input_layer_shape: {error}") from error


def _range(text: str, named: _Named) -> tuple[int, int, int]:
    parts = text.split(",")
    if len(parts) != 3 or not all(re.fullmatch(r"-?\d{1,18}", part) for part in parts[1:]):
        raise OptionError(f"--input_layer_value_range has {text!r}, expected NAME,LOW,HIGH with whole numbers")
    low, high = map(int, parts[1:])
    if low > high:
        raise OptionError(f"--input_layer_value_range has {text!r}: {low} is above {high}")
    return named.place(parts[0], "--input_layer_value_range"), low, high


def _named_file(text: str) -> tuple[str, str]:
    """Name and path; a colon within the name is written twice."""
    found = re.fullmatch(r"((?:[^:]|::)+):([^:].*)", text)
    if not found:
        raise OptionError(f"--input_layer_value_files has {text!r}, expected NAME:FILE")
    return found[1].replace("::", ":"), found[2]
