"""The programs of a model and the buffers that they run on, behind a CompiledModel."""

from __future__ import annotations

from _weakref import ref

from jitdelegate.api.signature_arguments import signatures_of
from jitdelegate.api.tensor_buffer import TensorBuffer
from jitdelegate.engine.current_subgraph import CurrentSubgraph
from jitdelegate.engine.load_path import REPLACEABLE, recompile
from jitdelegate.engine.specializations import Specializations
from jitdelegate.errors import ClosedError, CompiledModelError
from jitdelegate.runtime.binding import HOST
from jitdelegate.runtime.element_types import nbytes_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from jitdelegate.api.signature_arguments import Arguments, SignatureArguments
    from jitdelegate.engine.executable import Executable
    from jitdelegate.runtime.binding import Binding, Place
    from jitdelegate.runtime.event import Event
    from jitdelegate.runtime.io_binding import IOBinding
    from jitdelegate.runtime.requests import Requests

    Shape = tuple[int, ...]

HOST_MEMORY = 1
"""LiteRT's number of buffers in the host's memory."""
MOST_BINDINGS = 16
"""Most lists of buffers that a model is ready to run on at once; for others, a run takes some microseconds more."""


class BufferRuns:
    """Runs the signatures of a model on TensorBuffers: finds the programs, and keeps buffers bound to them."""

    def __init__(self, executable: Executable) -> None:
        self._opened = executable
        self._specializations = Specializations(executable)
        self._graphs: dict[int, CurrentSubgraph] = {}
        self._signatures = signatures_of(executable.program)
        self._bound: dict[tuple[Any, ...], Bound] = {}
        self._litert_requests: Requests | None = None
        self._closed = False

    def _requests(self) -> Requests:
        """The requests that run on LiteRT."""
        if self._litert_requests is None:
            from jitdelegate.runtime.requests import Requests  # not before: most runs are waited for

            with self._opened.lock:
                self._litert_requests = self._litert_requests or Requests()
        return self._litert_requests

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the model is closed")

    def _index(self, key: str) -> int:
        """Index of a signature, -1 if there is none of this key; "" is the first one's."""
        self._check_open()
        if not isinstance(key, str):
            raise TypeError(f"a signature's key is {type(key).__name__}, expected str")
        return next((index for index, signature in enumerate(self._signatures) if key in ("", signature.key)), -1)

    def _signature(self, index: int | str) -> SignatureArguments:
        if isinstance(index, str):
            return self._keyed(index)
        self._check_open()
        if not hasattr(index, "__index__"):
            raise TypeError(f"a signature's index is {type(index).__name__}, expected int, or str for its key")
        if not 0 <= index < len(self._signatures):
            raise CompiledModelError(f"Signature index is out of range: {index}, the model has {len(self._signatures)}")
        return self._signatures[index]

    def _keyed(self, key: str) -> SignatureArguments:
        index = self._index(key)
        if index < 0:
            raise CompiledModelError(
                f"Signature not found: {key!r}, the model has {[each.key for each in self._signatures]}"
            )
        return self._signatures[index]

    def _graph(self, signature: SignatureArguments) -> CurrentSubgraph:
        """The subgraph of a signature; opened at the first use."""
        found = self._graphs.get(signature.graph)
        if found is None:
            made = CurrentSubgraph(self._specializations, self._specializations.subgraph(signature.graph))
            found = self._graphs.setdefault(signature.graph, made)
        return found

    def _open_all(self) -> list[CurrentSubgraph]:
        return [self._graph(signature) for signature in self._signatures]

    def _port_index(self, signature: SignatureArguments, arguments: Arguments, position: int) -> int:
        """Position of an argument among the tensors of its subgraph."""
        indices = arguments.port_indices(self._graph(signature).base.program)
        if not 0 <= position < len(indices):
            raise CompiledModelError(
                f"{arguments.kind.capitalize()} index out of range: {position}, the signature has {len(indices)}"
            )
        return indices[position]

    def _tensors(self, signature: SignatureArguments, arguments: Arguments) -> list[tuple[str, Shape]]:
        """Element type and current shape of each argument."""
        graph = self._graph(signature)
        program, is_input = graph.base.program, arguments.kind == "input"
        shapes = graph.shapes if is_input else graph.output_shapes()
        ports = program.inputs if is_input else program.outputs
        return [(ports[index].dtype, shapes[index]) for index in arguments.port_indices(program)]

    def _make_buffers(
        self,
        signature: SignatureArguments,
        arguments: Arguments,
        positions: Sequence[int] | None = None,
        *,
        on_device: bool,
    ) -> list[TensorBuffer]:
        """Buffers of zeros where the signature's program reaches them fastest: for all arguments, or for some."""
        positions = range(len(arguments.names)) if positions is None else positions
        tensors = self._tensors(signature, arguments)
        executable = self._graph(signature).executable
        program, session = executable.program, executable.session
        if session is None:
            return [TensorBuffer.create(*tensors[position]) for position in positions]
        indices = arguments.port_indices(program)
        before = len(program.inputs) if arguments.kind == "output" else 0
        return [
            TensorBuffer(session.make_place(before + indices[position], on_device=on_device), *tensors[position])
            for position in positions
        ]

    def _details(self, signature: SignatureArguments, arguments: Arguments) -> dict[str, Any]:
        program = self._graph(signature).base.program
        ports = program.inputs if arguments.kind == "input" else program.outputs
        found = zip(arguments.names, arguments.port_indices(program), self._tensors(signature, arguments), strict=True)
        return {
            name: {"name": ports[index].name, "index": ports[index].index, "dtype": dtype, "shape": list(shape)}
            for name, index, (dtype, shape) in found
        }

    def _requirements(self, signature: SignatureArguments, arguments: Arguments, position: int) -> dict[str, Any]:
        self._port_index(signature, arguments, position)
        dtype, shape = self._tensors(signature, arguments)[position]
        return {"buffer_size": nbytes_of(dtype, shape), "supported_types": [HOST_MEMORY]}

    def _run_unbound(
        self, signature_index: int, inputs: Sequence[TensorBuffer], outputs: Sequence[TensorBuffer]
    ) -> None:
        """One inference on buffers that the model is not ready to run on; it is afterwards."""
        signature = self._signature(signature_index)
        check_buffers(signature.inputs, inputs)
        check_buffers(signature.outputs, outputs)
        found = self._bound.get(_key(signature_index, inputs, outputs))
        if found is not None:
            found.is_idle = True  # before waiting: another thread may begin a request meanwhile
        try:
            for buffer in inputs:
                buffer.wait_event()
            for buffer in outputs:
                buffer.wait_for_users()
        except BaseException:  # an event failed, or Ctrl-C ended the waiting: the next run has to wait again
            if found is not None:
                found.is_idle = False
            raise
        found = self._bound_of(signature_index, inputs, outputs)
        if found is None:
            self._run_on_litert(signature, inputs, outputs)
            return
        try:
            found.session.run_bound(found.binding)  # type: ignore[arg-type]  # its buffers are alive
        except REPLACEABLE as error:
            self._replace(found.executable, found.session, error)
            self._run_unbound(signature_index, inputs, outputs)

    def _bound_of(
        self, signature_index: int, inputs: Sequence[TensorBuffer], outputs: Sequence[TensorBuffer]
    ) -> Bound | None:
        """The buffers, ready to run on; None where LiteRT runs the model."""
        key = _key(signature_index, inputs, outputs)
        found = self._bound.get(key)
        if found is not None and found.binding is not None:
            return found
        signature = self._signature(signature_index)
        executable = self._fit(signature, inputs)
        session = executable.session  # read once: another thread may close the model
        if session is None:
            return None
        places = self._memory(signature, executable, inputs, outputs)
        try:
            found = Bound(executable, session, session.bind(places))
        except REPLACEABLE as error:
            self._replace(executable, session, error)
            return self._bound_of(signature_index, inputs, outputs)
        if not executable.values:  # else the program depends on the inputs' values
            self._keep(key, found, (*inputs, *outputs))
        return found

    def _fit(self, signature: SignatureArguments, inputs: Sequence[TensorBuffer]) -> Executable:
        """The program for these inputs, ready to run."""
        graph = self._graph(signature)
        ordered = [inputs[position] for position in signature.inputs.positions(graph.base.program)]
        executable, is_other = graph.fit(ordered)
        if is_other:
            self._bound.clear()
        if not executable.announced:
            executable.announce()
        return executable

    def _memory(
        self,
        signature: SignatureArguments,
        executable: Executable,
        inputs: Sequence[TensorBuffer],
        outputs: Sequence[TensorBuffer],
    ) -> list[Place]:
        """Where the program's inputs and outputs lie; outputs without a name get memory of their own."""
        program = executable.program
        found = [inputs[position].place for position in signature.inputs.positions(program)]
        named = dict(zip(signature.outputs.port_indices(program), outputs, strict=True))
        for index, port in enumerate(program.outputs):
            buffer = named.get(index) or TensorBuffer.create(port.dtype, port.shape)
            if buffer.dtype != port.dtype:
                raise CompiledModelError(f"output {port.title!r} has a buffer of {buffer.dtype}, expected {port.dtype}")
            if buffer.nbytes < port.nbytes:
                raise CompiledModelError(
                    f"output {port.title!r} has a buffer of {buffer.nbytes} bytes, expected {port.nbytes}"
                )
            found.append(buffer.place)
        return found

    def _keep(self, key: tuple[Any, ...], found: Bound, buffers: Sequence[TensorBuffer]) -> None:
        """Keep buffers bound, until one of them is freed or others take their turn."""
        model = ref(self)

        def forget(_: object) -> None:
            kept = model()
            if kept is not None:
                kept._bound.pop(key, None)

        found.watchers = [ref(buffer, forget) for buffer in buffers]
        for buffer in buffers:
            buffer.join(found)
        for oldest in [*self._bound][: max(len(self._bound) - MOST_BINDINGS + 1, 0)]:
            self._bound.pop(oldest, None)
        self._bound[key] = found

    def _replace(self, executable: Executable, session: IOBinding, error: Exception) -> None:
        """Recompile a program after one of `REPLACEABLE`; raises the errors of `recompile`."""
        recompile(executable, session, error)
        self._bound.clear()

    def _run_on_litert(
        self, signature: SignatureArguments, inputs: Sequence[TensorBuffer], outputs: Sequence[TensorBuffer]
    ) -> None:
        """One inference on LiteRT's kernels, on copies of the buffers."""
        results = self._results(signature, inputs)
        for name, result, buffer in zip(signature.outputs.names, results, outputs, strict=True):
            if buffer.dtype != result.dtype.name:
                raise CompiledModelError(
                    f"output {name!r} has a buffer of {buffer.dtype}, expected {result.dtype.name}"
                )
            buffer.write(result)

    def _results(self, signature: SignatureArguments, inputs: Sequence[TensorBuffer]) -> list[Any]:
        """The outputs of LiteRT's kernels as arrays, in the signature's order."""
        graph = self._graph(signature)
        program = graph.base.program
        given = [inputs[position] for position in signature.inputs.positions(program)]
        found = graph.run_on_litert([buffer.view() if buffer.place.gpu == HOST else buffer.read() for buffer in given])
        return [found[index].__array__() for index in signature.outputs.port_indices(program)]

    def _run_async(
        self, signature_index: int, inputs: Sequence[TensorBuffer], outputs: Sequence[TensorBuffer]
    ) -> Event:
        """Request an inference; the event that it has ended."""
        found = self._bound.get(_key(signature_index, inputs, outputs))
        if found is None or found.binding is None:
            found = self._prepared(signature_index, inputs, outputs)
        event: Event
        needs, after = _events(inputs), [user for buffer in outputs for user in buffer.users()]
        if found is None:
            signature, sides = self._signature(signature_index), (_apart(inputs), _apart(outputs))
            event = self._requests().submit(lambda: self._run_on_litert(signature, *sides), needs, after)
        else:
            try:
                event = found.session.run_async(found.binding, needs, after)  # type: ignore[arg-type]  # it is there
            except REPLACEABLE as error:
                self._replace(found.executable, found.session, error)
                return self._run_async(signature_index, inputs, outputs)
        for buffer in inputs:
            buffer.add_reader(event)
        for buffer in outputs:
            buffer.add_writer(event)
        return event

    def _prepared(
        self, signature_index: int, inputs: Sequence[TensorBuffer], outputs: Sequence[TensorBuffer]
    ) -> Bound | None:
        """The buffers, checked and ready for a request; None where LiteRT runs the model."""
        signature = self._signature(signature_index)
        check_buffers(signature.inputs, inputs)
        check_buffers(signature.outputs, outputs)
        if self._graph(signature).base.program.shape_inputs:  # their values decide which program runs
            for buffer in inputs:
                buffer.wait_event()
        return self._bound_of(signature_index, inputs, outputs)

    def _run_anew(self, signature: SignatureArguments, inputs: Sequence[TensorBuffer]) -> list[TensorBuffer]:
        """One inference into new buffers."""
        check_buffers(signature.inputs, inputs)
        for buffer in inputs:
            buffer.wait_event()
        executable = self._fit(signature, inputs)
        if executable.session is None:
            results = self._results(signature, inputs)
            outputs = [TensorBuffer.create(result.dtype.name, result.shape) for result in results]
            for buffer, result in zip(outputs, results, strict=True):
                buffer.write(result)
            return outputs
        ports = executable.program.outputs
        indices = signature.outputs.port_indices(executable.program)
        outputs = [TensorBuffer.create(ports[index].dtype, ports[index].shape) for index in indices]
        self._run_unbound(self._signatures.index(signature), inputs, outputs)
        return outputs


