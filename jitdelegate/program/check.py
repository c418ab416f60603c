"""Checks the bounds of what few programs have: states, aliases, shape inputs, partitions, launches. The runtime relies
on them.

`read.py` checks what all programs have.
"""

from __future__ import annotations

from jitdelegate.errors import ProgramError
from jitdelegate.program.program import LARGEST_MEMORY, LITERT, ZEROS, check_port, check_range

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from jitdelegate.program.program import Launch, Partition, Port, Program, State

    Limits = tuple[dict[str, int], dict[str, int]]

LARGEST_GRID = ((1 << 31) - 1, (1 << 16) - 1, (1 << 16) - 1)
LARGEST_BLOCK = (1024, 1024, 64)
MOST_THREADS = 1024
MOST_SHARED_BYTES = 227 * 1024
MOST_ARGUMENTS = 512
MOST_STREAMS = 4
_KINDS = "awpifs"
_SMALLEST = {"a": 0, "w": 0, "p": 0, "i": -(1 << 31), "f": 0, "s": 0}
# "a" and "w" go to the end itself, where a tensor of no elements may lie
_LARGEST = {"i": (1 << 31) - 1, "f": (1 << 32) - 1, "s": 0}


def check(program: Program) -> None:
    """
    Raises:
        ProgramError: a value is out of bounds; names it, its value and the expected one.
    """
    for state in program.states:
        _check_state(program, state)
    for position in program.shape_inputs:
        _check_deciding(program, position)
    _check_aliases(program)
    for window in program.windows:
        _check_window(program, *window)
    _check_partitions(program)
    if program.loader == "cubin":
        _check_cuda(program)
    elif program.launches or program.input_offsets or program.output_offsets:
        raise ProgramError(f"a program for {program.target} has launches or device offsets, expected none")


def _check_aliases(program: Program) -> None:
    inputs: tuple[Port | State, ...] = (*program.inputs, *program.states)
    outputs: tuple[Port | State, ...] = (*program.outputs, *program.states)
    seen: set[tuple[str, int]] = set()
    for given, made in program.aliases:
        check_range("input of an alias", given, len(inputs) - 1)
        check_range("output of an alias", made, len(outputs) - 1)
        a, b = inputs[given], outputs[made]
        if a.nbytes != b.nbytes:
            raise ProgramError(f"the aliases {a.name} and {b.name} have {a.nbytes} and {b.nbytes} bytes")
        pair = {("input", given), ("output", made)}
        if seen & pair:
            raise ProgramError(f"the aliases of {a.name} and {b.name} are not their only ones")
        seen |= pair


