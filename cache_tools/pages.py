"""What the commands say about entries."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from cache_tools.amounts import short_age, short_size
from cache_tools.entries import Entry

SHOWN = 12
"""Digits of an entry's digest in a list; commands find it by them."""
HEADINGS = ("model", "target", "operators", "size", "age", "used", "entry")
RIGHT = (2, 3, 4, 5)


def row(entry: Entry) -> tuple[str, ...]:
    """One entry under HEADINGS; of one without a program, the trouble."""
    known, now = entry.summary(), time.time()
    times = (short_age(now - entry.written), short_age(now - entry.used)) if entry.stamp else ("", "")
    if entry.program is None:
        return f"{entry.verdict}: {entry.trouble}", "", "", short_size(entry.size), *times, entry.digest[:SHOWN]
    failed = "(the compiler failed)" if entry.program.failure else ""
    where = " ".join(part for part in (known["target"], known["features"], failed) if part)
    called = known["model_name"] or known["token"] or known["model"]
    which = f"{called} ({entry.variant})" if entry.variant else called
    operators = f"{known['delegated']} of {known['operators']}"
    return which, where, operators, short_size(entry.size), *times, entry.digest[:SHOWN]


def page(entry: Entry) -> Iterable[str]:
    """Everything about one entry, in lines."""
    known = entry.details()
    if entry.program is None:
        yield f"{entry.name}  {entry.size} bytes  {entry.verdict}: {entry.trouble}"
        return
    yield f"{entry.name}  {entry.size} bytes  {known['delegated']} of {known['operators_count']} operators compiled"
    named = {"model name": known["model_name"], "written": _date(entry.written), "last used": _date(entry.used)}
    named |= {"failure": known["failure"], "notes": "; ".join(known["notes"])}
    yield from _section("file", (f"{name}: {value}" for name, value in named.items() if value))
    yield from _section("key", (f"{name}: {value}" for name, value in known["key"].items()))
    for name in ("inputs", "outputs"):
        yield from _section(name, (f"{port['name']}: {port['dtype']}{port['shape']}" for port in known[name]))
    yield from _section("operators", map(_operator, known["operators"]))
    yield from _section("kernels", map(_kernel, known["kernels"]))
    if known["launches"]:
        yield from _section("launches", map(_launch, known["launches"]))
    yield from _section("segments", (f"{name}: {size} bytes" for name, size in known["segments"].items()))
    yield from _section("memory", (f"{name}: {size} bytes" for name, size in known["memory"].items()))


def statistics(entries: Sequence[Entry]) -> dict[str, Any]:
    """Numbers about a directory, as plain data."""
    good = [entry for entry in entries if entry.program is not None]
    targets: dict[str, dict[str, int]] = {}
    for entry in good:
        known = targets.setdefault(entry.target, {"entries": 0, "bytes": 0})
        known["entries"] += 1
        known["bytes"] += entry.size
    return {
        "entries": len(entries),
        "bad": sum(entry.verdict == "bad" for entry in entries),
        "unread": sum(entry.is_unread for entry in entries),
        "models": len({entry.fingerprint for entry in good}),
        "bytes": sum(entry.size for entry in entries),
        "oldest": min((entry.written for entry in entries if entry.stamp), default=None),
        "newest": max((entry.written for entry in entries if entry.stamp), default=None),
        "last_used": max((entry.used for entry in entries if entry.stamp), default=None),
        "targets": targets,
    }


def statistics_lines(known: dict[str, Any]) -> Iterable[str]:
    unread = f", {known['unread']} unread" if known["unread"] else ""
    yield f"entries    {known['entries']} of {known['models']} models, {known['bad']} of them bad{unread}"
    limit = f", the limit is {short_size(known['limit'])}" if known["limit"] is not None else ""
    yield f"size       {short_size(known['bytes'])}{limit}"
    for name, totals in known["targets"].items():
        yield f"           {name}: {totals['entries']} entries, {short_size(totals['bytes'])}"
    if known["oldest"] is not None:
        yield f"written    {_date(known['oldest'])} to {_date(known['newest'])}, last used {_date(known['last_used'])}"
    if known["counted_since"] is not None:
        kinds = ", ".join(f"{kind} {count}" for kind, count in known["misses"].items())
        misses = f"{sum(known['misses'].values())} misses" + (f" ({kinds})" if kinds else "")
        counted = f"{known['hits']} hits, {misses}, {known['evictions']} evictions"
        yield f"counted    {counted} since {_date(known['counted_since'])}"


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


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
