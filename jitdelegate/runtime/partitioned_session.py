"""A session of a partitioned program: runs compiled and LiteRT partitions one after another, on shared tensors."""

from __future__ import annotations

import _thread
import ctypes
import os

from xxhash import xxh3_128_hexdigest

from jitdelegate.errors import DeviceError, ProgramError, shortened
from jitdelegate.program.program import LITERT
from jitdelegate.program.read import read
from jitdelegate.runtime.io_binding import IOBinding
from jitdelegate.runtime.memory import ALIGNMENT, Memory, aligned, undisturbed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from jitdelegate.program.program import Partition, Port, Program
    from jitdelegate.runtime.shared_file import SharedFile

    Addresses = dict[int, int]


class PartitionedSession(IOBinding):
    """Runs `program`, whose partitions are compiled or run on LiteRT.

    A tensor that LiteRT reads or writes lies in LiteRT's own memory; compiled partitions use it there.

    Attributes:
        program: what it runs.
    """

    def __init__(self, program: Program, open_session: Callable[[Program], IOBinding], num_threads: int = 1) -> None:
        """
        Args:
            open_session: makes the session of a compiled partition.
            num_threads: for LiteRT.
        Raises:
            ProgramError: a partition is damaged, or does not fit the others.
            DeviceError: LiteRT or the device cannot run a partition.
        """
        super().__init__(program)
        self._lock = _thread.allocate_lock()
        self._process = os.getpid()
        self._ports = {port.index: port for port in (*program.inputs, *program.outputs, *program.between)}
        self._partitions: list[_Compiled | _LiteRT] = []
        self._memories: list[Memory] = []
        self._closed = False
        try:
            for partition in program.partitions:
                self._partitions.append(self._open(partition, open_session, num_threads))
            self._states = [
                (session, position) for session in self._sessions() for position in range(len(session.program.states))
            ]
            if len(self._states) != len(program.states):
                raise ProgramError(f"the partitions have {len(self._states)} states, expected {len(program.states)}")
            self._refuse_unwritten()
            self._fix_addresses()
        except (ProgramError, DeviceError):
            self.close()
            raise

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self.close()

    def _open(
        self, partition: Partition, open_session: Callable[[Program], IOBinding], num_threads: int
    ) -> _Compiled | _LiteRT:
        ports = []
        for index in (*partition.inputs, *partition.outputs):
            if index not in self._ports:
                raise ProgramError(f"a partition has the tensor {index}, which is described nowhere")
            ports.append(self._ports[index])
        content = self.program.content(partition)
        if partition.place == LITERT:
            return _LiteRT(partition, content, ports, num_threads)
        return _Compiled(partition, ports, open_session(read(content)))

    def _refuse_unwritten(self) -> None:
        """
        Raises:
            ProgramError: a tensor is read that no partition has written before.
        """
        known = {port.index for port in self.program.inputs}
        for partition in self.program.partitions:
            _refuse_others(partition.inputs, known)
            known.update(partition.outputs)
        _refuse_others(self._outputs(), known)

    def _fix_addresses(self) -> None:
        """Decide where each tensor lies, except those that lie only in the caller's memory."""
        self._fixed: Addresses = {}
        for one in self._partitions:
            if isinstance(one, _LiteRT):
                one.claim(self._fixed)
        written = [index for one in self._partitions for index in one.partition.outputs]
        free = [index for index in written if index not in self._fixed and index not in self._outputs()]
        rooms = [aligned(self._ports[index].nbytes) + ALIGNMENT for index in free]
        memory = Memory(sum(rooms))
        self._memories.append(memory)
        address = memory.address
        for index, room in zip(free, rooms, strict=True):
            self._fixed[index] = address
            address += room

    def _own_lock(self) -> _thread.LockType:
        """The lock; a new one in a forked child, since a thread of the parent may have held the old one."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self._lock = _thread.allocate_lock()
        return self._lock

    def _outputs(self) -> list[int]:
        return [port.index for port in self.program.outputs]

    def run_on(self, addresses: Sequence[int]) -> None:
        count = len(self.program.inputs)
        self._follow_requests()
        with self._own_lock():
            if self._closed:
                raise DeviceError("the session is closed")
            undisturbed(self.shared, lambda: self._compute(addresses[:count], addresses[count:]))
            for session in self._sessions():
                session.advance()

    def _compute(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        addresses = dict(self._fixed)
        addresses.update(
            (index, at) for index, at in zip(self._outputs(), outputs, strict=True) if index not in addresses
        )
        addresses.update((port.index, at) for port, at in zip(self.program.inputs, inputs, strict=True))
        for one in self._partitions:
            if one.run(addresses):
                self._fix_addresses()
        for port, at in zip(self.program.outputs, outputs, strict=True):
            if addresses[port.index] != at:
                ctypes.memmove(at, addresses[port.index], port.nbytes)

    @property
    def shared(self) -> SharedFile | None:
        """The file that the program was read from; it contains every partition."""
        return next((session.shared for session in self._sessions() if session.shared), None)

    def _sessions(self) -> list[IOBinding]:
        """Sessions of the compiled partitions."""
        return [one.session for one in self._partitions if isinstance(one, _Compiled)]

    @property
    def note(self) -> str:
        return next((session.note for session in self._sessions() if session.note), "")

    def kernel_seconds(self) -> list[float | None]:
        return [seconds for session in self._sessions() for seconds in session.kernel_seconds()]

    def verify(self) -> None:
        for session in self._sessions():
            session.verify()

    def reset_states(self, *, resources: bool) -> None:
        self._follow_requests()
        with self._own_lock():  # between two runs
            for session in self._sessions():
                session.reset_states(resources=resources)

    def read_state(self, position: int) -> bytes:
        self._follow_requests()
        session, own = self._states[position]
        return session.read_state(own)

    def write_state(self, position: int, content: bytes) -> None:
        self._follow_requests()
        session, own = self._states[position]
        session.write_state(own, content)

    def states_so_far(self) -> list[bytes | None]:
        self._follow_requests()
        return [content for session in self._sessions() for content in session.states_so_far()]

    def close(self) -> None:
        if self._is_ending():
            return
        self._end_requests()
        with self._own_lock():
            if self._closed:
                return
            self._closed = True
            for one in self._partitions:
                one.close()
            for memory in self._memories:
                memory.close()


def _refuse_others(indices: Iterable[int], known: set[int]) -> None:
    for index in indices:
        if index not in known:
            raise ProgramError(f"the tensor {index} is read before a partition has written it")


class _Compiled:
    """A compiled partition."""

    def __init__(self, partition: Partition, ports: list[Port], session: IOBinding) -> None:
        self.partition = partition
        self.session = session
        program = session.program
        tensors = [(port.index, port.nbytes) for port in (*program.inputs, *program.outputs)]
        if tensors != [(port.index, port.nbytes) for port in ports] or len(program.inputs) != len(partition.inputs):
            session.close()
            raise ProgramError(f"a partition has the tensors {tensors}, expected {[port.index for port in ports]}")

    def run(self, addresses: Addresses) -> bool:
        """Run the partition; False, since no memory moves."""
        self.session.compute([addresses[index] for index in (*self.partition.inputs, *self.partition.outputs)])
        return False

    def close(self) -> None:
        self.session.close()


class _LiteRT:
    """A partition that runs on LiteRT as a model of its own.

    Raises:
        ProgramError: the model's bytes are damaged.
        DeviceError: LiteRT cannot run the model, gives its tensors other shapes, or knows shapes only at run time.
    """

    def __init__(self, partition: Partition, content: Any, ports: list[Port], num_threads: int) -> None:
        from jitdelegate.runtime.fallback import Fallback  # not before: it imports LiteRT

        content = bytes(content)  # copied before hashing: a mapped file may change
        found = xxh3_128_hexdigest(content)
        if found != partition.hash:
            raise ProgramError(
                f"a partition of {partition.nbytes} bytes has the hash {found}, expected {partition.hash}"
            )
        self.partition = partition
        self._ports = ports
        self._fallback = Fallback(content, num_threads=num_threads)
        self._fallback.allocate()
        self._addresses: Addresses = {}
        self._scalars: list[_Scalar] = []
        self._locate()

    def _locate(self) -> None:
        """Find LiteRT's memory of inputs and outputs. It stays in place as long as no shape changes."""
        import numpy

        interpreter = self._fallback.interpreter
        inputs, outputs = interpreter.get_input_details(), interpreter.get_output_details()
        found, expected = (len(inputs), len(outputs)), (len(self.partition.inputs), len(self.partition.outputs))
        if found != expected:
            raise ProgramError(f"a partition on LiteRT has {found} inputs and outputs, expected {expected}")
        details = [*inputs, *outputs]
        for port, detail in zip(self._ports, details, strict=True):
            made = f"{detail['dtype'].__name__}{detail['shape'].tolist()}"
            wanted = f"{numpy.dtype(port.dtype).type.__name__}{list(port.shape)}"
            if made != wanted:
                raise DeviceError(f"LiteRT makes '{shortened(port.name)}' a tensor {made}, expected {wanted}")
            self._addresses[port.index] = self._address(port, detail["index"])

    def _address(self, port: Port, index: int) -> int:
        """Address of LiteRT's memory of a tensor.

        Raises:
            DeviceError: the tensor has no memory yet; for an output without elements, that cannot be known.
        """
        if not port.nbytes and port.index in self.partition.outputs:
            raise DeviceError(f"LiteRT may find out the shape of '{shortened(port.name)}' only as it runs")
        try:
            view = self._fallback.interpreter.tensor(index)()
        except ValueError as error:
            raise DeviceError(f"LiteRT finds out the shape of '{shortened(port.name)}' only as it runs") from error
        if view.nbytes != port.nbytes:
            raise DeviceError(f"LiteRT has {view.nbytes} bytes for '{shortened(port.name)}', expected {port.nbytes}")
        if port.shape:
            return int(view.ctypes.data)
        self._scalars.append(_Scalar(port, index, is_input=port.index in self.partition.inputs))
        return self._scalars[-1].address

    def claim(self, fixed: Addresses) -> None:
        """Place tensors in LiteRT's memory: this partition's outputs, and inputs that no earlier partition placed."""
        for index in self.partition.outputs:
            fixed[index] = self._addresses[index]
        for index in self.partition.inputs:
            fixed.setdefault(index, self._addresses[index])

    def run(self, addresses: Addresses) -> bool:
        """Run the partition; True if its memory has moved, with the new addresses in `addresses`."""
        for port in self._ports[: len(self.partition.inputs)]:
            at = self._addresses[port.index]
            if addresses[port.index] != at:
                ctypes.memmove(at, addresses[port.index], port.nbytes)
        try:
            self._invoke()
        except RuntimeError as error:
            self._run_again(error, addresses)
            return True
        return False

    def _invoke(self) -> None:
        interpreter = self._fallback.interpreter
        for scalar in self._scalars:
            scalar.give(interpreter)
        interpreter.invoke()
        for scalar in self._scalars:
            scalar.take(interpreter)

    def _run_again(self, error: RuntimeError, addresses: Addresses) -> None:
        """Run again without XNNPACK if XNNPACK refused the partition; the memory is another one from then on."""
        inputs = self._ports[: len(self.partition.inputs)]
        before = dict(self._addresses)
        contents = [ctypes.string_at(before[port.index], port.nbytes) for port in inputs]
        self._fallback.recover(error)
        self._scalars = []
        self._locate()
        for index, at in addresses.items():
            if before.get(index) == at:
                addresses[index] = self._addresses[index]
        for port, content in zip(inputs, contents, strict=True):
            ctypes.memmove(self._addresses[port.index], content, port.nbytes)
        try:
            self._invoke()
        except RuntimeError as again:
            self._fallback.recover(again)  # always raises: XNNPACK is no longer in use

    def close(self) -> None:
        self._fallback.interpreter = None


class _Scalar:
    """A tensor of shape (). LiteRT only gives and takes copies of it, so its value lies in memory of this object.

    Attributes:
        address: address of this memory.
    """

    def __init__(self, port: Port, index: int, is_input: bool) -> None:
        self._memory = (ctypes.c_uint64 * -(-port.nbytes // ctypes.sizeof(ctypes.c_uint64)))()
        self._dtype = port.dtype
        self._nbytes = port.nbytes
        self._index = index
        self._is_input = is_input
        self.address = ctypes.addressof(self._memory)

    def give(self, interpreter: Any) -> None:
        """Copy the value to LiteRT if it is an input."""
        import numpy

        if self._is_input:
            content = ctypes.string_at(self.address, self._nbytes)
            interpreter.set_tensor(self._index, numpy.frombuffer(content, self._dtype).reshape(()))

    def take(self, interpreter: Any) -> None:
        """Copy the value from LiteRT if it is an output."""
        if not self._is_input:
            ctypes.memmove(self.address, interpreter.get_tensor(self._index).tobytes(), self._nbytes)
