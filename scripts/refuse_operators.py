"""Count the operators that stay delegated if one operator type of a model is not compiled. Nothing is compiled or run.

    python -m scripts.refuse_operators FOLDER_OR_FILE ... [--list]

Every operator type of every model is taken out of the operator table in turn. The operators after a refused one are
still delegated if their shapes are known before a run. A line per model: its operators, the share of the others that is
delegated (the mean over all types), and the type whose refusal costs most. `--list` prints a line per type. Models
without any operator after folding are left out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from jitdelegate import passes
from jitdelegate.base.options import DelegateOptions
from jitdelegate.errors import JitDelegateError
from jitdelegate.ir.graph import Graph, Model
from jitdelegate.ops import OPS
from jitdelegate.passes.delegation import refused_nodes
from jitdelegate.passes.specialize_subgraph import specialize_subgraph
from jitdelegate.tflite.read import read


@dataclass(frozen=True, slots=True)
class Refusal:
    """Attributes:
    op: the type that is not compiled; "" for none.
    nodes: nodes of the folded graph.
    own: nodes of that type.
    delegated: nodes that can be compiled.
    """

    op: str
    nodes: int
    own: int
    delegated: int

    @property
    def share(self) -> float:
        """Share of the other nodes that is delegated."""
        return self.delegated / (self.nodes - self.own) if self.nodes > self.own else 1.0


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 all is well, 2 wrong arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="+", type=Path)
    parser.add_argument("--list", action="store_true", help="every type of every model")
    arguments = parser.parse_args(argv)
    shares: list[float] = []
    for path in _files(arguments.path):
        try:
            model = read(path.read_bytes())
        except JitDelegateError as error:
            print(f"{path.stem:<40} {error}")
            continue
        found = [refusal for refusal in refusals(model) if refusal.own]
        if found:
            shares += (refusal.share for refusal in found)
            print(_line(path, delegated(model, ""), found))
            for refusal in found if arguments.list else ():
                print(f"    {refusal.op:<40} {refusal.own:4} refused, {refusal.share:7.2%} of the others delegated")
    if shares:
        print(f"{len(shares)} refusals, {fmean(shares):.2%} of the others delegated on average")
    return 0


def refusals(model: Model) -> Iterator[Refusal]:
    """One per operator type of the first subgraph that can be compiled, in alphabetical order."""
    for op in sorted({node.op for node in _folded(model).nodes} & OPS.keys()):
        yield delegated(model, op)


def delegated(model: Model, op: str) -> Refusal:
    """What can be compiled of a model's first subgraph without the operator type `op`."""
    definition = OPS.pop(op, None)
    try:
        graph = _folded(model)
        refused = refused_nodes(model, graph, 0, DelegateOptions())
    finally:
        if definition is not None:
            OPS[op] = definition
    own = sum(node.op == op for node in graph.nodes)
    return Refusal(op, len(graph.nodes), own, len(graph.nodes) - len(refused))


def _folded(model: Model) -> Graph:
    return passes.run(specialize_subgraph(model).graphs[0], passes=passes.FOLD)


def _line(path: Path, whole: Refusal, found: Iterable[Refusal]) -> str:
    worst = min(found, key=lambda refusal: refusal.share)
    share = fmean(refusal.share for refusal in found)
    return (
        f"{path.stem:<40} {whole.delegated:4} of {whole.nodes:4} delegated, {share:7.2%} of the others without a type, "
        f"{worst.share:7.2%} without {worst.op}"
    )


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        yield from sorted(path.rglob("*.tflite")) if path.is_dir() else [path]


if __name__ == "__main__":
    sys.exit(main())
