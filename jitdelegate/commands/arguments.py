"""Arguments that commands share, for argparse, and files that they write.

Flags of the commands in the manner of benchmark_model may be written as `--num_runs=50`, `--num-runs 50`,
`--use_gpu=true` and `--use_gpu`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import jitdelegate
from jitdelegate.base.options import LONGEST_NUMBER, MOST_THREADS, file_keywords
from jitdelegate.base.targets import NAMES
from jitdelegate.errors import OptionError
from jitdelegate.targets import parse_target, parse_targets
from jitdelegate.targets.target import Device

Value = TypeVar("Value")
TARGETS = ", ".join(NAMES)
TRUTHS = {"true": True, "1": True, "false": False, "0": False}


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


def targets(text: str) -> list[Target]:
    """The value of a --target that takes several."""
    return [Target(*each) for each in _checked(lambda given: list(parse_targets(given)), text)]


def options_file(text: str) -> dict[str, Any]:
    """The value of --options."""
    return _checked(file_keywords, text)


def threads(text: str) -> int:
    """The value of --threads."""
    if not text.isdecimal() or len(text) > LONGEST_NUMBER or not 1 <= int(text) <= MOST_THREADS:
        raise argparse.ArgumentTypeError(
            f"num_threads is {text[:20]!r}, expected a whole number from 1 to {MOST_THREADS}"
        )
    return int(text)


def add_target(parser: argparse._ActionsContainer, more: str = "", kind: Callable[[str], Target] = target) -> None:
    """--target; `more` says what else it takes than names of targets."""
    parser.add_argument("--target", type=kind, default=Target(), metavar="T", help=f"{TARGETS}{more} (default: auto)")


def add_options_file(parser: argparse._ActionsContainer, help: str) -> None:
    """--options."""
    parser.add_argument("--options", type=options_file, default={}, metavar="FILE", help=help)


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


def add_truth(parser: argparse._ActionsContainer, name: str, help: str | None, usual: str = "false") -> None:
    """A flag that may have a value, true or false; None where it is not given, which means `usual`.

    Args:
        help: None hides the flag.
    """
    told = argparse.SUPPRESS if help is None else f"{help} (default: {usual})"
    parser.add_argument(name, type=_truth, metavar="BOOL", help=told)


def add_number(parser: argparse._ActionsContainer, name: str, default: float, help: str) -> None:
    """A flag with a number of the default's type; negative only where the default is."""

    def kind(text: str) -> float:
        number = type(default)(text)
        if default >= 0 and not number >= 0:  # nor what is no number
            raise argparse.ArgumentTypeError(f"it is {text}, expected no negative number")
        return number

    kind.__name__ = type(default).__name__  # argparse's word for what is no number
    parser.add_argument(name, type=kind, default=default, metavar="N", help=f"{help} (default: {default:g})")


def _truth(text: str) -> bool:
    try:
        return TRUTHS[text.lower()]
    except KeyError:
        raise argparse.ArgumentTypeError(f"it is {text!r}, expected true or false") from None


def parse_flags(parser: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    """The arguments; hyphens in the names of flags count as underscores, and flags of `add_truth` need no value."""
    truths = {name for action in parser._actions if action.type is _truth for name in action.option_strings}
    given = [_underscored(text) for text in argv]
    return parser.parse_args(
        [
            f"{text}=true" if text in truths and after.lower() not in TRUTHS else text
            for text, after in pairwise([*given, ""])
        ]
    )


def _underscored(text: str) -> str:
    name, equals, value = text.partition("=")
    return name[:2] + name[2:].replace("-", "_") + equals + value if text.startswith("--") else text


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
