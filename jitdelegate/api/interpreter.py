"""Interpreter: LiteRT's interface, so that existing code changes by its import line."""

from __future__ import annotations

import os

from jitdelegate.api import announce
from jitdelegate.api.delegate import GpuDelegate
from jitdelegate.base.options import DelegateOptions
from jitdelegate.engine.compiled_interpreter import CompiledInterpreter, copied
from jitdelegate.engine.load_path import load
from jitdelegate.engine.model_file import ModelFile
from jitdelegate.engine.specializations import Specializations
from jitdelegate.errors import DeviceError, OptionError, TensorError
from jitdelegate.runtime.buffers import counted_type, in_type

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, NoReturn

    from ai_edge_litert.interpreter import OpResolverType
    from numpy.typing import NDArray

    from jitdelegate.api.report import Report
    from jitdelegate.base.option_types import ExtraOutputs
    from jitdelegate.engine.shape_inputs import ShapeInputInterpreter

VIEWED = (
    "There is at least 1 reference to internal data in the interpreter in the form of a numpy array or slice. Be sure "
    "to only hold the function returned from tensor() if you are using raw data access."
)
DEFAULT_RESOLVERS = ("AUTO", "BUILTIN")
"""LiteRT's op resolvers that compiled code may replace; any other asks for particular kernels."""


