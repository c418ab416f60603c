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
from cache_tools.amounts import age, short_size, size, version
from cache_tools.entries import Entry, Kept, open_directory, open_entries
from cache_tools.pages import HEADINGS, RIGHT, page, row, statistics, statistics_lines
from cache_tools.removal import matching, remove, surplus, with_dependents
from cache_tools.tables import Table, open_tables
from jitdelegate.base.exit_status import FAILED, GOOD, WRONG_ARGUMENTS, status_of
from jitdelegate.base.tables import print_line, printable, table
from jitdelegate.errors import CacheError, JitDelegateError
from jitdelegate.runtime.cache.directory import CacheDirectory, open_cache_directory
from jitdelegate.runtime.cache.key import SUFFIX
from jitdelegate.runtime.cache.litter import sweep
from jitdelegate.runtime.cache.statistics import cache_stats

Command = Callable[[argparse.Namespace], int]
NAMED = "an entry as ls or a path names it, a fingerprint, a token, or a model's file name"
USED = (
    "Processes write down the last use as they end; of those that are killed, the file system's access times tell, "
    "which many update once a day."
)
IN_USE = "Processes that run a removed program keep it until they end; the next start compiles it again."


def run(argv: list[str] | None) -> int:
    """Exit status: 0 all is well, 1 an entry is bad or unread, or something was not done, 2 wrong arguments."""
    try:
        arguments = _parser().parse_args(argv)
    except SystemExit as end:  # argparse has printed why
        return WRONG_ARGUMENTS if end.code else GOOD
    command: Command = arguments.command
    try:
        return command(arguments)
    except (JitDelegateError, OSError, MemoryError) as error:
        if isinstance(error, OSError) and error.filename and error.strerror:
            _complain(f"could not open {error.filename}: {error.strerror}")
        else:
            _complain(str(error) or "there is no memory for it")
        cause = error.__cause__ if isinstance(error, CacheError) else error
        return status_of(error) if isinstance(cause, (OSError, MemoryError)) else WRONG_ARGUMENTS


def _parser() -> argparse.ArgumentParser:
    called = os.path.basename(sys.argv[0])
    parser = argparse.ArgumentParser(
        prog=called if called.startswith("jitdelegate-") else "python -m cache_tools",
        description="Look into the directory of compiled programs, and tidy it up.",
        epilog="Without --dir, it is the user's cache directory.",
    )
    parser.add_argument("--version", action="version", version=f"jitdelegate {jitdelegate.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Command, text: str, *paths: str, notes: str = "") -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}. {notes}".rstrip())
        sub.set_defaults(command=command, argument=None)
        sub.add_argument("--json", action="store_true", help="print JSON")
        sub.add_argument("--dir", metavar="DIR", help="the directory (default: the user's cache directory)")
        for number, shown in enumerate(paths):
            sub.add_argument(f"path{number}", metavar=shown)
        return sub

    def add_on_directory(name: str, command: Command, *texts: str, notes: str = "") -> argparse.ArgumentParser:
        sub = add(name, command, *texts, notes=notes)
        sub.add_argument("argument", nargs="?", help=argparse.SUPPRESS)  # the directory without --dir, as once
        return sub

    text = "list the entries with model, target, size, age and last use"
    add_on_directory("ls", _list, text, notes=f"{USED} `ls FILE` lists those of a tar file, and says who signed it.")
    add("show", _show, "print everything that one entry says", "ENTRY")
    sub = add("verify", _verify, "check every byte of all entries, or of one")
    sub.add_argument("argument", nargs="?", metavar="ENTRY", help=NAMED)
    add("explain", _explain, "name the key parts in which two entries differ", "ENTRY", "OTHER")
    add_on_directory("stats", _stats, "count entries, models, bytes, hits and misses")
    sub = add("rm", _remove, "remove entries, and those that share their weights", notes=IN_USE)
    sub.add_argument("names", nargs="*", metavar="NAME", help=NAMED)
    sub.add_argument("--all", action="store_true", help="remove all entries")
    sub.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    notes = f"{IN_USE} {USED}"
    sub = add_on_directory("prune", _prune, "remove what was not used for long, or is too much", notes=notes)
    sub.add_argument("--max-size", type=size, metavar="SIZE", help="keep the most recently used in 500M, 2G ...")
    sub.add_argument("--max-age", type=age, metavar="AGE", help="remove what was not used for 30d, 12h ...")
    sub.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    text = "check every byte, and remove bad entries and leftovers"
    add_on_directory("repair", _repair, text, notes=f"{IN_USE} What cannot be read now stays.")
    sub = add("export", _export, "write entries to a tar file", "FILE")
    sub.add_argument("names", nargs="*", metavar="NAME", help="as of rm (default: all)")
    sub.add_argument("--sign", metavar="KEY", help="sign them: a private Ed25519 key, as PEM or of OpenSSH")
    text = "of the signed file (default: the time of the newest entry, in seconds since 1970)"
    sub.add_argument("--bundle-version", type=version, metavar="NUMBER", help=text)
    sub = add("push", _push, "write signed entries to a remote, where the option `remote` finds them", "URL")
    sub.add_argument("names", nargs="*", metavar="NAME", help="as of rm (default: all)")
    sub.add_argument("--sign", metavar="KEY", required=True, help="as of export")
    text = "store the entries of a tar file, which are machine code: trust it"
    sub = add_on_directory("import", _import, text, "FILE")
    sub.add_argument("--verify", metavar="KEY", help="only what the owner of this public Ed25519 key signed")
    text = "with --verify: also an older version than what was imported before"
    sub.add_argument("--allow-downgrade", action="store_true", help=text)
    return parser


