"""CompiledModel: LiteRT Next's interface, so that code for it changes by its import lines."""

from __future__ import annotations

from _weakref import ref

from jitdelegate.api import announce
from jitdelegate.api.signature_arguments import signatures_of
from jitdelegate.api.tensor_buffer import TensorBuffer
from jitdelegate.engine.current_subgraph import CurrentSubgraph
from jitdelegate.engine.load_path import open_model, recompile
from jitdelegate.engine.model_file import ModelFile
from jitdelegate.engine.specializations import Specializations
from jitdelegate.errors import ClosedError, CompiledModelError, DeviceError, OptionError, ProgramError
from jitdelegate.options import DelegateOptions
from jitdelegate.runtime.binding import HOST
from jitdelegate.runtime.element_types import nbytes_of
from jitdelegate.targets.table import CPU, NPU

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Any, NoReturn

    from jitdelegate.api.environment import Environment
    from jitdelegate.api.report import Report
    from jitdelegate.api.signature_arguments import Arguments, SignatureArguments
    from jitdelegate.engine.executable import Executable
    from jitdelegate.engine.model_file import Source
    from jitdelegate.options.groups import Options
    from jitdelegate.runtime.binding import Binding, Place
    from jitdelegate.runtime.event import Event
    from jitdelegate.runtime.io_binding import IOBinding
    from jitdelegate.runtime.requests import Requests

    Shape = tuple[int, ...]

HOST_MEMORY = 1
"""LiteRT's number of buffers in the host's memory."""
MOST_BINDINGS = 16
"""Most lists of buffers that a model is ready to run on at once; for others, a run takes some microseconds more."""