class Interpreter:
    """Runs a .tflite model with the methods, dictionaries and error types of `ai_edge_litert.interpreter.Interpreter`.

    A subgraph that is compiled whole runs from a program per choice of input shapes; any other runs on LiteRT.
    `report` says which and why.
    """

    def __init__(
        self,
        model_path: str | bytes | os.PathLike[str] | None = None,
        model_content: bytes | None = None,
        experimental_delegates: Sequence[Any] | None = None,
        num_threads: int | None = None,
        experimental_op_resolver_type: OpResolverType | None = None,
        experimental_preserve_all_tensors: bool = False,
        experimental_disable_delegate_clustering: bool = False,
        experimental_default_delegate_latest_features: bool = False,
        experimental_compress_quantization_zero_points: bool = False,
        experimental_disable_delegate_node_fusion: bool = False,
        experimental_force_delegate_node_profiling: bool = False,
        *,
        extra_outputs: ExtraOutputs = None,
    ) -> None:
        """As LiteRT's constructor.

        Args:
            num_threads: threads that share one inference, at most 64 of them.
            experimental_delegates: a `GpuDelegate` carries jitdelegate's options; with any other delegate the whole
                model runs on LiteRT with those.
            experimental_op_resolver_type: None is AUTO. Any but AUTO and BUILTIN means LiteRT.
            experimental_preserve_all_tensors: compile with every tensor that an operator computes kept for
                `get_tensor`, and with no further outputs. Some operators are then not fused, so it runs slower.
            extra_outputs: names or indices of tensors that are outputs too, as in `DelegateOptions`.
        Raises:
            TypeError: `model_path` is not a path.
            ValueError: a wrong argument; a `ModelError` for a file that is missing or not a model, an `OptionError` for
                an extra output that is no tensor of the model.
            RuntimeError: a `DeviceError` where the machine lacks the requested target or CPU features.
        """
        _check_arguments(model_path, model_content, num_threads, experimental_op_resolver_type)
        options, foreign = _split_delegates(experimental_delegates or (), num_threads)
        if extra_outputs is not None:
            options = options.altered(extra_outputs=extra_outputs)
        self._experimental_compress_quantization_zero_points = experimental_compress_quantization_zero_points
        flags = {
            "experimental_preserve_all_tensors": experimental_preserve_all_tensors,
            "experimental_disable_delegate_clustering": experimental_disable_delegate_clustering,
            "experimental_default_delegate_latest_features": experimental_default_delegate_latest_features,
            "experimental_compress_quantization_zero_points": experimental_compress_quantization_zero_points,
            "experimental_disable_delegate_node_fusion": experimental_disable_delegate_node_fusion,
            "experimental_force_delegate_node_profiling": experimental_force_delegate_node_profiling,
        }
        arguments: dict[str, Any] = {name: True for name, flag in flags.items() if flag}  # older LiteRTs lack some
        if experimental_op_resolver_type is not None:
            arguments["experimental_op_resolver_type"] = experimental_op_resolver_type
        if foreign:
            arguments["experimental_delegates"] = foreign
        notes = _reasons_for_litert(arguments)
        if notes:
            options.target = "litert"
        self._preserves = experimental_preserve_all_tensors and not notes
        if self._preserves:
            self._named_outputs, options.extra_outputs = options.extra_outputs, True
        source = model_content or os.fsdecode(model_path)  # type: ignore[arg-type]
        self._opened = load(ModelFile(source, options, arguments, announce), notes=notes)
        self._specializations = Specializations(self._opened)
        self._all_on_litert = self._opened.is_left_to_litert
        self._main = CompiledInterpreter(self._specializations, self._opened)
        self._kept = self._main.kept
        self._graphs = {0: self._main}
        self._shape_inputs = self._shape_input_interpreter()
        self._own: frozenset[tuple[int, int]] | None = None

    def _graph(self, subgraph: int) -> CompiledInterpreter | None:
        """LiteRT's methods on a subgraph's programs; None where the whole model runs on LiteRT."""
        if self._all_on_litert:
            return None
        if subgraph not in self._graphs:
            self._graphs[subgraph] = CompiledInterpreter(
                self._specializations, self._specializations.subgraph(subgraph)
            )
        return self._graphs[subgraph]

    def _shape_input_interpreter(self) -> ShapeInputInterpreter | None:
        """LiteRT's interpreter with programs for the values of shape inputs; None for a model without these."""
        if not self._opened.program.shape_inputs or self._all_on_litert:
            return None
        from jitdelegate.engine.shape_inputs import ShapeInputInterpreter  # not before: few models need it

        return ShapeInputInterpreter(self._specializations, self._opened)

    @property
    def _compiled(self) -> CompiledInterpreter | None:
        """The main subgraph, None while it runs on LiteRT."""
        return self._main if self._main.compiled and not self._all_on_litert else None

    @property
    def _backend(self) -> Any:
        """The object that LiteRT's methods act on: the compiled graph, or LiteRT's own interpreter."""
        main = self._main
        if main.allocated and not self._all_on_litert:
            return main
        return self._compiled or self._shape_inputs or self._opened.source.fallback().interpreter

    def _backend_of(self, subgraph: int) -> Any:
        graph = self._graphs.get(subgraph)
        return graph if graph is not None and graph.compiled and not self._all_on_litert else self._backend

    def __repr__(self) -> str:
        return f"Interpreter({self._opened})"

    def __reduce__(self) -> NoReturn:
        """
        Raises:
            TypeError: always. A copy would share the tensors that the user has set.
        """
        raise TypeError("an Interpreter cannot be copied or pickled; make another one of the same model")

    def report(self) -> Report:
        """Where the model runs and why, what the cache did, and how long each stage took."""
        ran = self._compiled or self._shape_inputs
        executable = ran.executable if ran else self._opened if self._all_on_litert else self._main.executable
        from jitdelegate.api.report import model_report

        return model_report(self._specializations, executable)

    def allocate_tensors(self) -> None:
        """Prepare the model; before, only shapes and details are known.

        Raises:
            RuntimeError: LiteRT cannot run the model, a `DeviceError` with LiteRT's message; or somebody holds a view
                that `tensor` gave.
        """
        self._ensure_safe()
        self._allocate()

    def _allocate(self) -> None:
        if self._shape_inputs:
            self._shape_inputs.forget()
        if self._all_on_litert:
            self._opened.allocate()
            return
        self._main.allocate_tensors()
        if not self._main.compiled:
            fallback = self._opened.source.fallback()
            fallback.fit(self._main.shapes)
            self._main.executable.allocate()
            fallback.in_use = True  # from here on it holds values of `set_tensor`

    def invoke(self) -> None:
        """Run the model once on the current input values.

        Raises:
            RuntimeError: `allocate_tensors` was not called, LiteRT failed, or somebody holds a view that `tensor` gave.
        """
        main = self._main
        if main.views:
            self._ensure_safe()
        if main.allocated and not self._all_on_litert:
            main.invoke()
            return
        self._announce()
        (self._compiled or self._shape_inputs or self._opened.source.fallback()).invoke()

    def _announce(self, subgraph: int = 0) -> None:
        """Announce what runs on LiteRT, before the first run with the shapes of the last `allocate_tensors`."""
        graph = None if self._all_on_litert else self._graphs.get(subgraph)
        (graph.executable if graph else self._opened).announce()

    def set_tensor(self, tensor_index: int, value: Any) -> None:
        """Copy `value` into the tensor.

        Raises:
            ValueError: the type or shape differs, or tensors are not allocated.
        """
        kept = self._kept.get(tensor_index) if type(tensor_index) is int else None
        if kept is not None:  # as `put`, without a call, since most calls come from loops of inferences
            view, array_class, dtype, shape = kept
            if type(value) is array_class and value.dtype is dtype and value.shape == shape:
                view[...] = value
                return
        self._backend.set_tensor(tensor_index, value)

    def get_tensor(self, tensor_index: int, subgraph_index: int = 0) -> NDArray[Any]:
        """A copy of the tensor's value.

        Raises:
            ValueError: there is no such tensor, it has no value, or tensors are not allocated.
        """
        kept = self._kept.get(tensor_index) if subgraph_index == 0 and type(tensor_index) is int else None
        if kept is not None:  # as in `set_tensor`
            return copied(kept[0])
        backend = self._backend_of(subgraph_index) if subgraph_index else self._backend
        return backend.get_tensor(tensor_index, subgraph_index)  # type: ignore[no-any-return]

    def tensor(self, tensor_index: int) -> Callable[[], NDArray[Any]]:
        """A function that returns a view of the tensor's memory, for reading and writing between runs.

        Hold the function, not the view: as in LiteRT, nothing runs, resizes or allocates while a view or a slice of one
        is held.
        """
        return lambda: self._backend.tensor(tensor_index)()

    def resize_tensor_input(self, input_index: int, tensor_size: Sequence[int], strict: bool = False) -> None:
        """Set another shape for an input; the next `allocate_tensors` finds or compiles the program for it.

        Raises:
            ValueError, RuntimeError, TypeError: as LiteRT's method, where `strict`, the index or the shape forbids it.
                A size beyond int32 is a ValueError, a view of `tensor` that somebody holds a RuntimeError.
        """
        self._ensure_safe()
        self._resize(input_index, tensor_size, strict=strict)

    def _resize(self, input_index: int, tensor_size: Sequence[int], *, strict: bool) -> None:
        import numpy as np

        try:
            sizes = np.array(tensor_size, np.int32)
        except OverflowError as error:
            raise TensorError(f"tensor {input_index} cannot be resized to {tensor_size}: {error}") from error
        shape = tuple(sizes.tolist()) if sizes.ndim == 1 else None
        if self._compiled and shape is not None and self._main.resize(input_index, shape, strict=strict):
            return
        fallback = self._opened.source.fallback()
        if self._compiled:
            fallback.fit(self._main.shapes)
        fallback.resize(input_index, sizes, strict)
        if shape is None or not self._main.resize(input_index, shape):
            self._opened.fall_back(f"tensor {input_index}, which is no input, was resized to {sizes.tolist()}.")
            self._all_on_litert = True
            self._main.release()

    def _ready(self, subgraph: int, shapes: Mapping[int, tuple[int, ...]]) -> CompiledInterpreter | None:
        """A subgraph, allocated for these shapes by input index; None where it runs on LiteRT."""
        if subgraph == 0:
            for index, shape in shapes.items():
                self._resize(index, shape, strict=False)
            if not self._main.allocated:  # else no memory moves
                self._ensure_safe()
            self._allocate()
            return self._compiled
        graph = self._graph(subgraph)
        if graph is None or not all(graph.resize(index, shape) for index, shape in shapes.items()):
            return None
        graph.allocate_tensors()
        return graph if graph.compiled else None

    def get_input_details(self) -> list[dict[str, Any]]:
        """One dictionary per input: name, index, shape, shape_signature, dtype, quantization and its parameters."""
        return self._backend.get_input_details()  # type: ignore[no-any-return]

    def get_output_details(self) -> list[dict[str, Any]]:
        """As `get_input_details`, for the outputs."""
        details: list[dict[str, Any]] = self._backend.get_output_details()
        return [detail for detail in details if self._is_own(0, detail["index"])] if self._preserves else details

    def _is_own(self, subgraph: int, tensor: int) -> bool:
        """Whether a tensor is an output that was asked for, and not only preserved."""
        if self._own is None:
            self._own = self._opened.source.outputs_with(self._named_outputs)
        return (subgraph, tensor) in self._own

    def get_tensor_details(self, subgraph_index: int = 0) -> list[dict[str, Any]]:
        """As `get_input_details`, for every tensor of a subgraph; asks LiteRT, also for compiled models."""
        return self._backend.get_tensor_details(subgraph_index)  # type: ignore[no-any-return]

    def _get_tensor_details(self, tensor_index: int, subgraph_index: int) -> dict[str, Any]:
        backend = self._backend_of(subgraph_index)
        return backend._get_tensor_details(tensor_index, subgraph_index)  # type: ignore[no-any-return]

    def _get_ops_details(self) -> list[dict[str, Any]]:
        return self._backend._get_ops_details()  # type: ignore[no-any-return]

    def _get_op_details(self, op_index: int) -> dict[str, Any]:
        """As LiteRT's method; raises its ValueError for an index that is none."""
        from operator import index  # not before: few callers ask for one operator

        operators, position = self._get_ops_details(), index(op_index)
        if not 0 <= position < len(operators):
            raise TensorError(f"Invalid node index: {position}, the subgraph has {len(operators)} operators")
        return operators[position]

    def _safe_to_run(self) -> bool:
        """Whether nobody holds a view that `tensor` gave, as LiteRT's method of this name."""
        return self._all_on_litert or not self._main.is_viewed

    def _ensure_safe(self) -> None:
        """
        Raises:
            RuntimeError: somebody holds a view of a tensor's memory. It is a DeviceError, with LiteRT's words.
        """
        if not self._safe_to_run():
            raise DeviceError(VIEWED)

    def num_subgraphs(self) -> int:
        """Number of the model's subgraphs."""
        return self._backend.num_subgraphs()  # type: ignore[no-any-return]

    def reset_all_variables(self) -> None:
        """Reset the variables of all subgraphs; resource variables keep their values, as in LiteRT."""
        backends = {id(backend): backend for backend in map(self._backend_of, self._graphs)}
        for backend in backends.values():
            backend.reset_all_variables()

    @property
    def experimental_compress_quantization_zero_points(self) -> bool:
        """The argument of this name."""
        return self._experimental_compress_quantization_zero_points

    def _get_full_signature_list(self) -> dict[str, Any]:
        signatures: dict[str, Any] = self._backend._get_full_signature_list()
        for signature in self._opened.program.signatures if self._preserves else ():
            arguments = signatures[signature.key]
            own = {name: at for name, at in arguments["outputs"].items() if self._is_own(signature.graph, at)}
            signatures[signature.key] = {**arguments, "outputs": own}
        return signatures

    def get_signature_list(self) -> dict[str, Any]:
        """Signature key to {"inputs": [names], "outputs": [names]}."""
        return {
            key: {side: list(names) for side, names in signature.items()}
            for key, signature in self._get_full_signature_list().items()
        }

    def get_signature_runner(self, signature_key: str | None = None) -> SignatureRunner:
        """A callable for one signature; None takes the only one.

        Raises:
            ValueError: no such signature, or None where there is not exactly one.
        """
        signatures = self._get_full_signature_list()
        if signature_key is None:
            if len(signatures) != 1:
                raise TensorError(
                    f"SignatureDef signature_key is None and model has {len(signatures)} Signatures. "
                    "None is only allowed when the model has 1 SignatureDef"
                )
            signature_key = next(iter(signatures))
        return SignatureRunner(self, signature_key)


