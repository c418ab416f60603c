"""Which memory one run uses: the caller's on the GPU as far as possible, else the session's own, with copies."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from jitdelegate.program.program import Launch, Program

    Copy = tuple[int, int, int]
    """Target, source, bytes."""

KERNEL_ALIGNMENT = 16
"""Kernels access this many bytes at a time."""
MOST_WRITTEN = 16 * 1024
"""Most bytes of an output that a kernel writes to the host's memory itself: a copy begins a microsecond or two later,
while a kernel's writes go at the bus's speed meanwhile."""
MOST_READ = 16 * 1024
"""Most bytes of an input that the blocks of a launch, all together, read from the host's memory themselves: a read
takes a microsecond more than one of the GPU's memory. Both are estimates."""


def region_of(offsets: Iterable[int], value: int) -> int:
    """The offset of the input or output in whose memory the offset `value` lies."""
    return max(offset for offset in offsets if offset <= value)


def port_offsets(program: Program) -> tuple[int, ...]:
    """The offsets of all inputs, then of all outputs."""
    return program.input_offsets[: len(program.inputs)] + program.output_offsets[: len(program.outputs)]


class Route:
    """The memory of one run. Runs of equal routes are the same work for the GPU.

    Kernels use small inputs and outputs in pinned memory of the host where they lie, if only one launch reads them, and
    no other tensor lies there.

    Attributes:
        regions: offset of inputs and outputs, as in the program, to the address on the GPU that kernels use.
        uploads, downloads: copies from pinned memory before the run, and to it afterwards.
        before, after: copies within the GPU before and after the run.
        key: all of this, to compare.
    """

    __slots__ = ("after", "before", "downloads", "key", "regions", "uploads")

    def __init__(
        self,
        program: Program,
        pinned: Sequence[int],
        device: Sequence[int],
        own: Callable[[int], int],
        mapped: Callable[[int], int],
    ) -> None:
        """
        Args:
            pinned: for each input, then each output, its address in pinned memory of the host; 0 if it is on the GPU.
            device: its address on the GPU; 0 if it is on the host. A negative one is not to be used during the run.
            own: offset of inputs and outputs to memory of the session.
            mapped: address in pinned memory to the one that kernels use for it; 0 if they cannot use it.
        """
        count = len(program.inputs)
        ports = (*program.inputs, *program.outputs)
        offsets = port_offsets(program)
        # of inputs, launches write only to their first argument, to update one in place
        written = (launch.values[0] for launch in program.launches if launch.kinds.startswith("p"))
        changed = {region_of(offsets, value) for value in written}
        changed.update(offsets[count:])
        self.regions: dict[int, int] = {}
        for position in (*range(count, len(ports)), *range(count)):
            address, offset = device[position], offsets[position]
            if address > 0 and not address % KERNEL_ALIGNMENT and (position >= count or offset not in changed):
                self.regions.setdefault(offset, address)
        near = set[int]()
        for position in _small_ports(program, offsets, changed):
            is_alone = pinned.count(pinned[position]) == 1  # else an output lies where an input is read
            address = mapped(pinned[position]) if pinned[position] and is_alone and not device[position] else 0
            if address and not address % KERNEL_ALIGNMENT:
                self.regions[offsets[position]] = address
                near.add(position)
        for offset in offsets:
            if offset not in self.regions:
                self.regions[offset] = own(offset)
        self.uploads: list[Copy] = []
        self.before: list[Copy] = []
        self.after: list[Copy] = []
        self.downloads: list[Copy] = []
        for position, port in enumerate(ports):
            region, address = self.regions[offsets[position]], abs(device[position])
            if not port.nbytes or address == region or position in near:
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


def _small_ports(program: Program, offsets: Sequence[int], changed: set[int]) -> list[int]:
    """Positions of the inputs and outputs that kernels may use in the host's memory: small ones that share their memory
    with no other and no state, and that one launch reads, or launches only write.

    Args:
        offsets: of all inputs, then of all outputs.
        changed: the offsets whose memory is written.
    """
    count, small = len(program.inputs), list[int]()
    states = program.input_offsets[count:] + program.output_offsets[len(program.outputs) :]
    for position, port in enumerate(program.inputs + program.outputs):
        offset = offsets[position]
        if not 0 < port.nbytes <= max(MOST_READ, MOST_WRITTEN) or offsets.count(offset) > 1 or offset in states:
            continue
        readers = [launch for launch in program.launches if _reads(launch, offsets, offset)]
        if position < count:
            is_near = len(readers) == 1 and offset not in changed and _blocks(readers[0]) * port.nbytes <= MOST_READ
        else:
            is_near = not readers and port.nbytes <= MOST_WRITTEN
        if is_near:
            small.append(position)
    return small


def _reads(launch: Launch, offsets: Sequence[int], offset: int) -> bool:
    """Whether a launch has the memory of this offset, or a part of it, among its operands; it writes to the first one.

    Args:
        offsets: of all inputs and outputs.
    """
    operands = zip(launch.kinds[1:], launch.values[1:], strict=True)
    return any(kind == "p" and region_of(offsets, value) == offset for kind, value in operands)


def _blocks(launch: Launch) -> int:
    x, y, z = launch.grid
    return x * y * z