def _check_window(program: Program, updated: int, given: int, element: int, room: int) -> None:
    check_range("updated input of a window", updated, len(program.inputs) - 1)
    _check_deciding(program, given, "input of a window")
    port = program.inputs[given]
    check_range("element of a window", element, port.nbytes // (4 if port.dtype == "int32" else 8) - 1)
    check_range("largest value of a window", room, LARGEST_MEMORY)


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ProgramError(f"{name} is {value!r}, expected one of {', '.join(choices)}")


def _check_deciding(program: Program, position: int, what: str = "shape_inputs input") -> None:
    check_range(what, position, len(program.inputs) - 1)
    _check_choice(f"type of {what}", program.inputs[position].dtype, ("int32", "int64"))


def _check_partitions(program: Program) -> None:
    allowed = {"partitions": (True,), "delegate": (True, False)}.get(program.loader, (False,))
    if bool(program.partitions) not in allowed:
        raise ProgramError(f"a program with the loader {program.loader} has {len(program.partitions)} partitions")
    places = (program.target, LITERT) if program.loader == "partitions" else (program.target,)
    for number, partition in enumerate(program.partitions):
        _check_choice(f"place of partition {number}", partition.place, places)
        _check_partition(program, number, partition)
    for port in program.between:
        check_port(port)
    for subgraph in program.idle:
        check_range("number of an idle subgraph", subgraph.number, program.num_subgraphs - 1)


def _check_partition(program: Program, number: int, partition: Partition) -> None:
    check_range(f"bytes of partition {number}", partition.nbytes, len(program.weights))
    check_range(f"offset of partition {number}", partition.offset, len(program.weights) - partition.nbytes)
    for position in partition.nodes:
        check_range(f"operator of partition {number}", position, program.num_nodes - 1)
    for index in (*partition.inputs, *partition.outputs):
        check_range(f"tensor of partition {number}", index, LARGEST_MEMORY)


def _check_state(program: Program, state: State) -> None:
    if program.loader == "none":
        raise ProgramError(f"a program without code has the state {state.name}, expected none")
    check_range(f"bytes of state {state.name}", state.nbytes, LARGEST_MEMORY)
    for size in state.shape:
        check_range(f"a size of state {state.name}", size, LARGEST_MEMORY)
    if state.initial != ZEROS:
        check_range(f"first value of state {state.name}", state.initial, len(program.weights) - state.nbytes)


def _check_cuda(program: Program) -> None:
    from jitdelegate.program.cubin import check_cubin, check_ptx  # not before: most programs are for the CPU

    check_image = check_ptx if program.features.startswith("compute_") else check_cubin
    names = {offset: name for name, offset in program.entries}  # entries may share a binary
    for offset, name in names.items():
        check_image(name, program.code, offset)
    ports = _check_offsets(program)
    limits = _SMALLEST, {**_LARGEST, "a": program.arena_bytes, "w": len(program.weights), "p": LARGEST_MEMORY}
    for index, launch in enumerate(program.launches):
        check_range(f"launch {index}: kernel", launch.kernel, len(program.entries) - 1)
        _check_sizes(index, launch)
        _check_arguments(index, launch, limits, has_status=bool(program.refusals))
        _check_ports(index, launch, ports)
    _check_order(program.launches)


def _check_offsets(program: Program) -> dict[int, int]:
    """Bytes at each offset of inputs and outputs."""
    ports: dict[int, int] = {}
    sides = (program.inputs, program.input_offsets, "inputs"), (program.outputs, program.output_offsets, "outputs")
    for own, offsets, name in sides:
        if len(own) + len(program.states) != len(offsets):
            raise ProgramError(f"{len(offsets)} offsets of {name}, expected {len(own) + len(program.states)}")
        for port, offset in zip(own, offsets, strict=False):
            check_range(f"offset of tensor {port.name}", offset, LARGEST_MEMORY, program.arena_bytes)
            ports[offset] = max(port.nbytes, ports.get(offset, 0))
    for own, offsets, _ in sides:
        for state, offset in zip(program.states, offsets[len(own) :], strict=True):
            if ports.get(offset, -1) < state.nbytes:
                check_range(f"offset of tensor {state.name}", offset, program.arena_bytes - state.nbytes)
    return ports


def _check_ports(index: int, launch: Launch, ports: dict[int, int]) -> None:
    for kind, value in zip(launch.kinds, launch.values, strict=True):
        if kind == "p" and not any(0 <= value - offset < max(nbytes, 1) for offset, nbytes in ports.items()):
            raise ProgramError(f"launch {index}: an argument of kind 'p' is {value}, expected one within {[*ports]}")


def _check_sizes(index: int, launch: Launch) -> None:
    for name, sizes, largest in (("grid", launch.grid, LARGEST_GRID), ("block", launch.block, LARGEST_BLOCK)):
        if not all(1 <= size <= most for size, most in zip(sizes, largest, strict=True)):
            raise ProgramError(f"launch {index}: {name} is {sizes}, expected 1 to {largest}")
    x, y, z = launch.block
    check_range(f"launch {index}: threads per block", x * y * z, MOST_THREADS)
    check_range(f"launch {index}: shared_bytes", launch.shared_bytes, MOST_SHARED_BYTES)


def _check_order(launches: Sequence[Launch]) -> None:
    used = set[int]()
    for index, launch in enumerate(launches):
        check_range(f"launch {index}: stream", launch.stream, MOST_STREAMS - 1)
        check_range(f"launch {index}: launches waited for", len(launch.waits), MOST_STREAMS - 1)
        for other in launch.waits:
            check_range(f"launch {index}: launch waited for", other, index - 1)
            if launches[other].stream == launch.stream:
                raise ProgramError(f"launch {index} waits for launch {other} of its own stream, expected another's")
        if launch.is_dependent and (launch.waits or launch.stream not in used):
            raise ProgramError(f"launch {index} may begin early, but it does not follow one launch alone")
        used.add(launch.stream)


def _check_arguments(index: int, launch: Launch, limits: Limits, *, has_status: bool) -> None:
    if len(launch.kinds) != len(launch.values):
        raise ProgramError(f"launch {index}: {len(launch.values)} values, expected {len(launch.kinds)}")
    check_range(f"launch {index}: arguments", len(launch.values), MOST_ARGUMENTS)
    if "s" in launch.kinds and not has_status:
        raise ProgramError(f"launch {index} has a status word, but the program refuses no run")
    if launch.kinds.strip(_KINDS):
        raise ProgramError(f"launch {index}: arguments are of kinds {launch.kinds!r}, expected letters of {_KINDS!r}")
    smallest, largest = limits
    for kind, value in zip(launch.kinds, launch.values, strict=True):
        if not smallest[kind] <= value <= largest[kind]:  # without a call: there are more than a thousand
            check_range(f"launch {index}: argument of kind {kind!r}", value, largest[kind], smallest[kind])
