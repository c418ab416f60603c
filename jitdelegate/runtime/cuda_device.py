"""A CUDA device: found, named, and told what code runs on it."""

from __future__ import annotations

from jitdelegate.errors import DeviceError
from jitdelegate.runtime.cuda_driver import Driver, declare

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ctypes import CDLL

ARCHITECTURES = ((7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0))
"""Capabilities that programs are compiled for."""
TEGRA = ((8, 7), (10, 1))
"""Capabilities that take no binaries of their neighbours: those are promised to run on desktop GPUs only."""
_EXACT, _FAMILY = "a", "f"


class Device:
    """One device of this machine.

    Attributes:
        driver: speaks to it.
        ordinal: its number among those that the process may see, from 0.
        handle: the driver's name for it.
        name: the maker's, such as "NVIDIA H200".
        capability: major and minor number of its architecture.
        architecture: the one of `ARCHITECTURES` whose code suits it best, as "sm_90".
    """

    __slots__ = ("architecture", "capability", "driver", "handle", "name", "ordinal")

    def __init__(self, driver: Driver, ordinal: int) -> None:
        """
        Raises:
            DeviceError: there is no such device, or code of no architecture runs on it.
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

    def _find_architecture(self) -> str:
        usable = [one for one in ARCHITECTURES if _runs(one, self.capability)]
        if not usable:
            known = ", ".join(map(_name, ARCHITECTURES))
            raise DeviceError(f"{self.name} is {_name(self.capability)}, but code is compiled for {known} only")
        return _name(usable[-1])

    def check(self, features: str) -> None:
        """
        Raises:
            DeviceError: code that was compiled for `features` does not run here.
        """
        if not runs(features, self.capability):
            raise DeviceError(
                f"the program was compiled for {features}, but {self.name} is {_name(self.capability)}; compile it anew"
            )


def find_device(library: CDLL, wanted: int | str = 0) -> Device:
    """The device with this number, or the first with this in its name, which code is compiled for.

    Args:
        library: what `cuda_library.open_library` gave.
        wanted: a number from 0, or a part of the maker's name in small or large letters.
    Raises:
        DeviceError: the driver is too old, there is no such device, or no code runs on it.
    """
    declare(library)
    driver = Driver(library)
    return Device(driver, _named(driver, wanted) if isinstance(wanted, str) else wanted)


def _named(driver: Driver, part: str) -> int:
    """The number of the first device with `part` in its name."""
    names = [driver.device_name(driver.device(ordinal)) for ordinal in range(driver.device_count())]
    for ordinal, name in enumerate(names):
        if part.casefold() in name.casefold():
            return ordinal
    there = f"the devices are named {', '.join(map(repr, names))}" if names else "there is no CUDA device"
    raise DeviceError(f"device is {part!r}, but {there}")


def runs(features: str, capability: tuple[int, int]) -> bool:
    """Whether a binary for `features` ("sm_86", "sm_90a", "sm_100f") runs on a device of this capability."""
    text = features.removeprefix("sm_")
    digits = text.rstrip(_EXACT + _FAMILY)
    if features == text or not (digits.isascii() and digits.isdecimal()) or not 2 <= len(digits) <= 3:
        return False
    compiled = int(digits[:-1]), int(digits[-1])
    return compiled == capability if text.endswith(_EXACT) else _runs(compiled, capability)


def _runs(compiled: tuple[int, int], capability: tuple[int, int]) -> bool:
    """Binaries run on devices of the same major number and the same or a higher minor one, but for Tegra."""
    if capability in TEGRA:
        return compiled == capability
    return compiled[0] == capability[0] and compiled[1] <= capability[1]


def _name(capability: tuple[int, int]) -> str:
    return f"sm_{capability[0]}{capability[1]}"
