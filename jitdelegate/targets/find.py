"""Targets by the names of their rows."""

from __future__ import annotations

from jitdelegate.errors import OptionError
from jitdelegate.targets.table import AUTO, NAMES, ROWS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.targets.target import Device, Target


def target_named(name: str) -> Target:
    """The target of one row, imported when it is asked for: most machines need but one of them."""
    found: Target = __import__(f"jitdelegate.targets.{name}.target", fromlist=["TARGET"]).TARGET
    return found


def candidates(name: str) -> tuple[Target, ...]:
    """The targets that an option's value stands for, in the order in which they are tried."""
    return tuple(target_named(row) for row, automatic in ROWS.items() if row == name or (name == AUTO and automatic))


def parse_target(text: str) -> tuple[str, tuple[Device, ...]]:
    """The target in "cuda:sm_80,sm_90:114", and the devices that it names; none where this machine's is meant.

    Raises:
        OptionError: there is no such target, or it has no such devices.
    """
    name, colon, devices = text.partition(":")
    if name not in NAMES or (colon and name == AUTO):
        raise OptionError(f"target is {text!r}, expected one of {', '.join(NAMES)} or cuda:ARCHITECTURES")
    return name, target_named(name).devices(devices) if colon else ()
