"""Which memory one run uses: the caller's on the GPU as far as possible, else the session's own, with copies."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jitdelegate.program.program import Program

    Copy = tuple[int, int, int]
    """Target, source, bytes."""

KERNEL_ALIGNMENT = 16
"""Kernels access this many bytes at a time."""


class Route:
    """The memory of one run. Runs of equal routes are the same work for the GPU.

    Attributes:
        regions: offset of inputs and outputs, as in the program, to the address on the GPU that kernels use.
        uploads, downloads: copies from pinned memory before the run, and to it afterwards.
        before, after: copies within the GPU before and after the run.
        key: all of this, to compare.
    """

    __slots__ = ("after", "before", "downloads", "key", "regions", "uploads")

    def __init__(
        self, program: Program, pinned: Sequence[int], device: Sequence[int], own: Callable[[int], int]
    ) -> None:
        """
        Args:
            pinned: for each input, then each output, its address in pinned memory of the host; 0 if it is on the GPU.
            device: its address on the GPU; 0 if it is on the host. A negative one is not to be used during the run.
            own: offset of inputs and outputs to memory of the session.
        """
        count = len(program.inputs)
        ports = (*program.inputs, *program.outputs)
        offsets = program.input_offsets[:count] + program.output_offsets[: len(program.outputs)]
        # launches write to their first argument; an input's memory is written to where it is updated in place
        changed = {launch.values[0] for launch in program.launches if launch.kinds.startswith("p")}
        changed.update(offsets[count:])
        self.regions: dict[int, int] = {}
        for position in (*range(count, len(ports)), *range(count)):
            address, offset = device[position], offsets[position]
            if address > 0 and not address % KERNEL_ALIGNMENT and (position >= count or offset not in changed):
                self.regions.setdefault(offset, address)
        for offset in offsets:
            if offset not in self.regions:
                self.regions[offset] = own(offset)
        self.uploads: list[Copy] = []
        self.before: list[Copy] = []
        self.after: list[Copy] = []
        self.downloads: list[Copy] = []
        for position, port in enumerate(ports):
            region, address = self.regions[offsets[position]], abs(device[position])
            if not port.nbytes or address == region:
                continue
            if position < count:
                copies, copy = (self.before, (region, address, port.nbytes))
                if not address:
                    copies, copy = self.uploads, (region, pinned[position], port.nbytes)
            else:
                copies, copy = (self.after, (address, region, port.nbytes))
                if not address:
                    copies, copy = self.downloads, (pinned[position], region, port.nbytes)
            copies.append(copy)
        lists = (self.uploads, self.before, self.after, self.downloads)
        self.key = (*self.regions.items(), *map(tuple, lists))
