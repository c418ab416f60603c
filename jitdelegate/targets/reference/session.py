"""A session that evaluates the graph of its program with numpy, on the calling thread."""

from __future__ import annotations

import _thread
import ctypes
import os

import numpy as np

from jitdelegate.errors import DeviceError, ProgramError
from jitdelegate.ir.graph import Graph, Tensor
from jitdelegate.program.program import Port, Program, State
from jitdelegate.program.read import verify_weights
from jitdelegate.runtime.io_binding import IOBinding
from jitdelegate.runtime.memory import States
from jitdelegate.targets.reference.evaluate import run_graph
from jitdelegate.targets.reference.serialize import deserialize

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class ReferenceSession(IOBinding):
    """Runs `program` from a private copy in memory. Calls from several threads wait for each other.

    Raises:
        ProgramError: the weights are damaged, or the code is not a graph with the program's inputs and outputs.
        DeviceError: out of memory for the states.
    """

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        program.weights = bytes(program.weights)
        verify_weights(program)
        self._graph = deserialize(bytes(program.code), program.weights)
        _check_ports(program, self._graph)
        self._lock = _thread.allocate_lock()
        self._process = os.getpid()
        self._states: States | None = States(program)

    def run_on(self, addresses: Sequence[int]) -> None:
        self._follow_requests()
        with self._own_lock():
            self._compute(addresses)
            self._open_states().advance()

    def compute(self, addresses: Sequence[int]) -> None:
        with self._own_lock():
            self._compute(addresses)

    def _compute(self, addresses: Sequence[int]) -> None:
        states, count = self._open_states(), len(self.program.inputs)
        states.prepare()
        tensors = [self._graph.tensors[index] for index in self._graph.inputs]
        inputs = map(_array, tensors, [*addresses[:count], *states.before])
        outputs = run_graph(self._graph, list(inputs))
        for address, output in zip([*addresses[count:], *states.after], outputs, strict=True):
            ctypes.memmove(address, output.tobytes(), output.nbytes)

    def advance(self) -> None:
        with self._own_lock():
            self._open_states().advance()

    def verify(self) -> None:
        """Does nothing: the constructor has verified the weights."""

    def reset_states(self, *, resources: bool) -> None:
        self._follow_requests()
        with self._own_lock():
            if self._states is not None:
                self._states.reset(resources=resources)

    def read_state(self, place: int) -> bytes:
        self._follow_requests()
        with self._own_lock():
            states = self._open_states()
            states.prepare()
            return states.read(place)

    def write_state(self, place: int, content: bytes) -> None:
        self._follow_requests()
        with self._own_lock():
            self._open_states().write(place, content)

    def states_so_far(self) -> list[bytes | None]:
        self._follow_requests()
        with self._own_lock():
            return self._open_states().so_far()

    def close(self) -> None:
        if self._is_ending():
            return
        self._end_requests()
        with self._own_lock():
            states, self._states = self._states, None
            if states is not None:
                states.close()

    def __del__(self) -> None:
        if getattr(self, "_states", None) is not None:
            self.close()

    def _own_lock(self) -> _thread.LockType:
        """The lock; a new one in a forked child, since a thread of the parent may have held the old one."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self._lock = _thread.allocate_lock()
        return self._lock

    def _open_states(self) -> States:
        if self._states is None:
            raise DeviceError("the session is closed")
        return self._states


def _array(tensor: Tensor, address: int) -> np.ndarray:
    """A copy of the tensor that lies at `address`."""
    return np.frombuffer(ctypes.string_at(address, _bytes(tensor)), tensor.dtype).reshape(tensor.shape)


def _bytes(tensor: Tensor) -> int:
    return tensor.size * np.dtype(tensor.dtype).itemsize


def _check_ports(program: Program, graph: Graph) -> None:
    """
    Raises:
        ProgramError: an input, output or state of the graph differs in length from the program's.
    """
    ports: tuple[Port | State, ...] = (*program.inputs, *program.states, *program.outputs, *program.states)
    expected = [port.nbytes for port in ports]
    found = [_bytes(graph.tensors[index]) for index in (*graph.inputs, *graph.outputs)]
    if found != expected:
        raise ProgramError(f"the graph in the code has tensors of {found} bytes, expected {expected}")
