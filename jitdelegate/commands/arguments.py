"""Arguments that commands share, for argparse."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jitdelegate
from jitdelegate.base.option_texts import thread_count
from jitdelegate.base.options import file_keywords
from jitdelegate.base.tables import printable
from jitdelegate.base.targets import NAMES
from jitdelegate.errors import OptionError
from jitdelegate.targets import parse_target
from jitdelegate.targets.target import Device

Value = TypeVar("Value")
TARGETS = ", ".join(NAMES)


class Target(NamedTuple):
    """The value of --target. The name is None for the options' target; this machine may lack the devices."""

    name: str | None = None
    devices: tuple[Device, ...] = ()


def new_parser(module: str, description: str | None) -> argparse.ArgumentParser:
    """The parser of `python -m <module>`, or of the script that calls it, with --version."""
    called = os.path.basename(sys.argv[0])
    parser = argparse.ArgumentParser(
        prog=called if called.startswith("jitdelegate-") else f"python -m {module}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"jitdelegate {jitdelegate.__version__}")
    return parser


def target(text: str) -> Target:
    """The value of --target."""
    return Target(*_checked(parse_target, text))


def options_file(text: str) -> dict[str, Any]:
    """The value of --options."""
    return _checked(file_keywords, text)


def threads(text: str) -> int:
    """The value of --threads."""
    return _checked(thread_count, text)


def directory(text: str) -> str:
    """The name of a directory, which may not exist yet."""
    if not text:
        raise argparse.ArgumentTypeError("it is '', expected a directory")
    return text


def _checked(check: Callable[[str], Value], text: str) -> Value:
    try:
        return check(text)
    except OptionError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def write_file(path: str, content: str | bytes) -> None:
    """Write a file; text in UTF-8.

    Raises:
        OSError: it cannot be written; the error has the file's name.
    """
    data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    try:
        with open(path, "wb") as file:
            file.write(data)
    except OSError as error:
        error.filename = path  # `write` and `close` do not name it
        raise


_LAYOUT = "\n\t"


def complain(text: str) -> None:
    """Print to stderr; control characters that a model brought along are escaped."""
    print(printable(text, _LAYOUT), file=sys.stderr)


def print_line(text: str, *, is_safe: bool = False) -> None:
    """Print to stdout, in the characters that it accepts; a closed pipe is no error.

    Args:
        is_safe: the text is for terminals, as that of a table; else control characters are escaped.
    """
    encoding = sys.stdout.encoding or "utf-8"
    text = text if is_safe else printable(text, _LAYOUT)
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
