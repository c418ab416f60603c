"""The table of targets. A row's name is the folder's name, and the value of the option and of `Program.target`."""

from __future__ import annotations

AUTO = "auto"
CPU, GPU, NPU = 1, 2, 4
"""LiteRT's flags of hardware."""


class Row:
    """Facts about a target before its folder is loaded: most machines need only one target.

    Attributes:
        automatic: whether "auto" may choose it.
        device_files: names in DEVICES, one of which exists if the machine may have a device; () if every machine has
            one.
        absent: sentence for the report if none exists.
    """

    __slots__ = ("absent", "automatic", "device_files")

    def __init__(self, *, automatic: bool = False, device_files: tuple[str, ...] = (), absent: str = "") -> None:
        self.automatic = automatic
        self.device_files = device_files
        self.absent = absent

    @property
    def hardware(self) -> int:
        """CPU or GPU."""
        return GPU if self.device_files else CPU


DEVICES = "/dev"
ROWS = {
    # the driver's, on Tegra, in WSL
    "cuda": Row(
        automatic=True, device_files=("nvidiactl", "nvmap", "dxg"), absent="a GPU: no NVIDIA device was found in /dev"
    ),
    "cpu": Row(automatic=True),
    "litert": Row(automatic=True),
    "reference": Row(),
}
"""In the order in which "auto" tries them, until one runs on this machine's CPU."""
NAMES = (AUTO, *sorted(ROWS))