class SignatureRunner:
    """Runs one signature, with arguments and results by its names. `get_signature_runner` makes it."""

    def __init__(self, interpreter: Interpreter | None = None, signature_key: str | None = None) -> None:
        """
        Raises:
            ValueError: an argument is missing, or the model has no such signature.
        """
        if not interpreter:
            raise TensorError("None interpreter provided.")
        if not signature_key:
            raise TensorError("None signature_key provided.")
        signatures = interpreter._get_full_signature_list()
        if signature_key not in signatures:
            raise TensorError(f'Invalid signature_key provided: "{signature_key}".')
        self._interpreter = interpreter
        self._key = signature_key
        self._inputs: dict[str, int] = signatures[signature_key]["inputs"]
        self._outputs: dict[str, int] = signatures[signature_key]["outputs"]
        self._subgraph = self._find_subgraph()
        self._counted: dict[str, str] = {}
        interpreter._graph(self._subgraph)

    def __call__(self, **kwargs: Any) -> dict[str, NDArray[Any]]:
        """Run the signature on arrays; their shapes may differ from the file's.

        Returns:
            Output name to a copy of its value.
        Raises:
            ValueError: the number, names, types or shapes of the arguments are wrong.
            RuntimeError: LiteRT failed.
        """
        graph = self._interpreter._graphs.get(self._subgraph)
        if graph is not None and self._put(graph, kwargs):
            return self._results(graph)
        if len(kwargs) != len(self._inputs):
            raise TensorError(
                "Invalid number of inputs provided for running a SignatureDef, "
                f"expected {len(self._inputs)} vs provided {len(kwargs)}"
            )
        for name in kwargs:
            if name not in self._inputs:
                raise TensorError(f"Invalid Input name ({name}) for SignatureDef")
        kwargs = {name: self._taken(name, value) for name, value in kwargs.items()}
        shapes = {self._inputs[name]: tuple(value.shape) for name, value in kwargs.items()}
        graph = self._interpreter._ready(self._subgraph, shapes)
        if graph is None:
            self._interpreter._announce(self._subgraph)
            return self._run_on_litert(kwargs)
        return self._run_compiled(graph, kwargs)

    def _put(self, graph: CompiledInterpreter, arguments: Mapping[str, Any]) -> bool:
        """Copy the arguments into the inputs if they are arrays like those of the call before, for which nothing has to
        be prepared; whether they are."""
        inputs = self._inputs
        are_all = len(arguments) == len(inputs)
        return are_all and all(name in inputs and graph.put(inputs[name], arguments[name]) for name in arguments)

    def _taken(self, name: str, value: Any) -> Any:
        """The value of an argument, with integers in the type of an int32 or int64 input."""
        if getattr(getattr(value, "dtype", None), "kind", "") not in ("i", "u"):
            return value
        if name not in self._counted:
            detail = self._details({name: self._inputs[name]})[name]
            self._counted[name] = counted_type(detail["dtype"].__name__, detail["quantization_parameters"]["scales"])
        dtype = self._counted[name]
        return in_type(value, name, dtype) if dtype and value.dtype != dtype else value

    def _find_subgraph(self) -> int:
        """The subgraph that the signature runs."""
        signatures = self._interpreter._opened.program.signatures
        return next((signature.graph for signature in signatures if signature.key == self._key), 0)

    def _run_on_litert(self, arguments: dict[str, Any]) -> dict[str, NDArray[Any]]:
        fallback = self._interpreter._opened.source.fallback()
        fallback.allocate()
        fallback.in_use = True
        interpreter = fallback.interpreter
        results: dict[str, NDArray[Any]] = interpreter.get_signature_runner(self._key)(**arguments)
        interpreter.note_run()
        return results

    def _run_compiled(self, graph: CompiledInterpreter, arguments: dict[str, Any]) -> dict[str, NDArray[Any]]:
        for name, value in arguments.items():
            graph.set_tensor(self._inputs[name], value)
        return self._results(graph)

    def _results(self, graph: CompiledInterpreter) -> dict[str, NDArray[Any]]:
        """One inference on the inputs that were set."""
        graph.invoke()
        return {name: graph.get_tensor(index, self._subgraph) for name, index in self._outputs.items()}

    def get_input_details(self) -> dict[str, dict[str, Any]]:
        """Argument name to the tensor's details, as `Interpreter.get_input_details` gives them."""
        return self._details(self._inputs)

    def get_output_details(self) -> dict[str, dict[str, Any]]:
        """Result name to the tensor's details."""
        return self._details(self._outputs)

    def _details(self, tensors: dict[str, int]) -> dict[str, dict[str, Any]]:
        details = self._interpreter._get_tensor_details
        return {name: details(index, self._subgraph) for name, index in tensors.items()}