def _directory(arguments: argparse.Namespace) -> str | None:
    """The directory that a command is about.

    Raises:
        CacheError: two are named.
    """
    named: list[str] = [folder for folder in (arguments.dir, arguments.argument) if folder is not None]
    if len(named) > 1:
        raise CacheError(f"two directories are named, {named[0]} and {named[1]}, expected one")
    return named[0] if named else None


def _list(arguments: argparse.Namespace) -> int:
    path = _directory(arguments)
    if path is not None and os.path.isfile(path) and not path.endswith(SUFFIX):
        return _list_archive(arguments, path)
    entries, tables = open_entries(path), _tables(path)
    kept: list[Kept] = [*entries, *tables]
    _print(
        arguments,
        [file.summary() for file in kept],
        lambda: [table.line() for table in tables],
        list(map(row, entries)),
    )
    return _status(kept)


def _list_archive(arguments: argparse.Namespace, path: str) -> int:
    from cache_tools.packed import Archive

    archive = Archive(path)
    _print(arguments, archive.summary(), archive.lines, list(map(row, archive.entries)))
    return _status(archive.entries)


def _tables(path: str | None) -> list[Table]:
    """The tables of a directory; none where the path is that of an entry."""
    return open_tables(path) if path is None or os.path.isdir(path) else []


def _show(arguments: argparse.Namespace) -> int:
    folder, name = os.path.split(arguments.path0)
    folder = folder or arguments.dir or ("." if os.path.lexists(name) else None)
    for measured in open_tables(folder, [name]):
        _print(arguments, measured.details(), measured.page)
        return _status([measured])
    entry = _one(arguments, arguments.path0)
    _print(arguments, entry.details(), lambda: page(entry))
    return _status([entry])


def _verify(arguments: argparse.Namespace) -> int:
    kept: list[Kept]
    if arguments.argument is None or os.path.isdir(arguments.argument):
        path = _directory(arguments)
        kept = [*open_entries(path, verify=True), *_tables(path)]
    else:
        kept = [*_named(arguments, arguments.argument, verify=True)]
    data = [
        {"name": file.name, "good": not file.trouble, "trouble": file.trouble, "verdict": file.verdict} for file in kept
    ]
    _print(arguments, data, lambda: (f"{file.name}  {file.trouble or file.verdict}" for file in kept))
    return _status(kept)


def _explain(arguments: argparse.Namespace) -> int:
    entries = [_one(arguments, arguments.path0), _one(arguments, arguments.path1)]
    for entry in entries:
        if entry.trouble:
            _complain(f"{entry.name}: {entry.trouble}")
    if _status(entries):
        return FAILED
    first, second = (dict(entry.program.key) if entry.program else {} for entry in entries)
    names = [name for name in {**first, **second} if first.get(name) != second.get(name)]
    data = [{"part": name, "found": [first.get(name), second.get(name)]} for name in names]
    lines = [f"{name}: {first.get(name)} | {second.get(name)}" for name in names]
    _print(arguments, data, lambda: lines or ["no part differs"])
    return GOOD


def _stats(arguments: argparse.Namespace) -> int:
    path = _directory(arguments)
    entries = open_entries(path)
    known = cache_stats(path if path is None or os.path.isdir(path) else os.path.dirname(path) or ".")
    known |= statistics(entries)
    _print(arguments, known, lambda: statistics_lines(known))
    return _status(entries)


