"""The commands, their arguments and exit status."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jitdelegate
from cache_tools.amounts import age, short_size, size
from cache_tools.entries import Entry, open_directory, open_entries
from cache_tools.pages import HEADINGS, RIGHT, page, row, statistics, statistics_lines
from cache_tools.removal import leftovers, matching, surplus, with_borrowers
from cache_tools.tables import Table, open_tables
from jitdelegate.cache.place import open_place
from jitdelegate.errors import JitDelegateError

GOOD, BAD, WRONG_ARGUMENTS = 0, 1, 2
Kept = Entry | Table
Command = Callable[[argparse.Namespace], int]
NAMED = "an entry as ls or a path names it, a fingerprint, a token, or a model's file name"
USED = "The last use is as exact as the file system's access times, which many update once a day."
IN_USE = "Processes that run a removed program keep it until they end; the next start compiles it again."


def run(argv: list[str] | None) -> int:
    """Exit status: 0 all is well, 1 some entry is bad, 2 wrong arguments."""
    try:
        arguments = _parser().parse_args(argv)
    except SystemExit as end:  # argparse has printed why
        return WRONG_ARGUMENTS if end.code else GOOD
    command: Command = arguments.command
    try:
        return command(arguments)
    except (JitDelegateError, OSError) as error:
        print(error, file=sys.stderr)
        return WRONG_ARGUMENTS


def _parser() -> argparse.ArgumentParser:
    called = os.path.basename(sys.argv[0])
    parser = argparse.ArgumentParser(
        prog=called if called.startswith("jitdelegate-") else "python -m cache_tools",
        description="Look into the directory of compiled programs, and tidy it up.",
        epilog="Without DIR, it is the user's cache directory.",
    )
    parser.add_argument("--version", action="version", version=f"jitdelegate {jitdelegate.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Command, text: str, *places: str, notes: str = "") -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}. {notes}".rstrip())
        sub.set_defaults(command=command)
        sub.add_argument("--json", action="store_true", help="print JSON")
        for number, place in enumerate(places):
            optional = place.startswith("[")
            sub.add_argument(f"path{number}", metavar=place.strip("[]"), nargs="?" if optional else None)
        return sub

    add("ls", _list, "list the entries with model, target, size, age and last use", "[DIR]", notes=USED)
    add("show", _show, "print everything that one entry says", "ENTRY")
    add("verify", _verify, "check every byte", "[DIR|ENTRY]")
    add("explain", _explain, "name the key parts in which two entries differ", "ENTRY", "OTHER")
    add("stats", _stats, "count entries, models and bytes", "[DIR]")
    sub = add("rm", _remove, "remove entries, and those that borrow weights from them", notes=IN_USE)
    sub.add_argument("names", nargs="*", metavar="NAME", help=NAMED)
    sub.add_argument("--dir", metavar="DIR")
    sub.add_argument("--all", action="store_true", help="remove all entries")
    sub.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    sub = add("prune", _prune, "remove what was not used for long, or is too much", "[DIR]", notes=f"{IN_USE} {USED}")
    sub.add_argument("--max-size", type=size, metavar="SIZE", help="keep the most recently used in 500M, 2G ...")
    sub.add_argument("--max-age", type=age, metavar="AGE", help="remove what was not used for 30d, 12h ...")
    sub.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    add("repair", _repair, "check every byte, and remove bad entries and leftovers", "[DIR]", notes=IN_USE)
    sub = add("export", _export, "write entries to a tar file", "FILE")
    sub.add_argument("names", nargs="*", metavar="NAME", help="as of rm (default: all)")
    sub.add_argument("--dir", metavar="DIR")
    add("import", _import, "store the entries of a tar file, which are machine code: trust it", "FILE", "[DIR]")
    return parser


def _list(arguments: argparse.Namespace) -> int:
    entries = open_entries(arguments.path0)
    tables = _tables(arguments.path0)
    kept: list[Kept] = [*entries, *tables]
    shown = [each.summary() for each in kept]
    _print(arguments, shown, lambda: [*([_table(entries)] if entries else []), *(table.line() for table in tables)])
    return _status(kept)


def _tables(path: str | None) -> list[Table]:
    """The tables of a directory; none where the path is that of an entry."""
    return open_tables(path) if path is None or os.path.isdir(path) else []


def _table(entries: Sequence[Entry]) -> str:
    from jitdelegate.tables import table

    return table(HEADINGS, list(map(row, entries)), RIGHT)


def _show(arguments: argparse.Namespace) -> int:
    folder, name = os.path.split(arguments.path0)
    for table in open_tables(folder or ("." if os.path.lexists(name) else None), [name]):
        _print(arguments, table.details(), table.page)
        return _status([table])
    (entry,) = _one(arguments.path0)
    _print(arguments, entry.details(), lambda: page(entry))
    return _status([entry])


def _verify(arguments: argparse.Namespace) -> int:
    entries: list[Kept] = [*open_entries(arguments.path0, verify=True), *_tables(arguments.path0)]
    found = [{"name": entry.name, "good": not entry.trouble, "trouble": entry.trouble} for entry in entries]
    _print(arguments, found, lambda: (f"{entry.name}  {entry.trouble or 'good'}" for entry in entries))
    return _status(entries)


def _explain(arguments: argparse.Namespace) -> int:
    entries = _one(arguments.path0) + _one(arguments.path1)
    for entry in entries:
        if entry.trouble:
            print(f"{entry.name}: {entry.trouble}", file=sys.stderr)
    if _status(entries):
        return BAD
    first, second = (dict(entry.program.key) if entry.program else {} for entry in entries)
    names = [name for name in {**first, **second} if first.get(name) != second.get(name)]
    found = [{"part": name, "found": [first.get(name), second.get(name)]} for name in names]
    lines = [f"{name}: {first.get(name)} | {second.get(name)}" for name in names]
    _print(arguments, found, lambda: lines or ["no part differs"])
    return GOOD


def _stats(arguments: argparse.Namespace) -> int:
    entries = open_entries(arguments.path0)
    known = statistics(entries)
    _print(arguments, known, lambda: statistics_lines(known))
    return _status(entries)


def _remove(arguments: argparse.Namespace) -> int:
    if bool(arguments.names) == arguments.all:
        print("expected names of entries or models, or --all", file=sys.stderr)
        return WRONG_ARGUMENTS
    entries = open_entries(arguments.dir)
    tables = open_tables(arguments.dir, None if arguments.all else [os.path.basename(each) for each in arguments.names])
    known = {table.name for table in tables}
    chosen, unknown = matching(entries, [each for each in arguments.names if os.path.basename(each) not in known])
    for name in unknown:
        print(f"there is no entry of {name!r}", file=sys.stderr)
    chosen = entries if arguments.all else with_borrowers(chosen, entries)
    _take_away(arguments, [*chosen, *tables], arguments.dir)
    return BAD if unknown else GOOD


def _prune(arguments: argparse.Namespace) -> int:
    if arguments.max_size is None and arguments.max_age is None:
        print("expected --max-size, --max-age, or both", file=sys.stderr)
        return WRONG_ARGUMENTS
    oldest = None if arguments.max_age is None else time.time() - arguments.max_age
    chosen = surplus(open_entries(arguments.path0), most_bytes=arguments.max_size, oldest=oldest)
    tables = [each for each in _tables(arguments.path0) if oldest is not None and each.written < oldest]
    _take_away(arguments, [*chosen, *tables], arguments.path0)
    return GOOD


def _repair(arguments: argparse.Namespace) -> int:
    arguments.dry_run = False
    kept: list[Kept] = [*open_entries(arguments.path0, verify=True), *_tables(arguments.path0)]
    place = open_directory(arguments.path0)
    if place is not None:
        for name in leftovers(place):
            place.remove(name)
    _take_away(arguments, [each for each in kept if each.trouble], arguments.path0)
    return GOOD


def _take_away(arguments: argparse.Namespace, chosen: Sequence[Kept], path: str | None) -> None:
    """Remove entries and tables, and say so."""
    place = open_directory(path)
    if place is not None and not arguments.dry_run:
        for entry in chosen:
            place.remove(entry.name)
    word = "would be removed" if arguments.dry_run else "removed"
    total = short_size(sum(entry.size for entry in chosen))
    lines = [f"{entry.name}  {entry.trouble or short_size(entry.size)}" for entry in chosen]
    noun = "entry" if len(chosen) == 1 else "entries"
    _print(arguments, [entry.summary() for entry in chosen], lambda: [*lines, f"{len(chosen)} {noun} {word}, {total}"])


def _export(arguments: argparse.Namespace) -> int:
    from cache_tools.archive import export_entries

    entries, place = open_entries(arguments.dir), open_directory(arguments.dir)
    chosen, unknown = matching(entries, arguments.names) if arguments.names else (entries, [])
    needed = {name for entry in chosen for name in entry.lenders}
    chosen += [entry for entry in entries if entry.name in needed and entry not in chosen]
    good = [entry for entry in chosen if not entry.trouble]
    for name in unknown:
        print(f"there is no entry of {name!r}", file=sys.stderr)
    if unknown or place is None or not good:
        print("there is nothing to export", file=sys.stderr)
        return BAD
    export_entries(good, place, arguments.path0)
    line = f"{len(good)} entries in {arguments.path0}, {short_size(sum(entry.size for entry in good))}"
    _print(arguments, [entry.summary() for entry in good], lambda: [line])
    return GOOD


def _import(arguments: argparse.Namespace) -> int:
    from cache_tools.archive import import_entries

    entries = import_entries(arguments.path0, open_place(arguments.path1))
    lines = [f"{entry.name}  {entry.trouble or 'imported'}" for entry in entries]
    _print(arguments, [entry.summary() for entry in entries], lambda: lines or ["all entries are there already"])
    return _status(entries)


def _one(path: str) -> list[Entry]:
    """The entry at a path; else that of the user's cache directory with this name."""
    if os.path.lexists(path):
        entries = open_entries(path)
    else:
        entries, _ = matching(open_entries(None), [path])
    if len(entries) != 1:
        raise FileNotFoundError(f"{path} means {len(entries)} entries, expected one")
    return entries


def _status(entries: Sequence[Kept]) -> int:
    return BAD if any(entry.trouble for entry in entries) else GOOD


def _print(arguments: argparse.Namespace, data: Any, lines: Callable[[], Iterable[str]]) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    try:
        for line in [json.dumps(data)] if arguments.json else lines():
            print(line.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:  # who reads has seen enough; what is left in the buffer goes nowhere when Python ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
