"""scripts/gpu_check.sh [DIR]: check and measure on this machine's GPU with what was prepared in DIR.

Writes gpu-results.json to the folder that $OUT names, else to docs/, and a table to docs/gpu-results.md (and to $OUT).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from jitdelegate.errors import JitDelegateError, ProgramError
from scripts.gpu_check import report
from scripts.gpu_check.bundle import read_bundle
from scripts.gpu_check.row import Row
from scripts.gpu_check.run_sections import run_sections
from scripts.gpu_check.sections import BUDGET, SECTIONS, Section

DOCS = Path(__file__).resolve().parents[2] / "docs"
DEFAULT_FOLDER = Path(".gpu_check")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 all marks hold, 1 some do not or there is no GPU, 2 wrong arguments."""
    arguments = _parser().parse_args(argv)
    try:
        if arguments.section:
            write_rows(arguments.section, arguments.folder, arguments.rows)
            return 0
        return check(arguments)
    except JitDelegateError as error:
        print(error, file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/gpu_check.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER, metavar="DIR")
    parser.add_argument("--date", default=datetime.date.today().isoformat(), help="of the results (default: today)")
    parser.add_argument("--seconds", type=float, default=BUDGET, help="for all together (default: %(default)g)")
    parser.add_argument("--only", action="append", choices=[one.name for one in SECTIONS], help="run these sections")
    parser.add_argument("--join", type=Path, metavar="JSON", help="results of this GPU that are to be added to")
    parser.add_argument("--section", choices=[one.name for one in SECTIONS], help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=Path, help=argparse.SUPPRESS)
    return parser


def write_rows(name: str, folder: Path, path: Path) -> None:
    """Run one section in this process; each finding goes to the file at once."""
    section = next(one for one in SECTIONS if one.name == name)
    bundle = read_bundle(folder)
    with path.open("a") as file:
        for row in section.rows(bundle):
            file.write(json.dumps(row.to_dict()) + "\n")
            file.flush()


def check(arguments: argparse.Namespace) -> int:
    """Run the sections and write the results; nothing is written where no GPU was found.

    Raises:
        ProgramError: the folder was not prepared, or the results to be joined are not of this GPU.
    """
    read_bundle(arguments.folder)
    earlier = report.read_json(arguments.join) if arguments.join else []
    first, *others = SECTIONS
    rows = _run([first], arguments)
    gpu = report.facts(rows).get("GPU")
    if gpu is None:
        print("no GPU was found, so there are no results", file=sys.stderr)
        return 1
    if report.facts(earlier).get("GPU", gpu) != gpu:
        raise ProgramError(f"{arguments.join} is of another GPU: {report.facts(earlier)['GPU']}, this is {gpu}")
    rows += _run([one for one in others if arguments.only is None or one.name in arguments.only], arguments)
    rows = report.joined(earlier, rows)
    write_results(arguments.date, rows)
    return 0 if all(row.holds is not False for row in rows) else 1


def _run(sections: Sequence[Section], arguments: argparse.Namespace) -> list[Row]:
    """What the sections find, each in its process."""

    def command(section: Section, path: Path) -> list[str]:
        own = [sys.executable, "-m", "scripts.gpu_check", str(arguments.folder)]
        return [*own, "--section", section.name, "--rows", str(path)]

    return run_sections(sections, arguments.seconds, command)


def write_results(date: str, rows: Sequence[Row]) -> None:
    """The JSON and the tables, and the tables on stdout."""
    text = report.table(date, rows)
    carried = os.environ.get("OUT")
    report.write_json(Path(carried or DOCS) / report.JSON, date, rows)
    (DOCS / report.TABLE).write_text(text)
    if carried:
        (Path(carried) / report.TABLE).write_text(text)
    print(text)


if __name__ == "__main__":
    sys.exit(main())
