"""load(): a model as a callable object, from inputs to outputs."""

from __future__ import annotations

from jitdelegate.api import announce
from jitdelegate.base.options import DelegateOptions, OptionSignature
from jitdelegate.engine import load_path
from jitdelegate.engine.model_file import ModelFile
from jitdelegate.errors import DeviceError, ModelError, TensorError
from jitdelegate.runtime.buffers import accepted_shape

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Any, Protocol, TypeVar, Unpack

    from _typeshed import ReadableBuffer
    from numpy.typing import NDArray

    from jitdelegate.api.model_session import ModelSession
    from jitdelegate.api.report import Report
    from jitdelegate.api.tensor_info import SignatureInfo, TensorInfo
    from jitdelegate.base.option_types import Keywords
    from jitdelegate.engine.executable import Executable
    from jitdelegate.engine.model_file import Source
    from jitdelegate.engine.specializations import Specializations
    from jitdelegate.program.program import Port, Signature
    from jitdelegate.runtime.io_binding import IOBinding

    Item = TypeVar("Item")

    class Steps(Protocol):
        """What is told of the steps of something that takes long, such as a progress bar."""

        def more(self, steps: int) -> object: ...

        def begin(self, text: str) -> object: ...

        def done(self) -> object: ...


class Model:
    """A loaded model; `load` makes it. Several threads may call it; it runs one inference at a time.

    `copy.copy`, `copy.deepcopy` and `pickle` open the model again, usually from the cache, with its own threads, memory
    and reset variables. A model of a file is pickled as its path, which has to hold the same model at unpickling.
    """

    def __init__(self, executable: Executable) -> None:
        self._opened = executable
        self._opened_later: Specializations | None = None
        self._program = executable.program
        self._ran_last = executable
        self._only = None if executable.is_open or executable.program.shape_inputs else executable  # for all inputs
        self._closed = False
        self._ports: list[tuple[Sequence[Port], Sequence[Port]]] | None = None
        self._calls: dict[str, _Call] = {}

    @property
    def _specializations(self) -> Specializations:
        """All programs of the model; most models have one."""
        if self._opened_later is None:
            from jitdelegate.engine.specializations import Specializations

            with self._opened.lock:  # two threads may be the first
                self._opened_later = self._opened_later or Specializations(self._opened)
        return self._opened_later

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(repr, ports)) for ports in (self.inputs, self.outputs))
        return f"Model({self._opened}: {inputs} -> {outputs})"

    def _repr_html_(self) -> str:
        """What a notebook shows: inputs and outputs, signatures, and where the model runs."""
        from jitdelegate.base.html_tables import html_table  # not before: only notebooks ask for it

        ports = [(kind, one) for kind, all in (("input", self.inputs), ("output", self.outputs)) for one in all]
        rows = [(kind, one.name, one.dtype, list(one.shape_signature or one.shape)) for kind, one in ports]
        keys = ", ".join(map(repr, self.signatures)) or "none"
        table = html_table(f"Model {self._opened}; signatures: {keys}", rows, ("", "name", "type", "shape"))
        return table if self._closed else f"{table}\n{self.report()._repr_html_()}"

    def report(self) -> Report:
        """Where each operator runs and why, what the cache did, and how long each stage took.

        For a model with shape inputs, it describes the program of the last inference.
        """
        executable = self._ran_last if self._program.shape_inputs else self._opened
        from jitdelegate.api.report import model_report

        return model_report(self._specializations, executable)

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """The model's inputs, in the order of a call's arguments."""
        return _described(self._program.inputs)

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """The model's outputs, in the order of a call's results."""
        return _described(self._program.outputs)

    @property
    def signatures(self) -> dict[str, SignatureInfo]:
        """The signatures by their keys, for `run`: names, shapes and types of inputs and outputs.

        Each is also a dictionary {"inputs": [names], "outputs": [names]}, in alphabetical order.
        """
        from jitdelegate.api.tensor_info import SignatureInfo  # not before: few callers ask for it

        return {each.key: SignatureInfo(each, self._ports_of) for each in self._program.signatures}

    def _ports_of(self, subgraph: int) -> tuple[Sequence[Port], Sequence[Port]]:
        """Inputs and outputs of a subgraph; from the model's file where its program is not open, which takes less time
        than to compile it. Raises ModelError where that cannot be read."""
        opened = self._specializations.open_subgraphs.get(subgraph)
        if opened is not None:
            return opened.program.inputs, opened.program.outputs
        if self._ports is None:
            self._ports = self._opened.source.make(_file_ports)
        return self._ports[subgraph]

    def __call__(self, *inputs: Any) -> NDArray[Any]:
        """One inference.

        Args:
            inputs: one value per input: an array, a nested list, or a flat row-major buffer with as many elements or
                bytes as the tensor. Only an array may have another size where the model leaves it open.
        Returns:
            The output, or a tuple of several; for type checkers an array, which they let you unpack. Each behaves as
            the numpy array on its memory, which numpy.asarray and DLPack share, and has the buffer protocol; `.dtype`
            is numpy's name of the type, a string, and equals that type. String tensors are numpy arrays of bytes.
        Raises:
            TensorError: the number, type, shape or length of the inputs is wrong.
            DeviceError: LiteRT or the GPU failed while running the model, or the model is closed.
        """
        outputs: Any = self._run(self._opened, inputs)
        return outputs[0] if len(outputs) == 1 else outputs  # type: ignore[no-any-return]

    def run(
        self, inputs: Mapping[str, Any], signature: str | None = None, out: Mapping[str, Any] | None = None
    ) -> dict[str, NDArray[Any]]:
        """One inference, with inputs and outputs by name.

        Args:
            signature: key of the signature to run, with its names; None runs the model with its tensors' names.
            out: memory for outputs, by name: TensorBuffers, or contiguous memory with the buffer protocol, such as
                arrays and outputs of earlier runs. The results hold these objects; other outputs are new. Memory that
                is given as an input too holds the output after the run. A cache that a model updates is not copied
                then.
        Raises:
            TensorError: as a call; also for an unknown signature, a name that is missing, unknown or shared by several
                tensors, and memory in `out` that does not fit its output, is read-only, or overlaps another's in part.
            DeviceError: as a call.
        """
        if not hasattr(inputs, "keys"):
            raise TensorError(f"inputs are {type(inputs).__name__}, expected a mapping from names to values")
        if out is not None and not hasattr(out, "keys"):
            raise TensorError(f"out is {type(out).__name__}, expected a mapping from names to memory")
        if signature is not None:
            return self._run_signature(signature, inputs, out or {})
        names = _unique_names(self._program.inputs, "input")
        results = _unique_names(self._program.outputs, "output")
        _check_names(inputs, names)
        _check_outputs(out or {}, results)
        given = [out.get(name) for name in results] if out else None
        return dict(zip(results, self._run(self._opened, [inputs[name] for name in names], given), strict=True))

    def _run_signature(self, key: str, inputs: Mapping[str, Any], out: Mapping[str, Any]) -> dict[str, Any]:
        call = self._calls.get(key) or self._call(key)
        base, signature = call.base, call.signature
        _check_names(inputs, call.names)
        if out:
            _check_outputs(out, [name for name, _ in signature.outputs])
        self._check_open()
        if not call.is_answered:
            return _run_on_litert(base, signature, inputs, out)
        arguments = [inputs[name] for name in call.arguments]
        executable, session = self._ready(base, arguments)
        if session is None:
            return _run_on_litert(base, signature, inputs, out)
        ports, given, has_shared = base.program.outputs, None, False
        if out:
            memory = {index: out[name] for name, index in signature.outputs if name in out}
            given = [memory.get(port.index) for port in ports]
            has_shared = len(memory) < len(out)  # an output has several names
        try:
            results = _run_in(session, arguments, given)
        except load_path.REPLACEABLE as error:
            load_path.recompile(executable, session, error)
            return self._run_signature(key, inputs, out)
        named = {name: results[position] for name, position in call.results}
        return _copied_by_name(ports, signature, named, out) if has_shared else named

    def _call(self, key: str) -> _Call:
        """How a signature is called; raises the errors of `run`."""
        signature = self._signature(key)
        self._check_open()
        made = self._calls[key] = _Call(signature, self._specializations.subgraph(signature.graph))
        return made

    def _signature(self, key: str) -> Signature:
        signatures = {each.key: each for each in self._program.signatures}
        if key not in signatures:
            raise TensorError(f"no signature is named {key!r}, the model has {list(signatures)}")
        return signatures[key]

    def _run(self, base: Executable, inputs: Sequence[Any], given: Sequence[Any] | None = None) -> tuple[Any, ...]:
        """One inference; `given` has the memory for each output, or None for a new tensor."""
        executable, session = self._ready(base, inputs)
        if session is None:
            results: tuple[Any, ...] = executable.source.fallback().run(inputs)
            return results if given is None else _copied(zip(executable.program.outputs, results, given, strict=True))
        try:
            return _run_in(session, inputs, given)
        except load_path.REPLACEABLE as error:
            load_path.recompile(executable, session, error)
            return self._run(base, inputs, given)

    def _ready(self, base: Executable, inputs: Sequence[Any]) -> tuple[Executable, IOBinding | None]:
        """The program for these inputs and its session, about to run; no session for a model on LiteRT.

        Raises:
            DeviceError: the model is closed.
        """
        executable = base if base is self._only else self._fitting(base, inputs)
        session = executable.session  # read once: another thread may close the model
        self._check_open()
        if not executable.announced:
            executable.announce()
        if executable is not self._ran_last:
            if session is not None:  # as LiteRT does after a change of shapes
                session.reset_states(resources=False)
            self._ran_last = executable
        return executable, session

    def _fitting(self, base: Executable, inputs: Sequence[Any]) -> Executable:
        """The program for these inputs; not `base` where sizes of arrays differ from the file's."""
        ports = base.program.inputs
        if self._closed or len(inputs) != len(ports):
            return base
        if self._program.shape_inputs and base is self._opened:
            return self._specializations.for_values(base, inputs)
        if not base.is_open:
            return base
        shapes = tuple(accepted_shape(value, port) for value, port in zip(inputs, ports, strict=True))
        return base if shapes == base.shapes else self._specializations.resized(base, shapes)

    def session(self, state: str | Sequence[str]) -> ModelSession:
        """A session that keeps tensors such as KV caches from run to run, in memory that all signatures share.

        Args:
            state: patterns of names (`fnmatch`), one or several: `"kv_cache_*"`. They select from the tensors that are
                both an input and an output of a signature.
        Raises:
            TypeError: `state` is neither a pattern nor several.
            TensorError: a pattern selects nothing, or a tensor's type or shape differs between signatures.
            DeviceError: the model is closed, or out of memory.
        """
        from jitdelegate.api.model_session import ModelSession  # not before: most models have no such tensors

        self._check_open()
        patterns = (state,) if isinstance(state, str) else tuple(state) if hasattr(state, "__iter__") else ()
        if not patterns or not all(isinstance(each, str) for each in patterns):
            raise TypeError(f"state is {state!r}, expected a pattern of names, or several")
        return ModelSession(self._program.signatures, self._specializations.subgraph, self._ready, patterns)

    def prepare(self, shapes: Iterable[Mapping[str, Sequence[int]]] = (), *, progress: bool | Steps = False) -> None:
        """Fetch the programs of all signatures for the file's shapes now, before their first runs.

        Args:
            shapes: further shapes to fetch programs for, each as sizes by the name of an input; other inputs keep the
                file's sizes. A name may be a signature's or the tensor's. The eight last ones stay in memory, and the
                cache keeps 32.
            progress: True shows a bar while this lasts, on a terminal or in a notebook. An object with the methods
                `more(steps)`, `begin(text)` and `done()` is told of every program.
        Raises:
            TensorError: no input has such a name, or it cannot have these sizes.
            DeviceError: the model is closed, or cannot run with inputs of these sizes.
        """
        self._check_open()
        if progress is True:
            from jitdelegate.base.progress import progress as shown  # not before: few callers want it

            with shown(0) as bar:
                self.prepare(shapes, progress=bar)
            return
        steps, shapes, signatures = progress or None, list(shapes), self._program.signatures
        if steps:
            steps.more(len(signatures) + len(shapes))
        source = self._opened.source
        self._opened.announce(as_stored=True)
        with source.kept():
            for signature in _told(signatures, lambda one: f"{source.name}: signature {one.key!r}", steps):
                self._specializations.subgraph(signature.graph).announce(as_stored=True)
            for given in _told(shapes, lambda sizes: f"{source.name} for {dict(sizes)}", steps):
                for executable in self._specializations.prepare(given):
                    executable.announce()

    def reset_all_variables(self) -> None:
        """Reset every variable to its first value, resource variables too.

        Raises:
            DeviceError: the model is closed, or LiteRT cannot prepare it again.
        """
        self._check_open()
        self._opened.source.reset()
        self._specializations.reset()

    def __reduce__(self) -> tuple[Callable[..., Model], tuple[Any, ...]]:
        """How to open the model again.

        Raises:
            DeviceError: the model is closed, or runs in a CUDA stream, whose handle means nothing to another model.
        """
        if self._closed:
            raise DeviceError("the model is closed, and cannot be copied or pickled")
        source = self._opened.source
        if source.options.stream is not None:
            raise DeviceError("a model in a stream of its caller's cannot be copied or pickled; load it again")
        return _load_again, (source.origin, source.fingerprint(), source.options)

    def _check_open(self) -> None:
        """
        Raises:
            DeviceError: the model is closed.
        """
        if self._closed:
            raise DeviceError("the model is closed")

    def close(self) -> None:
        """Stop worker threads and free memory. The model cannot run afterwards."""
        self._closed = True
        for each in (self._opened_later, self._opened, self._opened.source):
            if each is not None:
                each.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Call:
    """What all calls of a signature have in common.

    Attributes:
        base: the program of its subgraph for the file's shapes.
        names: of its inputs.
        is_answered: whether the program may run it; the other attributes are those of such a run.
        arguments: names of the inputs in the order of the program's.
        results: (name, position among the program's outputs) of each output, in alphabetical order.
    """

    __slots__ = ("arguments", "base", "is_answered", "names", "results", "signature")

    def __init__(self, signature: Signature, base: Executable) -> None:
        self.signature, self.base = signature, base
        self.names = [name for name, _ in signature.inputs]
        self.is_answered = base.answers(signature)
        inputs, outputs = base.program.inputs, base.program.outputs
        named = {index: name for name, index in signature.inputs}
        positions = {port.index: position for position, port in enumerate(outputs)}
        self.arguments = [named[port.index] for port in inputs] if self.is_answered else []
        self.results = [(name, positions[index]) for name, index in sorted(signature.outputs) if self.is_answered]