class CompiledModel:
    """A compiled model with the methods, dictionaries and error types of `ai_edge_litert`'s CompiledModel.

    Inputs and outputs are TensorBuffers, which compiled code uses in place. Operators that are not compiled run on
    LiteRT, as everywhere; `report` says which and why. Several threads may run a model, with buffers of their own; it
    runs one inference at a time.

    Differences from LiteRT: a buffer of another element type, a missing input and an index that is none are refused,
    where LiteRT reads other bytes, takes old values or ends the process. An input buffer of another shape with as many
    elements is accepted.
    """

    def __init__(self, executable: Executable, environment: Environment | None = None) -> None:
        """Use `create`, `from_file` or `from_buffer`."""
        self._opened = executable
        self._environment = environment
        self._specializations = Specializations(executable)
        self._graphs: dict[int, CurrentSubgraph] = {}
        self._signatures = signatures_of(executable.program)
        self._bound: dict[tuple[Any, ...], Bound] = {}
        self._litert_requests: Requests | None = None
        self._closed = False

    @classmethod
    def from_file(
        cls,
        model_path: str | os.PathLike[str],
        hardware_accel: int | None = None,
        environment: Environment | None = None,
        options: Options | None = None,
    ) -> CompiledModel:
        """The model in a file, compiled or taken from the cache.

        Args:
            hardware_accel: flags of `HardwareAccelerator`, CPU unless `options` has others. GPU alone refuses a model
                that is not compiled whole, GPU | CPU takes what there is.
            environment: shared with other models; it may name the directory of compiled programs.
        Raises:
            RuntimeError: a ModelError for a file that is missing or no model, a DeviceError where this machine lacks
                what is asked for, a DelegationError with each operator's reason for GPU alone.
            OptionError: options and `hardware_accel` are both given, or an option is refused. It is a ValueError.
        """
        return cls._open(model_path, _resolve(options, hardware_accel, {}), environment)

    @classmethod
    def from_buffer(
        cls,
        model_data: bytes,
        hardware_accel: int | None = None,
        environment: Environment | None = None,
        options: Options | None = None,
    ) -> CompiledModel:
        """The model in a file's content; as `from_file`."""
        return cls._open(bytes(memoryview(model_data)), _resolve(options, hardware_accel, {}), environment)

    @classmethod
    def create(
        cls,
        path_or_bytes: Source,
        options: Options | int | None = None,
        *,
        environment: Environment | None = None,
        **delegate_options: Any,
    ) -> CompiledModel:
        """The model in a file or in its content: `CompiledModel.create("model.tflite", Accelerator.GPU)`.

        Args:
            options: flags of `Accelerator`, or Options.
            delegate_options: further options of `DelegateOptions` by name, which override those in `options`.
        Raises:
            RuntimeError, OptionError: as `from_file`.
        """
        flags = isinstance(options, int)
        given = _resolve(None if flags else options, options if flags else None, delegate_options)  # type: ignore[arg-type]
        return cls._open(path_or_bytes, given, environment)

    @classmethod
    def _open(
        cls, source: Source, options: tuple[dict[str, Any], list[str]], environment: Environment | None
    ) -> CompiledModel:
        keywords, notes = options
        if environment is not None:
            keywords = {"serialization_dir": environment.serialization_dir} | keywords
            notes = [*notes, *filter(None, [environment.note])]
        model = ModelFile(source, DelegateOptions.from_keywords(keywords), listener=announce)
        found = cls(open_model(model, notes), environment)
        if model.options.require_full_delegation:
            found._open_all()
        return found

    @property
    def environment(self) -> Environment:
        """The environment of the model and its buffers."""
        if self._environment is None:
            from jitdelegate.api.environment import Environment  # few models need one

            self._environment = Environment.create()
        return self._environment

    def report(self) -> Report:
        """Where each operator runs and why, what the cache did, and how long each stage took."""
        from jitdelegate.api.report import model_report

        graph = self._graphs.get(0)
        return model_report(self._specializations, graph.ran if graph else self._opened)

    def get_signature_list(self) -> dict[str, dict[str, list[str]]]:
        """Signature key to {"inputs": [names], "outputs": [names]}, in the order of `run_by_index`."""
        self._check_open()
        return {each.key: each.names() for each in self._signatures}

    def get_signature_by_index(self, index: int) -> dict[str, Any]:
        """{"key": key, "inputs": [names], "outputs": [names]} of a signature; raises RuntimeError for a wrong index."""
        signature = self._signature(index)
        return {"key": signature.key, **signature.names()}

    def get_num_signatures(self) -> int:
        """Number of signatures; 1 for a model without any, which has the default signature."""
        self._check_open()
        return len(self._signatures)

    def get_signature_index(self, key: str) -> int:
        """Index of a signature, -1 if there is none of this key; "" is the first one's."""
        self._check_open()
        if not isinstance(key, str):
            raise TypeError(f"a signature's key is {type(key).__name__}, expected str")
        return next((index for index, each in enumerate(self._signatures) if key in ("", each.key)), -1)

    def get_input_tensor_details(self, signature_key: str) -> dict[str, Any]:
        """Input name to {"name", "index", "dtype", "shape"} of its tensor; shapes are the current ones.

        Raises:
            RuntimeError: there is no such signature.
        """
        signature = self._keyed(signature_key)
        return self._details(signature, signature.inputs)

    def get_output_tensor_details(self, signature_key: str) -> dict[str, Any]:
        """As `get_input_tensor_details`, for the outputs."""
        signature = self._keyed(signature_key)
        return self._details(signature, signature.outputs)

    def get_input_buffer_requirements(self, input_index: int, signature_index: int = 0) -> dict[str, Any]:
        """{"buffer_size": bytes, "supported_types": [LiteRT's numbers]} of an input's memory.

        Raises:
            RuntimeError: there is no such signature or input.
        """
        signature = self._signature(signature_index)
        return self._requirements(signature, signature.inputs, input_index)

    def get_output_buffer_requirements(self, output_index: int, signature_index: int = 0) -> dict[str, Any]:
        """As `get_input_buffer_requirements`, for an output."""
        signature = self._signature(signature_index)
        return self._requirements(signature, signature.outputs, output_index)

    def is_fully_accelerated(self) -> bool:
        """Whether no operator of any signature runs on LiteRT."""
        self._check_open()
        return not any(graph.executable.message().remaining for graph in self._open_all())

    def create_input_buffer_by_name(
        self, signature_key: str, input_name: str, *, on_device: bool = False
    ) -> TensorBuffer:
        """A buffer of zeros for an input; raises RuntimeError for unknown names."""
        signature = self._keyed(signature_key)
        position = signature.inputs.position(input_name)
        return self._make_buffer(signature, signature.inputs, position, on_device=on_device)

    def create_output_buffer_by_name(
        self, signature_key: str, output_name: str, *, on_device: bool = False
    ) -> TensorBuffer:
        """A buffer of zeros for an output; raises RuntimeError for unknown names."""
        signature = self._keyed(signature_key)
        position = signature.outputs.position(output_name)
        return self._make_buffer(signature, signature.outputs, position, on_device=on_device)

    def create_input_buffers(self, signature_index: int | str = 0, *, on_device: bool = False) -> list[TensorBuffer]:
        """Buffers of zeros for all inputs of a signature, given by its index or key.

        Args:
            on_device: in the memory of the GPU that the model runs on. Else on the host, for a GPU in pinned memory.
        Raises:
            RuntimeError: there is no such signature.
        """
        signature = self._signature(signature_index)
        return self._make_buffers(signature, signature.inputs, on_device=on_device)

    def create_output_buffers(self, signature_index: int | str = 0, *, on_device: bool = False) -> list[TensorBuffer]:
        """As `create_input_buffers`, for the outputs. Sizes that only a run tells are the file's."""
        signature = self._signature(signature_index)
        return self._make_buffers(signature, signature.outputs, on_device=on_device)

    def resize_input_tensor(
        self, input_index: int, dims: Sequence[int], signature_index: int = 0, strict: bool = True
    ) -> None:
        """Set another shape for an input. A run on buffers of other shapes does it too, where the model allows them.

        Args:
            strict: refuse to change a size that the model fixes.
        Raises:
            RuntimeError: the shape is refused, or there is no such signature or input.
        """
        signature = self._signature(signature_index)
        place = self._place(signature, signature.inputs, input_index)
        if not all(hasattr(size, "__index__") for size in dims):
            raise TypeError(f"sizes are {dims!r}, expected whole numbers")
        shape = tuple(size.__index__() for size in dims)
        self._graph(signature).resize(place, shape, strict=strict)
        self._bound.clear()

    def resize_input_tensor_by_name(
        self, signature_key: str, input_name: str, dims: Sequence[int], strict: bool = True
    ) -> None:
        """As `resize_input_tensor`; raises ValueError for unknown names."""
        signature = self._keyed(signature_key)
        self.resize_input_tensor(signature.inputs.position(input_name), dims, self._signatures.index(signature), strict)

    def run_by_name(
        self, signature_key: str, input_map: Mapping[str, TensorBuffer], output_map: Mapping[str, TensorBuffer]
    ) -> None:
        """One inference on buffers by the signature's names. Other names are ignored, as in LiteRT.

        Raises:
            RuntimeError: as `run_by_index`; also for an unknown signature, or a name that is missing.
        """
        signature = self._keyed(signature_key)
        inputs, outputs = signature.inputs.in_order(input_map), signature.outputs.in_order(output_map)
        self.run_by_index(self._signatures.index(signature), inputs, outputs)

    def run_by_index(
        self, signature_index: int, input_buffers: Sequence[TensorBuffer], output_buffers: Sequence[TensorBuffer]
    ) -> None:
        """One inference. An output's buffer may be larger than the tensor, and may be an input's.

        Raises:
            RuntimeError: the number, type, shape or length of the buffers is wrong, there is no such signature, or
                the device failed. A CompiledModelError is a ValueError as well, as LiteRT has for destroyed buffers.
        """
        found = self._bound.get((signature_index, *map(id, (*input_buffers, None, *output_buffers))))  # as `_key`
        if found is None or not found.is_idle:
            self._run_unbound(signature_index, input_buffers, output_buffers)
            return
        try:
            found.session.run_bound(found.binding)  # type: ignore[arg-type]  # it is idle
        except ProgramError as error:
            self._replace(found, str(error))
            self._run_unbound(signature_index, input_buffers, output_buffers)

    def run(
        self,
        inputs: Sequence[TensorBuffer] | Mapping[str, TensorBuffer],
        outputs: Sequence[TensorBuffer] | Mapping[str, TensorBuffer] | None = None,
        signature: int | str = 0,
    ) -> Any:
        """One inference on lists of buffers, or on dictionaries by name.

        Args:
            outputs: None makes new buffers.
            signature: its index or key.
        Returns:
            The new buffers, as a list or a dictionary like the inputs; None where they were given.
        Raises:
            RuntimeError: as `run_by_index`.
        """
        if type(inputs) is type(outputs) is list and type(signature) is int:
            self.run_by_index(signature, inputs, outputs)
            return None
        found = self._signature(signature)
        given = _ordered(found.inputs, inputs)
        if outputs is None:
            made = self._run_anew(found, given)
            return made if given is inputs else dict(zip(found.outputs.names, made, strict=True))
        self.run_by_index(self._signatures.index(found), given, _ordered(found.outputs, outputs))
        return None

    def run_async(
        self,
        inputs: Sequence[TensorBuffer] | Mapping[str, TensorBuffer],
        outputs: Sequence[TensorBuffer] | Mapping[str, TensorBuffer],
        signature: int | str = 0,
    ) -> Event:
        """Begin an inference on lists of buffers, or on dictionaries by name, and return: LiteRT's RunAsync.

        Requests begin in the order in which they came, `requests_in_flight` of them are computed at a time, and their
        events happen in order. A request waits for the events of its buffers, and for earlier requests that use what it
        writes; its outputs get its own event, so that reading them waits for it. Python does not take part meanwhile,
        except where operators run on LiteRT. With 256 requests waiting, this waits for the first.

        Any thread may call it. Until the event has happened, leave the memory of the buffers alone, other than by the
        buffers' own methods, which wait for it.

        Args:
            signature: its index or key.
        Returns:
            The event that the outputs are written; waiting for it raises the errors of the inference.
        Raises:
            RuntimeError: as `run_by_index`, where it can be told at once.
        """
        found = self._signature(signature)
        index = self._signatures.index(found)
        return self.run_async_by_index(index, _ordered(found.inputs, inputs), _ordered(found.outputs, outputs))

    def run_async_by_name(
        self, signature_key: str, input_map: Mapping[str, TensorBuffer], output_map: Mapping[str, TensorBuffer]
    ) -> Event:
        """As `run_async`, with the arguments of `run_by_name`."""
        signature = self._keyed(signature_key)
        inputs, outputs = signature.inputs.in_order(input_map), signature.outputs.in_order(output_map)
        return self.run_async_by_index(self._signatures.index(signature), inputs, outputs)

    def run_async_by_index(
        self, signature_index: int, input_buffers: Sequence[TensorBuffer], output_buffers: Sequence[TensorBuffer]
    ) -> Event:
        """As `run_async`, with the arguments of `run_by_index`."""
        signature = self._signature(signature_index)
        check_buffers(signature.inputs, input_buffers)
        check_buffers(signature.outputs, output_buffers)
        if self._graph(signature).base.program.shape_inputs:  # their values decide which program runs
            for buffer in input_buffers:
                buffer.wait_event()
        found = self._bound_of(signature_index, input_buffers, output_buffers)
        needs, after = _events(input_buffers), [event for buffer in output_buffers for event in buffer.users()]
        try:
            event = found.session.run_async(found.binding, needs, after) if found and found.binding else None
        except ProgramError as error:
            assert found
            self._replace(found, str(error))
            return self.run_async_by_index(signature_index, input_buffers, output_buffers)
        if event is None:
            sides = _apart(input_buffers), _apart(output_buffers)
            event = self._requests().submit(lambda: self._run_on_litert(signature, *sides), needs, after)
        for buffer in input_buffers:
            buffer.add_reader(event)
        for buffer in output_buffers:
            buffer.set_event(event)
        return event

    def close(self) -> None:
        """Stop worker threads and free the model's memory. Buffers stay valid; the model cannot be used afterwards.

        Waits for requests of `run_async`, except for those that wait for events of others; they fail.
        """
        self._closed = True
        if self._litert_requests is not None:
            self._litert_requests.close()
        self._bound.clear()
        self._specializations.close()

    def __enter__(self) -> CompiledModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"CompiledModel({self._opened}: {', '.join(each.key for each in self._signatures)})"

    def __reduce__(self) -> NoReturn:
        """
        Raises:
            TypeError: always. Buffers belong to one process; a `Model` can be copied and pickled.
        """
        raise TypeError("a CompiledModel cannot be copied or pickled; make another one of the same model")

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

    def _signature(self, index: int | str) -> SignatureArguments:
        if isinstance(index, str):
            return self._keyed(index)
        self._check_open()
        if not 0 <= index < len(self._signatures):
            raise CompiledModelError(f"Signature index is out of range: {index}, the model has {len(self._signatures)}")
        return self._signatures[index]

    def _keyed(self, key: str) -> SignatureArguments:
        index = self.get_signature_index(key)
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

    def _place(self, signature: SignatureArguments, arguments: Arguments, position: int) -> int:
        """Position of an argument among the tensors of its subgraph."""
        places = arguments.places(self._graph(signature).base.program)
        if not 0 <= position < len(places):
            raise CompiledModelError(
                f"{arguments.kind.capitalize()} index out of range: {position}, the signature has {len(places)}"
            )
        return places[position]

    def _tensors(self, signature: SignatureArguments, arguments: Arguments) -> list[tuple[str, Shape]]:
        """Element type and current shape of each argument."""
        graph = self._graph(signature)
        program, is_input = graph.base.program, arguments.kind == "input"
        shapes = graph.shapes if is_input else graph.output_shapes()
        ports = program.inputs if is_input else program.outputs
        return [(ports[place].dtype, shapes[place]) for place in arguments.places(program)]

    def _make_buffers(
        self, signature: SignatureArguments, arguments: Arguments, *, on_device: bool
    ) -> list[TensorBuffer]:
        count = len(arguments.names)
        return [self._make_buffer(signature, arguments, position, on_device=on_device) for position in range(count)]

    def _make_buffer(
        self, signature: SignatureArguments, arguments: Arguments, position: int, *, on_device: bool
    ) -> TensorBuffer:
        """A buffer of zeros where the signature's program reaches it fastest."""
        dtype, shape = self._tensors(signature, arguments)[position]
        executable = self._graph(signature).executable
        program, session = executable.program, executable.session
        if session is None:
            return TensorBuffer.create(dtype, shape)
        place = arguments.places(program)[position] + (len(program.inputs) if arguments.kind == "output" else 0)
        return TensorBuffer(session.make_place(place, on_device=on_device), dtype, shape)

    def _details(self, signature: SignatureArguments, arguments: Arguments) -> dict[str, Any]:
        program = self._graph(signature).base.program
        ports = program.inputs if arguments.kind == "input" else program.outputs
        found = zip(arguments.names, arguments.places(program), self._tensors(signature, arguments), strict=True)
        return {
            name: {"name": ports[place].name, "index": ports[place].index, "dtype": dtype, "shape": list(shape)}
            for name, place, (dtype, shape) in found
        }

    def _requirements(self, signature: SignatureArguments, arguments: Arguments, position: int) -> dict[str, Any]:
        self._place(signature, arguments, position)
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
        for buffer in inputs:
            buffer.wait_event()
        for buffer in outputs:
            buffer.wait_for_users()
        found = self._bound_of(signature_index, inputs, outputs)
        if found is None:
            self._run_on_litert(signature, inputs, outputs)
            return
        try:
            found.session.run_bound(found.binding)  # type: ignore[arg-type]  # its buffers are alive
        except ProgramError as error:
            self._replace(found, str(error))
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
        found = Bound(executable, session, session.bind(self._places(signature, executable, inputs, outputs)))
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

    def _places(
        self,
        signature: SignatureArguments,
        executable: Executable,
        inputs: Sequence[TensorBuffer],
        outputs: Sequence[TensorBuffer],
    ) -> list[Place]:
        """Where the program's inputs and outputs lie; outputs without a name get memory of their own."""
        program = executable.program
        found = [inputs[position].place for position in signature.inputs.positions(program)]
        named = dict(zip(signature.outputs.places(program), outputs, strict=True))
        for place, port in enumerate(program.outputs):
            buffer = named.get(place) or TensorBuffer.create(port.dtype, port.shape)
            if buffer.dtype != port.dtype:
                raise CompiledModelError(f"output {port.name!r} has a buffer of {buffer.dtype}, expected {port.dtype}")
            if buffer.nbytes < port.nbytes:
                raise CompiledModelError(
                    f"output {port.name!r} has a buffer of {buffer.nbytes} bytes, expected {port.nbytes}"
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

    def _replace(self, found: Bound, reason: str) -> None:
        """Recompile a damaged program; raises the errors of `recompile`."""
        recompile(found.executable, found.session, reason)
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
        return [found[place].__array__() for place in signature.outputs.places(program)]

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
        places = signature.outputs.places(executable.program)
        outputs = [TensorBuffer.create(ports[place].dtype, ports[place].shape) for place in places]
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


def _ordered(
    arguments: Arguments, buffers: Sequence[TensorBuffer] | Mapping[str, TensorBuffer]
) -> Sequence[TensorBuffer]:
    return arguments.in_order(buffers) if hasattr(buffers, "keys") else buffers  # type: ignore[arg-type]


def check_buffers(arguments: Arguments, buffers: Sequence[TensorBuffer]) -> None:
    """
    Raises:
        CompiledModelError: their number is wrong, one is no buffer, or was destroyed.
    """
    for name, buffer in zip(arguments.names, arguments.counted(buffers), strict=True):
        if not isinstance(buffer, TensorBuffer):
            raise CompiledModelError(f"{arguments.kind} {name!r} is {type(buffer).__name__}, expected a TensorBuffer")
        assert buffer.place


def _events(buffers: Sequence[TensorBuffer]) -> list[Event]:
    """The events that reading the buffers has to wait for."""
    return [event for event in (buffer.get_event() for buffer in buffers) if event is not None]


def _apart(buffers: Sequence[TensorBuffer]) -> list[TensorBuffer]:
    """Buffers on the same memory, for one request: they have no events, and stay as they are."""
    return [TensorBuffer(buffer.place, buffer.dtype, buffer.shape) for buffer in buffers]


def _resolve(
    options: Options | None, hardware_accel: int | None, further: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """(keywords of `DelegateOptions`, sentences for the report).

    Raises:
        OptionError: options and flags are both given, or an option is refused.
        DeviceError: only an NPU may be used.
    """
    notes: list[str] = []
    keywords: dict[str, Any] = {}
    flags = CPU if hardware_accel is None else hardware_accel
    if options is not None:
        if hardware_accel is not None:
            raise OptionError("Pass either options or hardware_accel, not both.")
        if not hasattr(options, "keywords"):
            raise OptionError(f"options are {options!r}, expected jitdelegate.Options or flags of HardwareAccelerator")
        flags, keywords, notes = options.hardware_accelerators, options.keywords(), options.notes()
    if isinstance(flags, int) and flags & NPU:
        flags = _without_npu(int(flags))
    return {"hardware_accelerators": flags, **keywords, **further}, notes


def _without_npu(flags: int) -> int:
    """The flags without that of the NPU, with a warning.

    Raises:
        DeviceError: no CPU is allowed.
    """
    words = "jitdelegate compiles for CPUs and NVIDIA GPUs, and nothing runs on an NPU"
    if not flags & CPU:
        raise DeviceError(f"{words}; NPU | CPU runs the model on the CPU")
    from jitdelegate.errors import DelegateWarning
    from jitdelegate.options.user_warning import warn_user  # not before: few callers ask for an NPU

    warn_user(f"{words}; the model runs without it", DelegateWarning)
    return flags & ~NPU
