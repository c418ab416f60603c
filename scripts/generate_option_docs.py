"""Writes what follows from the table of options in jitdelegate/base/options.py: their types, and the page about them.

python -m scripts.generate_option_docs          write jitdelegate/base/option_types.py and the table of docs/options.md
python -m scripts.generate_option_docs --check  exit 1 if one of them differs from what would be written
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path

from jitdelegate.base.options import FIELDS, DelegateOptions, Field
from scripts.marked_text import with_lines

ROOT = Path(__file__).resolve().parents[1]
TYPES = ROOT / "jitdelegate" / "base" / "option_types.py"
PAGE = ROOT / "docs" / "options.md"
COMMAND = "python -m scripts.generate_option_docs"
BEGIN, END = f"<!-- written by {COMMAND} -->", "<!-- end of the written table -->"
NAMED = ("target", "serialization_dir", "model_token", "num_threads")
"""Options that `load` and `GpuDelegate` have among their own parameters."""
OF_GPU = ("serialization_dir", "model_token", "precision", "backend", "device", "max_delegated_partitions")
"""Those of LiteRT's GpuOptions."""

TYPES_HEADER = f'''"""The types of the options, for type checkers alone; written by `{COMMAND}`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypedDict

ExtraOutputs = {FIELDS["extra_outputs"].given}
"""Of `extra_outputs`."""
'''


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 the files are written or up to date, 1 one is stale, 2 wrong arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    arguments = parser.parse_args(argv)
    contents = {TYPES: types(), PAGE: with_lines(PAGE.read_text(), BEGIN, table(), END)}
    if not arguments.check:
        for path, content in contents.items():
            path.write_text(content)
        return 0
    stale = [path for path, content in contents.items() if not path.exists() or path.read_text() != content]
    for path in stale:
        print(f"{path} is stale; run {COMMAND}", file=sys.stderr)
    return 1 if stale else 0


def types() -> str:
    """The module of types: of the checked values, of the constructor's arguments, of the keywords of `load`."""
    fields = {**FIELDS, **{field.alias: field for field in FIELDS.values() if field.alias}}

    def keywords(is_in: Callable[[str], bool]) -> dict[str, str]:
        return {name: _or_none(field.given) for name, field in fields.items() if is_in(name)}

    classes = (
        ("Checked", "Attributes of `DelegateOptions`", {name: field.kept for name, field in FIELDS.items()}),
        (
            "Arguments(TypedDict, total=False)",
            "Arguments of `DelegateOptions`",
            {name: field.given for name, field in fields.items()},
        ),
        (
            "Common(TypedDict, total=False)",
            "Keywords that all take; None leaves an option as it is",
            keywords(lambda name: name not in NAMED and name not in OF_GPU),
        ),
        (
            "Keywords(Common, total=False)",
            "Keywords of `load` and `GpuDelegate`, beside their own parameters",
            keywords(lambda name: name not in NAMED and name in OF_GPU),
        ),
        (
            "Further(Common, total=False)",
            "Further keywords of `GpuOptions`, beside its own parameters",
            keywords(lambda name: name in NAMED and name not in OF_GPU),
        ),
        (
            "Creation(Keywords, total=False)",
            "Keywords of `CompiledModel.create`",
            keywords(lambda name: name in NAMED),
        ),
    )
    return "\n\n".join([TYPES_HEADER, *(_class(*one) for one in classes)])


def _class(head: str, about: str, members: dict[str, str]) -> str:
    lines = [f"    {name}: {kind}" for name, kind in members.items()]
    return "\n".join([f"class {head}:", f'    """{about}."""', "", *lines, ""])


def _or_none(kind: str) -> str:
    return kind if kind.endswith("None") else f"{kind} | None"


def table() -> list[str]:
    """The lines of a table of options: names, values, default, and the description of `DelegateOptions`."""
    rows = [("option", "values", "default", "meaning"), ("---",) * 4, *(row(*item) for item in FIELDS.items())]
    return [f"| {' | '.join(cells)} |" for cells in rows]


def row(name: str, field: Field) -> tuple[str, ...]:
    names = f"`{name}`" + (f", `{field.alias}`" if field.alias else "")
    values = ", ".join(f'`"{value}"`' for value in field.choices) or f"`{field.given}`"
    cells = [names, values, "`" + repr(field.default).replace("'", '"') + "`", descriptions()[name]]
    return tuple(cell.replace("|", r"\|") for cell in cells)


def descriptions() -> dict[str, str]:
    """What the docstring of `DelegateOptions` says about each option."""
    text = inspect.cleandoc(DelegateOptions.__doc__ or "").partition("Attributes:\n")[2]
    found = re.findall(r"^    (\w+): (.*(?:\n        .*)*)", text, re.MULTILINE)
    return {name: re.sub(r'"[^" ]+"', r"`\g<0>`", " ".join(about.split())) for name, about in found}


if __name__ == "__main__":
    sys.exit(main())
