"""A CUDA device: finds it, and knows which code runs on it."""

from __future__ import annotations

from jitdelegate.errors import DeviceError
from jitdelegate.runtime.cuda.architectures import (
    SIZES,
    is_portable,
    kind_of,
    name_of,
    portable_name_of,
    runs_binary,
)
from jitdelegate.runtime.cuda.driver import POINTER_DEVICE, Driver, declare, dotted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ctypes import CDLL

CURRENT_VERSION = 13000
"""Lowest CUDA version of a driver that the compilers of the extra "cuda" work with."""
_EXACT, _FAMILY = "a", "f"


class Device:
    """One device of this machine.

    Attributes:
        driver: the driver.
        ordinal: the device's number among those visible to the process, from 0.
        handle: the driver's handle.
        name: the manufacturer's name, such as "NVIDIA H200".
        capability: major and minor number of its architecture.
        architecture: the supported architecture whose code suits it best, as "sm_90"; "compute_90" if no binary runs on
            it.
        multiprocessors: number of multiprocessors, of the partition if the device is a MIG partition.
        kind: the kind of programs that suit it, as "sm_90:132".
    """

    __slots__ = ("architecture", "capability", "driver", "handle", "kind", "multiprocessors", "name", "ordinal")

    def __init__(self, driver: Driver, ordinal: int) -> None:
        """
        Raises:
            DeviceError: there is no such device, or no supported architecture's code runs on it.
        """
        count = driver.device_count()
        if ordinal >= count:
            there = f"there are devices 0 to {count - 1}" if count else "there is no CUDA device"
            raise DeviceError(f"device is {ordinal}, but {there}")
        self.driver = driver
        self.ordinal = ordinal
        self.handle = driver.device(ordinal)
        self.name = driver.device_name(self.handle)
        self.capability = driver.capability(self.handle)
        self.architecture = self._find_architecture()
        self.multiprocessors = driver.multiprocessors(self.handle)
        self.kind = kind_of(self.architecture, self.multiprocessors)

    def _find_architecture(self) -> str:
        usable = [one for one in SIZES if runs_binary(one, self.capability)]
        if usable:
            return name_of(usable[-1])
        portable = [one for one in SIZES if one <= self.capability]
        if portable:
            return portable_name_of(portable[-1])
        oldest = name_of(next(iter(SIZES)))
        raise DeviceError(
            f"{self.name} is {name_of(self.capability)}, but code is compiled for {oldest} and later only"
        )

    def check(self, features: str, toolkit: int) -> None:
        """
        Args:
            toolkit: major number of the CUDA toolkit that made the code, 0 if unknown.
        Raises:
            DeviceError: code that was compiled for `features` by that toolkit does not run here.
        """
        if not runs(features, self.capability):
            own = name_of(self.capability)
            raise DeviceError(f"the program was compiled for {features}, but {self.name} is {own}; compile it anew")
        trouble = self.toolkit_trouble(features, toolkit)
        if trouble:
            raise DeviceError(f"the program was compiled by CUDA {toolkit}, {trouble}")

    @property
    def extra(self) -> str:
        """The extra of this package that installs compilers for the driver."""
        return "cuda" if self.driver.version >= CURRENT_VERSION else "cuda12"

    def toolkit_trouble(self, architecture: str, toolkit: int) -> str:
        """Why the driver refuses code of a CUDA toolkit with this major number; "" if it does not.

        A driver loads binaries of its own and of lower major numbers, with any minor number. Source: CUDA
        Compatibility, "Minor Version Compatibility". PTX is written so that every driver of such a GPU reads it.
        """
        if is_portable(architecture) or toolkit <= self.driver.version // 1000:
            return ""
        return (
            f"which needs a driver for CUDA {toolkit}.0 or later, but this one speaks CUDA"
            f" {dotted(self.driver.version)}: update the driver, or install jitdelegate's extra {self.extra}"
        )


def find_device(library: CDLL, wanted: int | str = 0) -> Device:
    """The device with this number, or the first one with this part in its name.

    Args:
        library: libcuda, as `targets.cuda.target.open_library` returns it.
        wanted: a number from 0, or a part of the name in any case.
    Raises:
        DeviceError: the driver is too old, there is no such device, or no code runs on it.
    """
    declare(library)
    driver = Driver(library)
    return Device(driver, _named(driver, wanted) if isinstance(wanted, str) else wanted)


def find_device_at(library: CDLL, address: int) -> Device:
    """The device whose memory has this address, the first one if none does; raises the errors of `find_device`."""
    declare(library)
    driver = Driver(library)
    return Device(driver, driver.pointer_attribute(POINTER_DEVICE, address))


def _named(driver: Driver, part: str) -> int:
    """The number of the first device with `part` in its name."""
    names = [driver.device_name(driver.device(ordinal)) for ordinal in range(driver.device_count())]
    for ordinal, name in enumerate(names):
        if part.casefold() in name.casefold():
            return ordinal
    there = f"the devices are named {', '.join(map(repr, names))}" if names else "there is no CUDA device"
    raise DeviceError(f"device is {part!r}, but {there}")


def runs(features: str, capability: tuple[int, int]) -> bool:
    """Whether code for `features` ("sm_86", "sm_90a", "sm_100f", "compute_90") runs on a device of this capability."""
    if is_portable(features):
        return any(portable_name_of(one) == features and one <= capability for one in SIZES)
    text = features.removeprefix("sm_")
    digits = text.rstrip(_EXACT + _FAMILY)
    if features == text or not (digits.isascii() and digits.isdecimal()) or not 2 <= len(digits) <= 3:
        return False
    compiled = int(digits[:-1]), int(digits[-1])
    return compiled == capability if text.endswith(_EXACT) else runs_binary(compiled, capability)
