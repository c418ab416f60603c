"""`python -m cache_tools`: look into the directory of compiled programs."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

from cache_tools.entries import Entry, open_entries
from jitdelegate.errors import JitDelegateError

GOOD, BAD, WRONG_ARGUMENTS = 0, 1, 2


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 all is well, 1 some entry is bad, 2 wrong arguments."""
    try:
        arguments = _parser().parse_args(argv)
    except SystemExit as end:  # argparse has printed why
        return WRONG_ARGUMENTS if end.code else GOOD
    command: Callable[[argparse.Namespace], int] = arguments.command
    try:
        return command(arguments)
    except (JitDelegateError, OSError) as error:
        print(error, file=sys.stderr)
        return WRONG_ARGUMENTS


def _parser() -> argparse.ArgumentParser:
    called = os.path.basename(sys.argv[0])
    parser = argparse.ArgumentParser(
        prog=called if called.startswith("jitdelegate-") else "python -m cache_tools",
        description="Look into the directory of compiled programs.",
    )
    commands = parser.add_subparsers(required=True)
    for name, command, places, text in (
        ("ls", _list, ("[DIR]",), "one line per entry"),
        ("show", _show, ("ENTRY",), "everything that one entry says"),
        ("verify", _verify, ("[DIR|ENTRY]",), "check every byte"),
        ("explain", _explain, ("ENTRY", "OTHER"), "the key parts in which two entries differ"),
    ):
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(command=command)
        sub.add_argument("--json", action="store_true", help="print JSON")
        for number, place in enumerate(places):
            optional = place.startswith("[")
            sub.add_argument(f"path{number}", metavar=place.strip("[]"), nargs="?" if optional else None)
    return parser


def _list(arguments: argparse.Namespace) -> int:
    entries = open_entries(arguments.path0)
    _print(arguments, [entry.summary() for entry in entries], map(_line, entries))
    return _status(entries)


def _show(arguments: argparse.Namespace) -> int:
    (entry,) = _one(arguments.path0)
    _print(arguments, entry.details(), _page(entry))
    return _status([entry])


def _verify(arguments: argparse.Namespace) -> int:
    entries = open_entries(arguments.path0, verify=True)
    found = [{"name": entry.name, "good": not entry.trouble, "trouble": entry.trouble} for entry in entries]
    _print(arguments, found, (f"{entry.name}  {entry.trouble or 'good'}" for entry in entries))
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
    lines = (f"{name}: {first.get(name)} | {second.get(name)}" for name in names)
    _print(arguments, found, lines if names else ["no part differs"])
    return GOOD


def _one(path: str) -> list[Entry]:
    entries = open_entries(path)
    if len(entries) != 1:
        raise FileNotFoundError(f"{path} holds {len(entries)} entries, expected the path of one")
    return entries


def _status(entries: list[Entry]) -> int:
    return BAD if any(entry.trouble for entry in entries) else GOOD


def _print(arguments: argparse.Namespace, data: Any, lines: Iterable[str]) -> None:
    try:
        for line in [json.dumps(data)] if arguments.json else lines:
            print(line)
        sys.stdout.flush()
    except BrokenPipeError:  # who reads has seen enough; what is left in the buffer goes nowhere when Python ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _line(entry: Entry) -> str:
    known = entry.summary()
    if entry.program is None:
        return f"{entry.name}  {entry.size} bytes  bad: {entry.trouble}"
    place = " ".join(part for part in (known["target"], known["features"]) if part)
    delegated = f"{known['delegated']} of {known['operators']} ops"
    return f"{entry.name}  {entry.size} bytes  {place}  {known['model']}  {delegated}"


def _page(entry: Entry) -> Iterable[str]:
    yield _line(entry)
    if entry.program is None:
        return
    known = entry.details()
    yield from _section("key", (f"{name}: {value}" for name, value in known["key"].items()))
    for name in ("inputs", "outputs"):
        yield from _section(name, (f"{port['name']}: {port['dtype']}{port['shape']}" for port in known[name]))
    yield from _section("operators", map(_operator, known["operators"]))
    yield from _section("kernels", map(_kernel, known["kernels"]))
    if known["launches"]:
        yield from _section("launches", map(_launch, known["launches"]))
    yield from _section("segments", (f"{name}: {size} bytes" for name, size in known["segments"].items()))
    yield from _section("memory", (f"{name}: {size} bytes" for name, size in known["memory"].items()))


def _section(title: str, lines: Iterable[str]) -> Iterable[str]:
    yield title
    for line in lines:
        yield f"  {line}"


def _kernel(known: dict[str, Any]) -> str:
    if not known["threads"]:
        return f"{known['name']}: {known['form']}, {known['chunks']} chunks"
    return (
        f"{known['name']}: {known['form']}, {known['chunks']} launches, {known['threads']} threads,"
        f" {known['registers']} registers, {known['spill_bytes']} bytes spilled, {known['stack_bytes']} bytes of stack,"
        f" {known['shared_bytes']} bytes shared"
    )


def _launch(known: dict[str, Any]) -> str:
    grid, block = ("x".join(map(str, known[name])) for name in ("grid", "block"))
    arguments = " ".join(f"{kind}{value}" for kind, value in zip(known["kinds"], known["values"], strict=True))
    return f"{known['kernel']}: grid {grid}, block {block}, {known['shared_bytes']} bytes shared: {arguments}"


def _operator(known: dict[str, Any]) -> str:
    kernel = f" in kernel {known['kernel']}" if known["kernel"] >= 0 else ""
    way = f", {known['execution']}" if known["execution"] else ""
    reason = f": {known['reason']}" if known["reason"] else ""
    return f"{known['index']:4} {known['op']:24} {known['place']}{kernel}{way}{reason}"


if __name__ == "__main__":
    sys.exit(main())
