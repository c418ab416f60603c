"""scripts/gpu_check.sh [DIR] [--run NAME]: check and measure on this machine's GPU with what was prepared in DIR.

Writes gpu-results.json and a table, gpu-results.md, to the folder that $OUT names, adding to the results in it, else to
docs/.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from jitdelegate.errors import JitDelegateError, ProgramError
from scripts.gpu_check import report
from scripts.gpu_check.apply_constants import apply
from scripts.gpu_check.bundle import read_bundle
from scripts.gpu_check.row import Row
from scripts.gpu_check.run_sections import run_sections
from scripts.gpu_check.sections import BUDGET, DEVICE, RUNS, SECTIONS, WEIGHTS, Section, seconds_of

DOCS = Path(__file__).resolve().parents[2] / "docs"
DEFAULT_FOLDER = Path(".gpu_check/first")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 all marks hold, 1 some do not or there is no GPU, 2 wrong arguments."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        if arguments.section:
            write_rows(arguments.section, arguments.folder, arguments.rows, arguments.arguments)
            return 0
        if arguments.apply:
            apply(report.joined(*map(report.read_json, arguments.apply)))
            return 0
        if arguments.only_join:
            rows = earlier_rows(arguments.join)
            if "GPU" not in report.facts(rows):
                parser.error("--only-join takes results that name their GPU: give some with --join")
            write_results(arguments.date, rows)
            print_summary(rows)
            return 0
        sections = _sections(arguments)
        needed = seconds_of(sections)
        if needed > arguments.seconds:
            parser.error(f"these sections may take {needed:g} seconds, expected at most {arguments.seconds:g}: run some"
                         " of them, and --join their results")  # fmt: skip
        return check(sections, arguments)
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
    parser.add_argument("--most", type=float, default=BUDGET, help="seconds for any section (default: its own)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--run", choices=list(RUNS), default=next(iter(RUNS)), help="sections (default: %(default)s)")
    which.add_argument("--only", action="append", choices=list(SECTIONS), help="run these sections instead")
    which.add_argument("--only-join", action="store_true", help="run nothing: write the joined results, without a GPU")
    which.add_argument(
        "--apply",
        action="append",
        type=Path,
        metavar="RESULTS",
        help="run nothing: write measured constants to the package",
    )
    parser.add_argument(
        "--join",
        action="append",
        type=Path,
        default=[],
        metavar="RESULTS",
        help="earlier results of this GPU to add to",
    )
    parser.add_argument("--section", choices=list(SECTIONS), help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--arguments", nargs="*", default=(), help=argparse.SUPPRESS)
    return parser


def _sections(arguments: argparse.Namespace) -> tuple[Section, ...]:
    """What is to run after DEVICE and WEIGHTS."""
    if arguments.only is None:
        found = RUNS[arguments.run]
    else:
        found = tuple(one for name, one in SECTIONS.items() if name in arguments.only and one not in BEFORE)
    return tuple(replace(one, seconds=min(one.seconds, arguments.most)) for one in found)


BEFORE = (DEVICE, WEIGHTS)


def write_rows(name: str, folder: Path, path: Path, own: Sequence[str]) -> None:
    """Run one section in this process; each finding goes to the file at once.

    Args:
        own: its arguments, which differ between commands.
    """
    bundle = read_bundle(folder)
    with path.open("a") as file:
        for row in replace(SECTIONS[name], arguments=tuple(own)).rows(bundle):
            file.write(json.dumps(row.to_dict()) + "\n")
            file.flush()


def check(sections: Sequence[Section], arguments: argparse.Namespace) -> int:
    """Run the sections and write the results; nothing is written where no GPU was found.

    Raises:
        ProgramError: the folder was not prepared, or the results to be joined are not of this GPU.
    """
    # so that whoever ends this process ends the section too, which would keep the GPU busy
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    bundle, earlier = read_bundle(arguments.folder), earlier_rows(arguments.join)

    def command(section: Section, path: Path) -> list[str]:
        own = [sys.executable, "-m", "scripts.gpu_check", str(arguments.folder)]
        return [*own, "--section", section.name, "--rows", str(path), "--arguments", *section.arguments]

    rows = [row for found in run_sections([DEVICE], DEVICE.seconds, command, bundle.name) for row in found]
    gpu = report.facts(rows).get("GPU")
    if gpu is None:
        print("no GPU was found, so there are no results", file=sys.stderr)
        return 1
    if report.facts(earlier).get("GPU", gpu) != gpu:
        raise ProgramError(
            f"the results to be joined are of another GPU: {report.facts(earlier)['GPU']}, this is {gpu}"
        )
    for found in run_sections([WEIGHTS, *sections], arguments.seconds - DEVICE.seconds, command, bundle.name):
        rows += found
        # now: the machine may be gone, or this process ended, before the next section is through
        write_results(arguments.date, report.joined(earlier, rows))
    print_summary(report.joined(earlier, rows))
    return 0 if all(row.holds is not False for row in rows) else 1


def earlier_rows(join: Sequence[Path]) -> list[Row]:
    """The rows of the results to be joined, and behind them of those that earlier commands left in $OUT."""
    carried = os.environ.get("OUT")
    left = [Path(carried) / report.JSON] if carried else []
    return report.joined(*map(report.read_json, [*join, *(path for path in left if path.exists())]))


def write_results(date: str, rows: Sequence[Row]) -> None:
    """The JSON, the tables, and the archive of both with what tools said."""
    text = report.table(date, rows)
    folder = Path(os.environ.get("OUT") or DOCS)
    folder.mkdir(parents=True, exist_ok=True)
    report.write_json(folder / report.JSON, date, rows)
    report.replace_file(folder / report.TABLE, text)
    report.write_archive(folder)


def print_summary(rows: Sequence[Row]) -> None:
    """What a person wants to know first."""
    print("\n".join(["", *report.summary(rows)]), flush=True)


if __name__ == "__main__":
    sys.exit(main())