def _described(ports: Sequence[Port]) -> tuple[TensorInfo, ...]:
    from jitdelegate.api.tensor_info import TensorInfo  # not before: few callers ask for it

    return tuple(map(TensorInfo, ports))


def _file_ports(content: ReadableBuffer) -> list[tuple[Sequence[Port], Sequence[Port]]]:
    """Inputs and outputs of every subgraph of a model's file."""
    from jitdelegate.compiler.program_metadata import ports  # not before: a compiled model needs no compiler
    from jitdelegate.tflite.read import read

    return [(ports(graph, graph.inputs), ports(graph, graph.outputs)) for graph in read(content).graphs]


def _unique_names(ports: Sequence[Port], kind: str) -> list[str]:
    names = [port.name for port in ports]
    shared = sorted({name for name in names if names.count(name) > 1})
    if shared:
        raise TensorError(f"several {kind}s are named {', '.join(map(repr, shared))}; call the model with positions")
    return names


def _check_names(inputs: Mapping[str, Any], expected: Sequence[str]) -> None:
    if set(inputs) != set(expected):
        found, names = (", ".join(map(repr, each)) for each in (inputs, expected))
        raise TensorError(f"inputs are named {found}; expected {names}")


def _check_outputs(out: Mapping[str, Any], expected: Sequence[str]) -> None:
    unknown = [name for name in out if name not in expected]
    if unknown:
        raise TensorError(
            f"out names {', '.join(map(repr, unknown))}; the outputs are {', '.join(map(repr, expected))}"
        )


