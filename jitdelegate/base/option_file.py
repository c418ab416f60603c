"""Options in a JSON or TOML file: a table from names to values, alone or among other tables."""

from __future__ import annotations

import os

from jitdelegate.errors import OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TABLES = ("jitdelegate", "gpu_options")
"""Names of the options' table in a file with other tables; the second is LiteRT's own."""
LARGEST_FILE = 1 << 20
"""Largest file in bytes; options take some hundred."""


def read_table(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The options in a file; names and values are not checked.

    Raises:
        OptionError: the file cannot be read, is neither JSON nor TOML, or has no single table of options.
    """
    name = os.fsdecode(path)
    try:
        return _table(_parse(os.path.splitext(name)[1].lower(), _content(name)))
    except OptionError as error:
        raise OptionError(f"{name}: {error}") from error


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:  # a path with a null character
        reason = getattr(error, "strerror", None) or str(error)
        raise OptionError(f"the file of options cannot be read: {reason}") from error
    if len(content) > LARGEST_FILE:
        raise OptionError(f"the file of options is longer than the expected {LARGEST_FILE} bytes")
    return content


def _parse(suffix: str, content: bytes) -> object:
    """The content of a file, parsed by its suffix."""
    if suffix not in (".json", ".toml"):
        raise OptionError(f"the suffix of a file of options is {suffix!r}, expected .json or .toml")
    try:
        return _parse_json(content) if suffix == ".json" else _parse_toml(content)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"it cannot be parsed as {suffix[1:].upper()}: {error}") from error


def _parse_json(content: bytes) -> object:
    import json

    return json.loads(content, object_pairs_hook=_without_doubles)


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object without duplicate names, which TOML refuses itself."""
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is defined twice")
    return table


def _parse_toml(content: bytes) -> object:
    import tomllib

    return tomllib.loads(content.decode("utf-8"))


def _table(parsed: object) -> dict[str, Any]:
    """The table of options: one named in TABLES, else the whole file."""
    if not isinstance(parsed, dict):
        raise OptionError(f"the file of options holds a {type(parsed).__name__}, expected a table from names to values")
    named = [name for name in TABLES if isinstance(parsed.get(name), dict)]
    if not named:
        return parsed
    beside = [name for name, value in parsed.items() if name not in named[:1] and not _is_other_table(name, value)]
    if beside:
        raise OptionError(f"beside the table {named[0]} there is {beside[0]}, expected all options in one table")
    found: dict[str, Any] = parsed[named[0]]
    return found


def _is_other_table(name: str, value: object) -> bool:
    """Whether this is a table with settings of something else."""
    return isinstance(value, dict) and name not in TABLES
