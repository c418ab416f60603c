"""Flags in benchmark_model's spellings and others: `--num_runs=50`, `--num-runs 50`, `--use_gpu=true`, `--use_gpu`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import pairwise

TRUTHS = {"true": True, "1": True, "false": False, "0": False}


def add_truth(parser: argparse._ActionsContainer, name: str, help: str, usual: str = "false") -> None:
    """A flag that may have a value, true or false; None where it is not given, which means `usual`."""
    parser.add_argument(name, type=_truth, metavar="BOOL", help=f"{help} (default: {usual})")


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


def parse(parser: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
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