def _run_in(session: IOBinding, inputs: Sequence[Any], given: Sequence[Any] | None) -> tuple[Any, ...]:
    """One run of a session; `given` as for `Model._run`."""
    if given is None:
        return session.run(inputs)
    from jitdelegate.runtime.given_outputs import run_into  # not before: most runs make their own outputs

    return run_into(session, inputs, given)


def _copied(found: Iterable[tuple[Port, Any, Any]]) -> tuple[Any, ...]:
    """Results, each with its port and the memory that was given for it, in this memory."""
    from jitdelegate.runtime.given_outputs import copy_all  # as above

    return copy_all(tuple(found))


def _run_on_litert(
    base: Executable, signature: Signature, inputs: Mapping[str, Any], out: Mapping[str, Any]
) -> dict[str, Any]:
    """One run of a signature on LiteRT, with the outputs of `out` in the memory given there."""
    found: dict[str, Any] = base.source.fallback().run_signature(signature.key, inputs)
    return _copied_by_name(base.program.outputs, signature, found, out) if out else found


def _copied_by_name(
    ports: Sequence[Port], signature: Signature, found: Mapping[str, Any], out: Mapping[str, Any]
) -> dict[str, Any]:
    by_index, index_of = {port.index: port for port in ports}, dict(signature.outputs)
    results = _copied((by_index[index_of[name]], value, out.get(name)) for name, value in found.items())
    return dict(zip(found, results, strict=True))


