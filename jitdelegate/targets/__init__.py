"""Targets compile lowered graphs to programs and run them; each target implements every kernel form once.

A target is one folder here, with one object, and one row of `jitdelegate/base/targets.py`. `target.py` has the protocol
through which the rest of the package uses a target.

Targets share `planning/` (where tensors lie and what one kernel computes) and `maths/` (scalar mathematics). A new form
takes a class in `ir/`, and for each target a row in the table of writers and the function that it names.
"""

from __future__ import annotations

import os

from jitdelegate.base.targets import AUTO, DEVICES, NAMES, ROWS
from jitdelegate.errors import DeviceError, OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from jitdelegate.base.options import DelegateOptions
    from jitdelegate.targets.target import Device, Target


def target_named(name: str) -> Target:
    """The target of this name in the table; imported on first use.

    Raises:
        DeviceError: its modules cannot be read.
    """
    try:
        found: Target = __import__(f"jitdelegate.targets.{name}.target", fromlist=["TARGET"]).TARGET
    except (ImportError, OSError) as error:
        raise DeviceError(f"the target {name!r} cannot be loaded: {error}") from error
    return found


def candidates(options: DelegateOptions, notes: list[str]) -> Iterator[Target]:
    """The targets that the options allow, in the order in which they are tried; each is imported then.

    Args:
        notes: receives one sentence per target that "auto" cannot use.
    Raises:
        DeviceError: the target that is asked for cannot be loaded.
    """
    if options.target != AUTO:
        yield target_named(options.target)
        return
    for row, each in ROWS.items():
        if not options.hardware_accelerators & each.hardware:
            continue
        if each.automatic and may_be_here(row):
            try:
                target = target_named(row)
            except DeviceError as error:
                notes.append(str(error))
            else:
                yield target
        elif each.automatic:
            notes.append(f"not on {each.absent}")


def may_be_here(name: str) -> bool:
    """Whether the machine may have a device of a target. This check is faster than trying to load a driver library."""
    files = ROWS[name].device_files
    return not files or any(os.path.lexists(f"{DEVICES}/{each}") for each in files) or not os.path.isdir(DEVICES)


def parse_target(text: str) -> tuple[str, tuple[Device, ...]]:
    """The target and devices of a text like "cuda:sm_80,sm_90:114"; no devices if the text means this machine's.

    Raises:
        OptionError: unknown target or device.
    """
    name, colon, devices = text.partition(":")
    if name not in NAMES or (colon and name == AUTO):
        forms = "cuda:ARCHITECTURES or cpu:INSTRUCTION_SETS"
        raise OptionError(f"target is {text!r}, expected one of {', '.join(NAMES)}, {forms}")
    return name, target_named(name).devices(devices) if colon else ()


def parse_targets(text: str) -> Iterator[tuple[str, tuple[Device, ...]]]:
    """As `parse_target`, of several targets: a comma comes before the name of a target, or before a device.

    Raises:
        OptionError: unknown target or device.
    """
    own = ""
    for part in text.split(","):
        is_device = own and part.partition(":")[0] not in NAMES
        if own and not is_device:
            yield parse_target(own)
        own = f"{own},{part}" if is_device else part
    yield parse_target(own)