def _check_arguments(path: Any, content: Any, num_threads: Any, resolver: Any) -> None:
    """Refuse the arguments that LiteRT refuses, in LiteRT's words."""
    if resolver is not None and getattr(resolver, "name", None) not in (
        *DEFAULT_RESOLVERS,
        "BUILTIN_REF",
        "BUILTIN_WITHOUT_DEFAULT_DELEGATES",
    ):
        raise OptionError(f"Unrecognized passed in op resolver type: {resolver}")
    if num_threads is not None and not isinstance(num_threads, int):
        raise OptionError("type of num_threads should be int")
    if num_threads is not None and num_threads < 1:
        raise OptionError("num_threads should >= 1")
    if not path and not content:
        raise OptionError("`model_path` or `model_content` must be specified.")
    if path and content:
        raise OptionError("Can't both provide `model_path` and `model_content`")
    if isinstance(content, str | os.PathLike):
        raise OptionError(f"model_content is {content!r}, expected bytes; a file's name goes into model_path")


def _split_delegates(delegates: Sequence[Any], num_threads: int | None) -> tuple[DelegateOptions, list[Any]]:
    """Our options (from the one GpuDelegate, or defaults) and the other delegates."""
    ours = [delegate for delegate in delegates if isinstance(delegate, GpuDelegate)]
    if len(ours) > 1:
        raise OptionError(f"{len(ours)} GpuDelegates given, expected at most one")
    given = ours[0].options if ours else DelegateOptions()
    return given.with_threads(num_threads), [
        delegate for delegate in delegates if not isinstance(delegate, GpuDelegate)
    ]


def _reasons_for_litert(arguments: dict[str, Any]) -> list[str]:
    """Sentences why these arguments of LiteRT's interpreter keep the whole model on LiteRT."""
    reasons = []
    if "experimental_delegates" in arguments:
        reasons.append("on LiteRT: delegates other than jitdelegate's were given.")
    resolver = arguments.get("experimental_op_resolver_type")
    if resolver is not None and resolver.name not in DEFAULT_RESOLVERS:
        reasons.append(f"on LiteRT: the kernels {resolver.name} were asked for.")
    return reasons
