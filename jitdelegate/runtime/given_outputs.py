"""Outputs in memory that the caller gives: arrays and buffers to which a run writes its results."""

from __future__ import annotations

from jitdelegate.errors import TensorError
from jitdelegate.runtime.binding import Place, borrowed_place, check_place, overlapping, overlaps
from jitdelegate.runtime.buffers import Borrowed, checked, handed_out, is_port_array

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from jitdelegate.program.program import Port
    from jitdelegate.runtime.io_binding import IOBinding


def output_place(value: Any, port: Port) -> Place:
    """The memory of an object that an output is to be written to.

    Args:
        value: a TensorBuffer, or contiguous memory with the buffer protocol that may be written to: a numpy array, an
            output of an earlier run, a bytearray.
    Raises:
        TensorError: it is no such object, or its type, shape or length is not the port's.
    """
    if is_port_array(value, port) and value.flags.writeable:
        return borrowed_place(Borrowed(value))
    memory = getattr(value, "place", None)
    if isinstance(memory, Place):
        if (value.dtype, tuple(value.shape)) != (port.dtype, port.shape):
            raise TensorError(
                f"output {port.title!r}: found a buffer of {value.dtype}{list(value.shape)},"
                f" expected {port.dtype}{list(port.shape)}"
            )
        check_place(memory, port)
        return memory
    try:
        view = memoryview(value)
    except TypeError as error:
        raise TensorError(
            f"output {port.title!r}: found {type(value).__name__}, expected a TensorBuffer, an array or another object"
            " with the buffer protocol"
        ) from error
    checked(value, port, port.shape)
    if view.readonly or not view.c_contiguous:
        found_memory = "read-only" if view.readonly else "not contiguous"
        raise TensorError(f"output {port.title!r}: the memory is {found_memory}, expected contiguous writable memory")
    place = borrowed_place(Borrowed(value))
    check_place(place, port)
    return place


def run_into(session: IOBinding, inputs: Sequence[Any], given: Sequence[Any]) -> tuple[Any, ...]:
    """One inference of a session, as its `run`.

    Args:
        given: per output, the object that it is written to, None for a new tensor. One that is an input too is updated
            in place where the program can do that; the results are those of separate memory.
    Returns:
        The given objects and new tensors.
    Raises:
        TensorError: the number, type, shape or length of the inputs or of given objects is wrong, or some overlap.
        ProgramError, DeviceError: as for `run`.
    """
    program = session.program
    if len(inputs) != len(program.inputs):
        raise TensorError(f"{len(inputs)} inputs were given, expected {len(program.inputs)}")
    places = [session.input_place(value, port) for value, port in zip(inputs, program.inputs, strict=True)]
    outputs = []
    for position, (value, port) in enumerate(zip(given, program.outputs, strict=True)):
        outputs.append(handed_out(session.new_output(position)) if value is None else value)
        places.append(output_place(outputs[-1], port))
    session.run_bound(session.bind(places))
    return tuple(outputs)


def copy_all(outputs: Sequence[tuple[Port, Any, Any]]) -> tuple[Any, ...]:
    """Copy results to the objects that the caller gave for them.

    Args:
        outputs: of each output its port, its result, and the object that was given for it, or None.
    Returns:
        The given objects, and the other results.
    Raises:
        TensorError: as for `output_place`, also where a result has another size than the file says; or given objects
            share memory.
    """
    copies = []
    for port, result, given in outputs:
        if given is not None and given is not result:
            own = port.altered(shape=tuple(result.shape), nbytes=result.nbytes)
            copies.append((output_place(given, own), own, result))
    for position, others in overlaps([place for place, *_ in copies], 0):
        raise overlapping(copies[position][1], copies[others[0]][1])
    for place, _, result in copies:
        place.store(Borrowed(result).address, result.nbytes)
    return tuple(result if given is None else given for _, result, given in outputs)