class Bound:
    """Buffers that a model is ready to run on.

    Attributes:
        executable, session: the program, and what runs it.
        binding: the buffers' memory, checked; None once a buffer was destroyed.
        is_idle: False once a buffer has an event or a request reads it, or was destroyed.
        watchers: weak references to the buffers.
    """

    __slots__ = ("__weakref__", "binding", "executable", "is_idle", "session", "watchers")

    def __init__(self, executable: Executable, session: IOBinding, binding: Binding) -> None:
        self.executable = executable
        self.session = session
        self.binding: Binding | None = binding
        self.is_idle = True
        self.watchers: list[object] = []


def _key(signature_index: int, inputs: Sequence[TensorBuffer], outputs: Sequence[TensorBuffer]) -> tuple[object, ...]:
    """What lists of buffers are bound by."""
    return (signature_index, *map(id, (*inputs, None, *outputs)))


def check_buffers(arguments: Arguments, buffers: Sequence[TensorBuffer]) -> None:
    """
    Raises:
        CompiledModelError: their number is wrong, one is no buffer, or was destroyed.
    """
    for name, buffer in zip(arguments.names, arguments.counted(buffers), strict=True):
        if not isinstance(buffer, TensorBuffer):
            raise CompiledModelError(f"{arguments.kind} {name!r} is {type(buffer).__name__}, expected a TensorBuffer")
        buffer.expect_alive()


def _events(buffers: Sequence[TensorBuffer]) -> list[Event]:
    """The events that reading the buffers has to wait for."""
    return [event for buffer in buffers if (event := buffer.get_event()) is not None]


def _apart(buffers: Sequence[TensorBuffer]) -> list[TensorBuffer]:
    """Buffers on the same memory, for one request: they have no events, and stay as they are."""
    return [TensorBuffer(buffer.place, buffer.dtype, buffer.shape) for buffer in buffers]
