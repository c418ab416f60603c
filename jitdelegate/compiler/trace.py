"""Results of the stages of one compilation, as files in the folder of JITDELEGATE_DUMP and in the debug log.

FOLDER/00_cpu_1f0c9a3e/            one program, by target and cache entry
    00_key.txt 01_read.txt         the key; the graph as it was read
    02_lower.txt ...               the graph after each pass that changed it
    09_plan.txt 10_kernels.txt     memory, and generated code
    kernels/03_CONV_2D.npz         one lowered node, for `python -m jitdelegate.replay`
    partition_00_nodes_2-5/        the same of a part of the graph
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from jitdelegate.base.debug import PASSES, SOURCE, log
from jitdelegate.base.options import DEBUG_LEVEL
from jitdelegate.errors import OptionError
from jitdelegate.ir.graph import Graph
from jitdelegate.ir.print import graph_text
from jitdelegate.passes.single_node import single_node
from jitdelegate.runtime.cache.key import Key

VARIABLE = "JITDELEGATE_DUMP"
"""The environment variable that names the folder; nothing is dumped where it is unset or empty."""
KERNELS = "kernels"
SHOWN_DIGITS = 8


class Trace:
    """Receives the stages of one program or of one of its partitions; does nothing without a folder or debug level."""

    def __init__(self, name: str, folder: Path | None) -> None:
        """
        Args:
            name: of the program or partition in the log.
            folder: an empty folder for its files; None for no files.
        """
        self._name = name
        self._folder = folder
        self._files = count()
        self._partitions = count()
        self._last = ""

    def graph(self, stage: str, graph: Graph) -> None:
        """The graph after a stage, unless it reads as before."""
        if self._folder is None and DEBUG_LEVEL < PASSES:
            return
        text = graph_text(graph)
        if text != self._last:
            self._last = text
            self._put(stage, text, PASSES)

    def text(self, stage: str, make: Callable[[], str]) -> None:
        """The text that `make` returns; not called without a folder or debug level."""
        if self._folder is not None or DEBUG_LEVEL >= SOURCE:
            self._put(stage, make(), SOURCE)

    def kernels(self, lowered: Graph) -> None:
        """Each node of a lowered graph as a file of its own."""
        if self._folder is None:
            return
        from jitdelegate.ir.archive import save_graph  # not before: few compilations are dumped

        folder = _subfolder(self._folder, KERNELS)
        for position, node in enumerate(lowered.nodes):
            name = "".join(letter if letter.isalnum() else "_" for letter in node.op)
            with _writing(folder):
                save_graph(single_node(lowered, position), folder / f"{position:02}_{name}.npz")

    def partition(self, nodes: Sequence[int]) -> Trace:
        """For the partition of these nodes."""
        number = next(self._partitions)
        name = f"partition_{number:02}_nodes_{min(nodes)}-{max(nodes)}"
        return Trace(f"{self._name} {name}", _subfolder(self._folder, name) if self._folder else None)

    def _put(self, stage: str, text: str, level: int) -> None:
        if level <= DEBUG_LEVEL:
            log(f"{self._name} {stage}\n{text}")
        if self._folder is not None:
            with _writing(self._folder):
                (self._folder / f"{next(self._files):02}_{stage}.txt").write_text(text, "utf-8")


def open_trace(key: Key) -> Trace:
    """For the program of this key.

    Raises:
        OptionError: the folder of JITDELEGATE_DUMP cannot be made or written.
    """
    name = f"{key.part('target')}_{key.digest()[:SHOWN_DIGITS]}"
    parent = os.environ.get(VARIABLE)
    trace = Trace(name, _numbered_folder(Path(parent), name) if parent else None)
    trace.text("key", lambda: "".join(f"{part}: {value}\n" for part, value in key.parts))
    return trace


def _numbered_folder(parent: Path, name: str) -> Path:
    """A new folder NN_<name>, by the first free number from the count of what is there."""
    with _writing(parent):
        parent.mkdir(parents=True, exist_ok=True)
        number = len(os.listdir(parent))
        while True:
            folder = parent / f"{number:02}_{name}"
            try:
                folder.mkdir()
            except FileExistsError:  # of another process, or left of a series with gaps
                number += 1
            else:
                return folder


def _subfolder(parent: Path, name: str) -> Path:
    folder = parent / name
    with _writing(parent):
        folder.mkdir()
    return folder


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """
    Raises:
        OptionError: something cannot be written to the folder.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        found = f"{VARIABLE} is {os.fspath(folder)!r}"
        raise OptionError(f"{found}, expected a folder that can be written: {error}") from error
