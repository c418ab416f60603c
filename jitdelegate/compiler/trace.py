"""Readable files of what every stage of the cold road made, for people; nothing is written unless asked for."""

from __future__ import annotations

import os
from collections.abc import Callable

from jitdelegate.errors import OptionError
from jitdelegate.ir.graph import Graph
from jitdelegate.ir.print import graph_text

VARIABLE = "JITDELEGATE_DUMP"
"""The environment variable that names the folder; nothing is dumped where it is unset or empty."""


def dump(stage: str, make: Callable[[], str]) -> None:
    """Writes what `make` answers to NN_<stage>.txt in the folder of JITDELEGATE_DUMP, NN counting the files there.

    Nothing is made where nothing is asked for.

    Raises:
        OptionError: the folder cannot be made or written.
    """
    folder = os.environ.get(VARIABLE)
    if not folder:
        return
    text = make()
    try:
        _write(folder, stage, text)
    except (OSError, ValueError) as error:
        raise OptionError(f"{VARIABLE} is {folder!r}, expected a folder that can be written: {error}") from error


def _write(folder: str, stage: str, text: str) -> None:
    os.makedirs(folder, exist_ok=True)
    number = len(os.listdir(folder))
    with open(os.path.join(folder, f"{number:02}_{stage}.txt"), "w", encoding="utf-8") as file:
        file.write(text)


def dump_graph(stage: str, graph: Graph) -> None:
    """As `dump`, with the graph as text."""
    dump(stage, lambda: graph_text(graph))