def _told(items: Iterable[Item], words: Callable[[Item], str], steps: Steps | None) -> Iterator[Item]:
    """The items; before each, `steps` hears that its step begins, and afterwards that it is done."""
    for item in items:
        if steps:
            steps.begin(words(item))
        yield item
        if steps:
            steps.done()


def load(
    path_or_bytes: Source,
    *,
    target: str | None = None,
    serialization_dir: str | os.PathLike[str] | bool | None = None,
    model_token: str | None = None,
    num_threads: int | None = None,
    options: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    **keywords: Unpack[Keywords],
) -> Model:
    """A model ready to run.

    Args:
        path_or_bytes: a .tflite file's path, or its content.
        target: "auto" takes the best there is, "cuda" compiles for the GPU, "cpu" for this CPU, "litert" runs the whole
            model on LiteRT, "reference" evaluates it with numpy, to compare with. None takes the `options`' target, or
            "auto".
        serialization_dir: directory of compiled programs; None is the user's cache directory, False keeps none.
        model_token: begins the names of the model's entries, in place of its fingerprint, which stays a part of the
            key: two models may have one token.
        num_threads: threads that share one inference; None takes the CPUs that this process and its container may
            use, at most 4.
        precision: "float32", "bfloat16", on a GPU also "tf32" or "float16"; "auto" measures which is the fastest whose
            outputs differ by at most `precision_bound`.
        tuning: of CUDA code: "fast" or "full" measures kernels on the GPU while the model is compiled.
        requests_in_flight: how many inferences of `run_async` are computed at a time.
        require_full_delegation: refuse a model with an operator that is not compiled.
        quantized_execution, quantized_rounding: how quantized operators are computed, and the bits of their results.
        quantize_inputs, dequantize_outputs: float32 in place of quantized inputs, of quantized outputs.
        extra_outputs: names or indices of intermediate tensors that are outputs too, after the model's own.
        options: further options by name, or the path of a JSON or TOML file with them. Arguments that are not None
            override them.

    `jitdelegate.DelegateOptions` describes every option, those above and all others; None leaves one as it is by
    default. `backend` is another name of `target`, and `experimental_enable_quant` of `quantized_models_allowed`. The
    report names options that the chosen target ignores.

    Raises:
        ModelError: the file cannot be opened, is not a model, or nothing can run it.
        OptionError: an option is unknown, its value is refused, or an extra output is no tensor of the model.
        DeviceError: this machine lacks the requested target or CPU features.
        DelegationError: full delegation was required, and some operators cannot be delegated.
    """
    named = {
        "target": target,
        "serialization_dir": serialization_dir,
        "model_token": model_token,
        "num_threads": num_threads,
    }
    checked = DelegateOptions.from_keywords({**named, **keywords}, options)
    return Model(load_path.open_model(ModelFile(path_or_bytes, checked, listener=announce)))


load.__wrapped__ = OptionSignature(load)  # type: ignore[attr-defined] # which `inspect` follows


def _load_again(origin: str | bytes, fingerprint: str, options: DelegateOptions) -> Model:
    """A copied or unpickled model.

    Raises:
        ModelError: its file holds another model. Also the errors of `load`.
    """
    source = ModelFile(origin, options, listener=announce)
    found = source.fingerprint()
    if found != fingerprint:
        raise ModelError(f"{source.name} is another model: found fingerprint {found}, expected {fingerprint}")
    return Model(load_path.open_model(source))
