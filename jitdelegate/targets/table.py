"""The targets, a row each. A row's name is that of its folder here, of `Options.target` and of `Program.target`."""

from __future__ import annotations

AUTO = "auto"


class Row:
    """What is known of a target before its folder is loaded: most machines need but one of them.

    Attributes:
        automatic: whether "auto" may choose it.
        device_files: how names in DEVICES begin where the machine may have a device of it; () where every machine has.
        absent: what is told where none of these is there.
    """

    __slots__ = ("absent", "automatic", "device_files")

    def __init__(self, *, automatic: bool = False, device_files: tuple[str, ...] = (), absent: str = "") -> None:
        self.automatic = automatic
        self.device_files = device_files
        self.absent = absent


DEVICES = "/dev"
ROWS = {
    # nvidia0, nvmap and nvhost-... on Tegra, dxg in WSL
    "cuda": Row(automatic=True, device_files=("nv", "dxg"), absent="a GPU: no NVIDIA device was found in /dev"),
    "cpu": Row(automatic=True),
    "reference": Row(),
    "litert": Row(),
}
"""In the order in which "auto" tries them."""
NAMES = (AUTO, *sorted(ROWS))