def _remove(arguments: argparse.Namespace) -> int:
    if bool(arguments.names) == arguments.all:
        _complain("expected names of entries or models, or --all")
        return WRONG_ARGUMENTS
    entries = open_entries(arguments.dir)
    tables = open_tables(arguments.dir, None if arguments.all else [os.path.basename(name) for name in arguments.names])
    known = {table.name for table in tables}
    chosen, unknown = matching(entries, [name for name in arguments.names if os.path.basename(name) not in known])
    for name in unknown:
        _complain(f"there is no entry of {name!r}")
    chosen = entries if arguments.all else with_dependents(chosen, entries)
    return max(_take_away(arguments, [*chosen, *tables]), WRONG_ARGUMENTS if unknown else GOOD)


def _prune(arguments: argparse.Namespace) -> int:
    if arguments.max_size is None and arguments.max_age is None:
        _complain("expected --max-size, --max-age, or both")
        return WRONG_ARGUMENTS
    oldest = None if arguments.max_age is None else time.time() - arguments.max_age
    entries, tables = open_entries(_directory(arguments)), _tables(_directory(arguments))
    chosen = surplus(entries, most_bytes=arguments.max_size, oldest=oldest)
    old = [table for table in tables if oldest is not None and table.stamp and table.written < oldest]
    kept: list[Kept] = [*entries, *tables]
    unknown = [file for file in kept if not file.stamp]
    return max(_take_away(arguments, [*chosen, *old]), _keep(unknown))


def _repair(arguments: argparse.Namespace) -> int:
    arguments.dry_run = False
    path = _directory(arguments)
    kept: list[Kept] = [*open_entries(path, verify=True), *_tables(path)]
    status, directory = GOOD, open_directory(path)
    for name, reason in sweep(directory).items() if directory else []:
        if reason:
            _complain(f"{name} is still there: {reason}")
            status = FAILED
    status = max(status, _take_away(arguments, [file for file in kept if file.verdict == "bad"]))
    return max(status, _keep([file for file in kept if file.is_unread]))


def _keep(unread: Sequence[Kept]) -> int:
    """Say of what could not be read that it stays."""
    for file in unread:
        _complain(f"{file.name} stays: {file.trouble}")
    return FAILED if unread else GOOD


def _take_away(arguments: argparse.Namespace, chosen: Sequence[Kept]) -> int:
    """Remove entries and tables, and say which are gone."""
    directory, reasons = open_directory(_directory(arguments)), dict[str, str]()
    if directory is not None and not arguments.dry_run:
        reasons = {file.name: reason for file in chosen if (reason := remove(directory, file))}
    for name, reason in reasons.items():
        _complain(f"{name} is still there: {reason}")
    gone = [file for file in chosen if file.name not in reasons]
    word = "would be removed" if arguments.dry_run else "removed"
    total = short_size(sum(file.size for file in gone))
    lines = [f"{file.name}  {file.trouble or short_size(file.size)}" for file in gone]
    noun = "entry" if len(gone) == 1 else "entries"
    data = [
        file.summary()
        | {"removed": file.name not in reasons and not arguments.dry_run, "reason": reasons.get(file.name, "")}
        for file in chosen
    ]
    _print(arguments, data, lambda: [*lines, f"{len(gone)} {noun} {word}, {total}"])
    return FAILED if reasons else GOOD


def _export(arguments: argparse.Namespace) -> int:
    from cache_tools.archive import export_entries
    from cache_tools.signer import read_signer

    if arguments.bundle_version is not None and not arguments.sign:
        _complain("--bundle-version is that of a signed file: expected --sign, too")
        return WRONG_ARGUMENTS
    signer = read_signer(arguments.sign) if arguments.sign else None
    good, bad, directory = _whole(arguments)
    if directory is None or not good:
        _complain("there is nothing to export")
        return FAILED
    export_entries(good, directory, arguments.path0, signer, arguments.bundle_version)
    line = f"{len(good)} entries in {arguments.path0}, {short_size(sum(entry.size for entry in good))}"
    _print(arguments, [entry.summary() for entry in good], lambda: [line])
    return _status(bad)


