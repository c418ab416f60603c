"""CompiledModel: LiteRT Next's interface, so that code for it changes by its import lines."""

from __future__ import annotations

import os

from jitdelegate.api import announce
from jitdelegate.api.buffer_runs import BufferRuns
from jitdelegate.api.tensor_buffer import TensorBuffer
from jitdelegate.base.options import DelegateOptions
from jitdelegate.base.targets import CPU, NPU
from jitdelegate.engine.load_path import REPLACEABLE, open_model
from jitdelegate.engine.model_file import ModelFile
from jitdelegate.errors import DeviceError, OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Any, NoReturn, Unpack, overload

    from jitdelegate.api.environment import Environment
    from jitdelegate.api.report import Report
    from jitdelegate.api.signature_arguments import Arguments
    from jitdelegate.base.litert_options import Options
    from jitdelegate.base.option_types import Creation, ExtraOutputs
    from jitdelegate.engine.executable import Executable
    from jitdelegate.engine.model_file import Source
    from jitdelegate.runtime.event import Event

    Buffers = Sequence[TensorBuffer] | Mapping[str, TensorBuffer]
    Shape = tuple[int, ...]


class CompiledModel(BufferRuns):
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
        super().__init__(executable)
        self._environment = environment

    @classmethod
    def from_file(
        cls,
        model_path: str | os.PathLike[str],
        hardware_accel: int | None = None,
        environment: Environment | None = None,
        options: Options | None = None,
        *,
        extra_outputs: ExtraOutputs = None,
    ) -> CompiledModel:
        """The model in a file, compiled or taken from the cache.

        Args:
            hardware_accel: flags of `HardwareAccelerator`, CPU unless `options` has others. GPU alone refuses a model
                that is not compiled whole, GPU | CPU takes what there is.
            environment: shared with other models; it may name the directory of compiled programs.
            extra_outputs: names or indices of tensors that are outputs too, as in `DelegateOptions`.
        Raises:
            RuntimeError: a ModelError for a file that is missing or no model, a DeviceError where this machine lacks
                what is asked for, a DelegationError with each operator's reason for GPU alone.
            OptionError: options and `hardware_accel` are both given, or an option is refused. It is a ValueError.
        """
        return cls._open(os.fsdecode(model_path), _resolve(options, hardware_accel, _given(extra_outputs)), environment)

    @classmethod
    def from_buffer(
        cls,
        model_data: bytes,
        hardware_accel: int | None = None,
        environment: Environment | None = None,
        options: Options | None = None,
        *,
        extra_outputs: ExtraOutputs = None,
    ) -> CompiledModel:
        """The model in a file's content; as `from_file`."""
        given = _resolve(options, hardware_accel, _given(extra_outputs))
        return cls._open(bytes(memoryview(model_data)), given, environment)

    @classmethod
    def create(
        cls,
        path_or_bytes: Source,
        options: Options | int | None = None,
        *,
        environment: Environment | None = None,
        **delegate_options: Unpack[Creation],
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
        return {signature.key: signature.names() for signature in self._signatures}

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
        return self._index(key)

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
        return self._make_buffers(signature, signature.inputs, [position], on_device=on_device)[0]

    def create_output_buffer_by_name(
        self, signature_key: str, output_name: str, *, on_device: bool = False
    ) -> TensorBuffer:
        """A buffer of zeros for an output; raises RuntimeError for unknown names."""
        signature = self._keyed(signature_key)
        position = signature.outputs.position(output_name)
        return self._make_buffers(signature, signature.outputs, [position], on_device=on_device)[0]

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
        index = self._port_index(signature, signature.inputs, input_index)
        if not all(hasattr(size, "__index__") for size in dims):
            raise TypeError(f"sizes are {dims!r}, expected whole numbers")
        shape = tuple(size.__index__() for size in dims)
        self._graph(signature).resize(index, shape, strict=strict)
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
        except REPLACEABLE as error:
            self._replace(found.executable, found.session, error)
            self._run_unbound(signature_index, input_buffers, output_buffers)

    if TYPE_CHECKING:

        @overload
        def run(
            self, inputs: Sequence[TensorBuffer], outputs: None = None, signature: int | str = 0
        ) -> list[TensorBuffer]: ...

        @overload
        def run(
            self, inputs: Mapping[str, TensorBuffer], outputs: None = None, signature: int | str = 0
        ) -> dict[str, TensorBuffer]: ...

        @overload
        def run(self, inputs: Buffers, outputs: Buffers, signature: int | str = 0) -> None: ...

    def run(
        self, inputs: Buffers, outputs: Buffers | None = None, signature: int | str = 0
    ) -> list[TensorBuffer] | dict[str, TensorBuffer] | None:
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
        inputs: Buffers,
        outputs: Buffers,
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
        return self._run_async(signature_index, input_buffers, output_buffers)

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


def _ordered(arguments: Arguments, buffers: Buffers) -> Sequence[TensorBuffer]:
    return arguments.in_order(buffers) if hasattr(buffers, "keys") else buffers  # type: ignore[arg-type]


def _given(extra_outputs: ExtraOutputs) -> dict[str, Any]:
    return {} if extra_outputs is None else {"extra_outputs": extra_outputs}


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
    from jitdelegate.base.user_warning import warn_user  # not before: few callers ask for an NPU
    from jitdelegate.errors import DelegateWarning

    warn_user(f"{words}; the model runs without it", DelegateWarning)
    return flags & ~NPU
