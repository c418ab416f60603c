"""IOBinding, the caller's side of a session: checks inputs, makes outputs, keeps tensors for LiteRT's interface."""

from __future__ import annotations

import _thread
import ctypes
import sys
from ctypes import addressof

from jitdelegate.base.options import DEBUG_LEVEL, TIMED_LEVEL
from jitdelegate.errors import DeviceError, ProgramError, TensorError
from jitdelegate.program.program import NO_TENSOR
from jitdelegate.runtime.buffers import ENCODED, InputSlot, borrow, bytes_of, handed_out, no_memory, tensor_class

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from jitdelegate.program.program import Port, Program, State
    from jitdelegate.runtime.binding import Binding, Place
    from jitdelegate.runtime.buffers import Borrowed, Tensor
    from jitdelegate.runtime.cache.directory import CacheDirectory
    from jitdelegate.runtime.event import Event
    from jitdelegate.runtime.requests import Requests
    from jitdelegate.runtime.shared_file import SharedFile

_opening = _thread.allocate_lock()  # held for a moment, by a session's first request


class IOBinding:
    """Base class of all sessions: inputs, outputs and persistent tensors.

    Attributes:
        program: the program that it runs.

    Raises:
        ProgramError: a tensor has an unknown element type, or its length does not fit its shape.
    """

    _requests: Requests | None = None
    _is_ending = staticmethod(sys.is_finalizing)  # a module's own names are gone before its last objects

    def __init__(self, program: Program) -> None:
        self.program = program
        self._idle_slots: list[list[InputSlot]] = []
        self._staging: dict[int, Tensor] = {}
        self._staged: tuple[int, ...] | None = None
        self._output_classes: list[Any] = []
        self._has_encoded = any(port.dtype in ENCODED for port in program.outputs)
        states = (state for state in program.states if state.index != NO_TENSOR)
        ports: tuple[Port | State, ...] = (*program.inputs, *program.outputs, *program.between, *states)
        for port in ports:
            _check_bytes(port)

    def recall(self, directory: CacheDirectory | None) -> None:
        """Go on from what earlier processes found out about the program, as far as a cache directory has it, and tell
        it later ones; called before the first run."""

    @property
    def note(self) -> str:
        """Sentence for the user about how the program has run so far; usually ""."""
        return ""

    def run(self, inputs: Sequence[Any]) -> tuple[Tensor, ...]:
        """One inference: the outputs, in the order of `program.outputs`, in memory of their own; arrays of float16.

        Args:
            inputs: one buffer or array per input, in the order of `program.inputs`; read during the call.
        Raises:
            TensorError: the number, type, shape or length of the inputs is wrong.
            ProgramError: the weights are damaged; nothing was computed. Compile again.
            RefusedValueError: an input, or what is computed from it, has an index outside the data, where LiteRT stops;
                outputs are undefined then.
            DeviceError: the session is closed, the device failed, or out of memory for the outputs.
        """
        try:
            slots = self._idle_slots.pop()  # those of a run that has ended, since other threads may be in one
        except IndexError:
            slots = list(map(InputSlot, self.program.inputs))
        if len(inputs) != len(slots):
            raise TensorError(f"{len(inputs)} inputs were given, expected {len(slots)}")
        addresses: list[int] = []
        borrowed: list[Borrowed] = []
        outputs = []
        try:
            for slot, value in zip(slots, inputs, strict=True):
                addresses.append(slot.address_of(value, borrowed))
            for output_class in self._output_classes or self._make_output_classes():
                output = output_class()
                outputs.append(output)
                addresses.append(addressof(output))
            self.run_on(addresses)
        except MemoryError as error:
            raise self._no_memory(len(addresses)) from error
        self._idle_slots.append(slots)
        return self.handed_out(outputs)

    def handed_out(self, outputs: Sequence[Tensor]) -> tuple[Any, ...]:
        """What a caller gets of all outputs: see `buffers.handed_out`."""
        return tuple(map(handed_out, outputs)) if self._has_encoded else tuple(outputs)

    def new_output(self, position: int) -> Tensor:
        """New memory for an output, zeroed, of which callers get what `handed_out` makes of it; raises DeviceError when
        out of memory."""
        port = self.program.outputs[position]
        return _make(tensor_class(port.dtype, port.shape), port)

    def _make_output_classes(self) -> list[Any]:
        """The classes of the outputs, made at the first run: other ways to run need none."""
        self._output_classes = [tensor_class(port.dtype, port.shape) for port in self.program.outputs]
        return self._output_classes

    def _no_memory(self, count: int) -> DeviceError:
        """The error about a run for which memory ended when `count` inputs and outputs had an address."""
        missing = count - len(self.program.inputs)
        if 0 <= missing < len(self.program.outputs):
            port = self.program.outputs[missing]
            return no_memory(port, port.nbytes)
        return DeviceError("no memory for a run")

    def set_input(self, position: int, value: Any) -> None:
        """Copy `value` into the persistent memory of an input.

        Raises:
            TensorError: the type, shape or length is not the input's.
        """
        source, target = borrow(value, self.program.inputs[position]), self.input_memory(position)
        ctypes.memmove(ctypes.addressof(target), source.address, source.nbytes)

    def input_memory(self, position: int) -> Any:
        """The tensor from which `invoke` reads an input, zero at first; it stays valid after `close`."""
        return self._stage(position, self.program.inputs[position])

    def output_memory(self, position: int) -> Any:
        """The tensor to which `invoke` writes an output, zero at first; it stays valid after `close`."""
        return self._stage(len(self.program.inputs) + position, self.program.outputs[position])

    def invoke(self) -> None:
        """One inference from `input_memory` to `output_memory`; raises the errors of `run`."""
        try:
            if self._staged is None:
                inputs = [self.input_memory(position) for position in range(len(self.program.inputs))]
                outputs = [self.output_memory(position) for position in range(len(self.program.outputs))]
                self._staged = tuple(ctypes.addressof(tensor) for tensor in inputs + outputs)
            self.run_on(self._staged)
        except MemoryError as error:
            raise DeviceError("no memory for a run") from error

    def make_place(self, position: int, *, on_device: bool = False) -> Place:
        """New zeroed memory for an input, or for an output, which are counted after all inputs.

        Args:
            on_device: in the memory of the session's device, if it has its own; else on the host, where this device
                reaches it fastest.
        Raises:
            DeviceError: the session is closed, or out of memory.
        """
        place: Place = _binding_module().host_place((*self.program.inputs, *self.program.outputs)[position].nbytes)
        return place

    def input_place(self, value: Any, port: Port) -> Place:
        """The memory of an input, checked against its port; raises the errors of `borrow`."""
        place: Place = _binding_module().borrowed_place(borrow(value, port))
        return place

    def bind(self, places: Sequence[Place]) -> Binding:
        """The caller's memory for all inputs, then all outputs, checked for any number of runs of this session.

        Memory that the device of the session does not reach is copied in each run.

        Raises:
            TensorError: a place does not fit its tensor, or overlaps another.
            DeviceError: out of memory.
        """
        made: Binding = _binding_module().Binding(self.program, places)
        return made

    def run_bound(self, binding: Binding) -> None:
        """One inference on the memory of a binding of this session; raises the errors of `run`."""
        self._follow_requests()
        binding.start()
        self.run_on(binding.addresses)
        binding.finish()

    def run_async(self, binding: Binding, needs: Sequence[Event] = (), after: Sequence[Event] = ()) -> Event:
        """One inference on the memory of a binding of this session, after those requested before; returns at once.

        Any thread may call it. The caller leaves the memory alone until the event has happened.

        Args:
            needs: events that have to happen first; if one fails, so does the request.
            after: events that have to happen first, well or not.
        Returns:
            the event that it has ended; waiting for it raises the errors of `run`.
        Raises:
            ProgramError: the weights are damaged. Compile again.
            DeviceError: the session is closed, out of memory or threads, or Python exits.
        """
        self.verify()
        return self._own_requests().submit(lambda: self.run_bound(binding), needs, after)

    def _own_requests(self) -> Requests:
        """The requests of this session that run on a thread of Python's."""
        if self._requests is None:
            try:
                from jitdelegate.runtime.requests import Requests  # not before: most runs are waited for
            except ImportError as error:
                raise _exiting(error) from error
            with _opening:
                self._requests = self._requests or Requests()
        return self._requests

    def _follow_requests(self) -> None:
        """Wait for earlier requests on Python's thread, if they change states: whatever uses these comes after them.
        The session's lock must not be held, which the requests take."""
        if self._requests is not None and self.program.states:
            self._requests.settle()

    def _end_requests(self) -> None:
        """Wait for all requests, before the session is closed, and take no more."""
        if self._requests is not None:
            self._requests.close()

    def reset_states(self, *, resources: bool) -> None:
        """Reset every state to its first value.

        Args:
            resources: False keeps the values of resource variables.
        """
        raise NotImplementedError

    def read_state(self, position: int) -> bytes:
        """Current value of a state, as row-major bytes; raises the errors of `run`."""
        raise NotImplementedError

    def write_state(self, position: int, content: bytes) -> None:
        """Set a state to `content`, which has the state's length; raises the errors of `run`."""
        raise NotImplementedError

    def states_so_far(self) -> list[bytes | None]:
        """Current value of each state, None for first values; does not read the weights."""
        raise NotImplementedError

    def take_over(self, other: IOBinding) -> None:
        """Replace another session of the same model: take its states and its persistent memory."""
        self._staging, self._staged = other._staging, None
        for position, content in enumerate(other.states_so_far() if other.program.states else ()):
            if content is not None:
                self.write_state(position, content)

    def verify(self) -> None:
        """Hash the weights, unless that was done and they have not changed since; called before outputs are released.

        Raises:
            ProgramError: the weights are damaged.
        """
        raise NotImplementedError

    def kernel_seconds(self) -> list[float | None]:
        """Seconds of each kernel of the program in one run, the median of the last runs; None where none was timed."""
        return [None] * len(self.program.kernels)

    def _begin_log(self) -> None:
        """Arrange that the time of each kernel is logged at the end, if the debug level asks for that."""
        if DEBUG_LEVEL >= TIMED_LEVEL:
            from jitdelegate.runtime.profile import log_times_at_exit  # not before: times are rarely logged

            log_times_at_exit(self.kernel_seconds, self.program.kernels)

    def _end_log(self) -> None:
        """Log the time of each kernel, before the session is closed."""
        if DEBUG_LEVEL >= TIMED_LEVEL:
            from jitdelegate.runtime.profile import log_times

            log_times(self.kernel_seconds(), self.program.kernels)

    @property
    def shared(self) -> SharedFile | None:
        """The mapped file that a run reads; None if all of its memory is private."""
        return None

    def close(self) -> None:
        """Free everything; harmless a second time."""
        raise NotImplementedError

    def run_on(self, addresses: Sequence[int]) -> None:
        """One inference on the caller's memory: the addresses of all inputs, then of all outputs."""
        raise NotImplementedError

    def compute(self, addresses: Sequence[int]) -> None:
        """As `run_on`, for callers that watch `shared` themselves. With such a file, states change only at `advance`,
        and the run may be repeated before."""
        self.run_on(addresses)

    def advance(self) -> None:
        """Make the states that `compute` left the current ones."""

    def _stage(self, key: int, port: Port) -> Tensor:
        tensor = self._staging.get(key)
        if tensor is None:
            tensor = self._staging.setdefault(key, _make(tensor_class(port.dtype, port.shape), port))
        return tensor


def _binding_module() -> Any:
    """The module of bindings; not imported before: load() makes its own outputs.

    Raises:
        DeviceError: Python exits, and imports nothing any more.
    """
    try:
        from jitdelegate.runtime import binding
    except ImportError as error:
        raise _exiting(error) from error
    return binding


def _exiting(error: ImportError) -> DeviceError:
    """The error for what is used for the first time while Python exits, as by a finalizer."""
    return DeviceError(f"Python is exiting, and imports no more of jitdelegate: {error}")


def _make(tensor_type: type[Tensor], port: Port) -> Tensor:
    """A tensor of zeros; raises DeviceError when out of memory."""
    try:
        return tensor_type()
    except MemoryError as error:
        raise no_memory(port, port.nbytes) from error


def _check_bytes(port: Port | State) -> None:
    """
    Raises:
        ProgramError: the element type is unknown, or the port's length does not fit its shape.
    """
    try:
        nbytes = bytes_of(port.dtype, port.shape)
    except TensorError as error:
        raise ProgramError(str(error)) from error
    if nbytes != port.nbytes:
        raise ProgramError(f"tensor {port.name!r} has {port.nbytes} bytes, expected {nbytes}")
