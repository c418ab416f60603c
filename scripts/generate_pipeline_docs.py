"""Writes the table of the pipeline in CONTRIBUTING.md from `passes.PIPELINE` and the functions around it.

python -m scripts.generate_pipeline_docs          write the table
python -m scripts.generate_pipeline_docs --check  exit 1 if the table differs from what would be written
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from jitdelegate import passes
from jitdelegate.compiler.codegen import target_program
from jitdelegate.passes.delegation import delegate
from jitdelegate.passes.specialize_subgraph import specialize_subgraph
from jitdelegate.passes.support import unsupported
from jitdelegate.passes.works_on import Kind, declared
from jitdelegate.program.write import write
from jitdelegate.targets.target import Target
from jitdelegate.tflite.read import read
from scripts.marked_text import with_lines

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "CONTRIBUTING.md"
COMMAND = "python -m scripts.generate_pipeline_docs"
BEGIN, END = f"<!-- written by {COMMAND} -->", "<!-- end of the written table -->"
TITLES = ("stage", "function", "in -> out", "works on", "file", "first lines of its docstring")

Function = Callable[..., Any]


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 the table is written or up to date, 1 it is stale, 2 wrong arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    arguments = parser.parse_args(argv)
    before = TARGET.read_text()
    after = with_lines(before, BEGIN, table(), END)
    if not arguments.check:
        TARGET.write_text(after)
        return 0
    if before == after:
        return 0
    print(f"{TARGET.name} shows another pipeline than the code; write the table again: {COMMAND}", file=sys.stderr)
    return 1


def table() -> list[str]:
    """The lines of the table."""
    rows = (row(stage, function) for stage, function in stages())
    return [_line(cells) for cells in (TITLES, ["---"] * len(TITLES), *rows)]


def stages() -> Iterator[tuple[str, Function]]:
    """(stage, function) pairs in the order in which `compiler.compile` calls them."""
    yield "read", read
    yield "specialize", specialize_subgraph
    yield from (("infer", each) for each in passes.INFER)
    yield from (("fold", each) for each in passes.FOLD[len(passes.INFER) :])
    yield "check", unsupported
    yield "partition, where some operators are refused", delegate
    yield from (("rewrite", each) for each in passes.REWRITE)
    yield "generate", target_program
    yield "generate, in each target", Target.generate
    yield "write", write


def row(stage: str, function: Function) -> list[str]:
    """The cells of one function, in the order of TITLES."""
    source = Path(inspect.getsourcefile(function) or "").relative_to(ROOT)
    first, _, _ = inspect.cleandoc(function.__doc__ or "").partition("\n\n")
    name, path = f"`{function.__qualname__}`", f"`{source.as_posix()}`"
    return [stage, name, types_of(function), kinds_of(function), path, " ".join(first.split())]


def kinds_of(function: Function) -> str:
    """What a pass works on, for example "Map and MatMul"; "" for one that sees every graph."""
    groups = (", ".join(_kind(each) for each in kinds) for kinds in declared(function))
    return ", and ".join(groups)


def _kind(kind: Kind) -> str:
    return kind if isinstance(kind, str) else kind.__name__.replace("_", " ")


def types_of(function: Function) -> str:
    """For example "Graph -> Graph": the first parameter that is not `self`, and the result."""
    signature = inspect.signature(function)
    first = next(each for name, each in signature.parameters.items() if name != "self")
    return f"{first.annotation} -> {signature.return_annotation}"


def _line(cells: Iterable[str]) -> str:
    escaped = [cell.replace("|", r"\|") for cell in cells]
    return f"| {' | '.join(escaped)} |"


if __name__ == "__main__":
    sys.exit(main())