def _push(arguments: argparse.Namespace) -> int:
    from cache_tools.push import push_entries
    from cache_tools.signer import read_signer

    signer = read_signer(arguments.sign)
    good, bad, directory = _whole(arguments)
    if directory is None or not good:
        _complain("there is nothing to push")
        return FAILED
    try:
        pushed = push_entries(good, directory, arguments.path0, signer)
    except CacheError as error:
        _complain(str(error))
        return FAILED
    line = f"{len(pushed)} entries written, {len(good) - len(pushed)} were there"
    _print(arguments, [entry.summary() for entry in pushed], lambda: [line])
    return _status(bad)


def _whole(arguments: argparse.Namespace) -> tuple[list[Entry], list[Entry], CacheDirectory | None]:
    """The entries that are named, or all, with those whose weights they share: good ones, bad ones; the directory.

    Raises:
        CacheError: a name means none.
    """
    entries, directory = open_entries(arguments.dir), open_directory(arguments.dir)
    chosen, unknown = matching(entries, arguments.names) if arguments.names else (entries, [])
    if unknown:
        raise CacheError(f"there is no entry of {', '.join(map(repr, unknown))}")
    needed = {name for entry in chosen for name in entry.weight_sources}
    chosen += [entry for entry in entries if entry.name in needed and entry not in chosen]
    checked = [Entry(directory, entry.name, verify=True) for entry in chosen] if directory else []
    there = {entry.name for entry in checked}
    bad = with_dependents([one for one in checked if one.trouble or not there.issuperset(one.weight_sources)], checked)
    for entry in bad:
        entry.trouble = entry.trouble or "an entry that has a part of its weights is left out"
        _complain(f"{entry.name} is left out: {entry.trouble}")
    return [entry for entry in checked if entry not in bad], bad, directory


def _import(arguments: argparse.Namespace) -> int:
    from cache_tools.archive import import_entries
    from cache_tools.bundle import signer_of
    from jitdelegate.runtime.cache.public_key import read_public_key

    if arguments.allow_downgrade and not arguments.verify:
        _complain("--allow-downgrade is about signed versions: expected --verify, too")
        return WRONG_ARGUMENTS
    key = read_public_key(arguments.verify) if arguments.verify else None
    directory = open_cache_directory(_directory(arguments))
    try:
        entries = import_entries(arguments.path0, directory, key, allow_downgrade=arguments.allow_downgrade)
    except CacheError as error:
        _complain(str(error))
        return FAILED
    if key is None and (signer := signer_of(arguments.path0)):
        _complain(f"{arguments.path0} is signed by the key {signer}, which was not checked: --verify does")
    if _status(entries):
        lines = [*(f"{entry.name}  {entry.trouble}" for entry in entries if entry.trouble), "nothing was imported"]
    else:
        lines = [f"{entry.name}  imported" for entry in entries] or ["all entries are there already"]
    _print(arguments, [entry.summary() for entry in entries], lambda: lines)
    return _status(entries)


def _one(arguments: argparse.Namespace, name: str) -> Entry:
    """The entry that a path or a name means."""
    entries = _named(arguments, name)
    if len(entries) != 1:
        raise FileNotFoundError(f"{name} means {len(entries)} entries, expected one")
    return entries[0]


def _named(arguments: argparse.Namespace, name: str, *, verify: bool = False) -> list[Entry]:
    """The entries at a path; else those of the directory with this name.

    Raises:
        FileNotFoundError: there is none.
    """
    if os.path.lexists(name) and (os.path.dirname(name) or arguments.dir is None):
        return open_entries(name, verify=verify)
    meant, _ = matching(open_entries(arguments.dir), [name])
    if not meant:
        raise FileNotFoundError(f"{name} means 0 entries, expected one")
    return [verified for entry in meant for verified in open_entries(entry.path, verify=verify)] if verify else meant


def _status(entries: Sequence[Kept]) -> int:
    return FAILED if any(entry.trouble for entry in entries) else GOOD


def _print(
    arguments: argparse.Namespace,
    data: Any,
    lines: Callable[[], Iterable[str]],
    rows: Sequence[Sequence[str]] = (),
) -> None:
    """Print data as JSON, or a table and lines.

    Whatever a model or an archive said is in these: `printable`, here and in `table`, lets no control character out.

    Args:
        rows: of the table, under HEADINGS.
    """
    if arguments.json:
        print_line(json.dumps(data))
        return
    for text in [*([table(HEADINGS, rows, RIGHT)] if rows else []), *map(printable, lines())]:
        print_line(text, is_safe=True)


def _complain(text: str) -> None:
    print(printable(text), file=sys.stderr)
