"""ModelFile: a model's content and its LiteRT instance, shared by all programs of the model."""

from __future__ import annotations

import _thread
import os

from jitdelegate.errors import DeviceError, ModelError
from jitdelegate.runtime.cache.key import fingerprint
from jitdelegate.runtime.cache.store import open_store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, TypeVar

    from _typeshed import ReadableBuffer
    from numpy.typing import NDArray

    from jitdelegate.base.options import DelegateOptions
    from jitdelegate.program.program import Signature
    from jitdelegate.runtime.cache.store import Store
    from jitdelegate.runtime.fallback import Fallback
    from jitdelegate.runtime.mapped_model import MappedModel
    from jitdelegate.runtime.shared_file import SharedFile
    from jitdelegate.tflite.read import Reading

    Made = TypeVar("Made")

    Listener = Callable[[Any], None]
    Source = str | os.PathLike[str] | ReadableBuffer

MOST_THREADS = 4
"""Largest default number of threads of one inference."""
CPU_LIMIT = "/sys/fs/cgroup/cpu.max"
"""Microseconds of CPU time per period, as containers see it: `200000 100000` is two CPUs' time (Linux cgroups, v2)."""
LEAST_MAPPED = 1 << 20
"""Smallest file, in bytes, to map rather than read while it is compiled."""
LONGEST_NAME = 4096
"""Characters of a path in an error; a longer string is no path, but perhaps a model."""


class ChangedModelError(ModelError):
    """A model's file changed after the model was opened."""


class ModelFile:
    """A model's origin, options and cache, and LiteRT's instance of it.

    Attributes:
        options: the user's options.
        threads: threads that share one inference.
        store: the cache of its programs.
        narrow_states: whether LiteRT needs a copy of the model with wider states, because its kernel would write past
            the end of the original ones.
        listener: called with each executable that has operators on LiteRT; None for nobody.
        failure_told: taken for good by the thread that warns of a failed GPU.
    """

    def __init__(
        self,
        source: Source,
        options: DelegateOptions,
        litert_arguments: Mapping[str, Any] | None = None,
        listener: Listener | None = None,
        store: Store | None = None,
    ) -> None:
        """
        Args:
            source: a path, or the content of a .tflite file.
            litert_arguments: keyword arguments of LiteRT's interpreter, if the model runs there.
            listener: as the attribute.
            store: as the attribute; None opens the one that the options name.
        Raises:
            ModelError: `source` is neither.
            DeviceError: the system is neither Linux nor macOS.
        """
        if os.name != "posix":
            here = "Windows; WSL runs Linux there" if os.name == "nt" else os.name
            raise DeviceError(f"jitdelegate runs on Linux and macOS, but this is {here}. LiteRT runs the model alone")
        self.options = options
        self.threads = options.num_threads or default_threads()
        self.store = store or _open_store(options)
        self.listener = listener
        self.narrow_states = False
        self.failure_told = _thread.allocate_lock()
        self._source = _keep(source)
        self._given = os.fsdecode(source) if isinstance(source, str | os.PathLike) else ""
        self._fingerprint = ""
        self._reading: Reading | None = None
        self._kept: tuple[SharedFile, memoryview] | None = None
        self._left: set[int] | None = None
        self._keepers = 0
        self._fallback: Fallback | None = None
        self._litert_arguments = litert_arguments
        self._make_delegate: Callable[[], Any] | None = None

    @property
    def origin(self) -> str | bytes:
        """An absolute path, or the content."""
        return self._source

    @property
    def name(self) -> str:
        """Name of the model in messages: the path as it was given."""
        return repr(self._given[:LONGEST_NAME]) if isinstance(self._source, str) else "the model's content"

    def fingerprint(self) -> str:
        """Fingerprint of the content at the first call.

        Raises:
            ModelError: the file is missing or cannot be read.
        """
        if not self._fingerprint:
            try:
                self._fingerprint = self.store.fingerprint(self._source)
            except (OSError, ValueError) as error:
                raise ModelError(f"Could not open {self.name}: {getattr(error, 'strerror', error)}") from error
        return self._fingerprint

    def begin_anew(self) -> None:
        """Take the file's current content as the model; only before a program is opened."""
        self._fingerprint = ""

    def content(self) -> bytes:
        """The bytes of the model, with the inputs and outputs that the options ask for.

        Raises:
            OptionError: an extra output is no tensor of the model.
            ModelError: the file cannot be read, or only once; a ChangedModelError if it changed since the model was
                opened.
        """
        return with_ports(self._stored(), self.options)

    @property
    def reading(self) -> Reading:
        """What compilations of this model share."""
        if self._reading is None:
            from jitdelegate.tflite.read import Reading  # not before: a compiled model never needs it

            self._reading = Reading()
        return self._reading

    def forget(self) -> None:
        """Keep nothing of the content for further compilations."""
        self._reading = self._kept = None

    def kept(self) -> Kept:
        """`with source.kept():` keeps what a compilation reads of the content for the next ones, up to the end."""
        return Kept(self)

    def opened(self, subgraph: int, signatures: Iterable[Signature]) -> None:
        """Tell that a subgraph has a program; nothing stays once all that the model's `signatures` name have."""
        if self._left is None:
            self._left = {signature.graph for signature in signatures}
        self._left.discard(subgraph)
        if not self._left and not self._keepers:
            self.forget()

    def make(self, make: Callable[[ReadableBuffer], Made]) -> Made:
        """What `make` makes of the bytes that `content` returns, of which it keeps nothing.

        The bytes of a large file are mapped, so that they are no memory of this process. If it changes meanwhile, they
        are made again, from a copy. The mapping, and what was read of it, stay for the next call until `opened` or the
        end of `kept` lets them go.

        Raises:
            ModelError: as `content`; also whatever `make` raises.
        """
        kept, self._kept = self._kept, None
        mapped, view = kept if kept and self._is_unchanged(kept[0]) else self._mapped() or (None, memoryview(b""))
        if mapped is None:
            return self._made(make, self.content())
        try:
            made = self._made(make, view)
            mapped.look()
            if not mapped.changes:
                self._kept = (mapped, view) if self._reading else None
                return made
        except Exception:
            mapped.look()
            if not mapped.changes:
                raise
        content = bytes(mapped)  # of the file that was opened, which may be gone or replaced by now
        return self._made(make, content if fingerprint(content) == self.fingerprint() else self.content())

    def _made(self, make: Callable[[ReadableBuffer], Made], content: ReadableBuffer) -> Made:
        """What `make` makes; what it has read stays where the next call has the same bytes."""
        stays = content is self._source or not isinstance(content, bytes)
        try:
            made = make(content)
        except BaseException:
            self._reading = None
            raise
        self._reading = self._reading if stays else None
        return made

    @staticmethod
    def _is_unchanged(mapped: SharedFile) -> bool:
        mapped.look()
        return mapped.shared and not mapped.changes

    def _mapped(self) -> tuple[SharedFile, memoryview] | None:
        """The file's bytes, with the fingerprint that the model was opened with; None where they have to be read."""
        if isinstance(self._source, bytes) or self.options.port_key:
            return None
        try:
            descriptor = os.open(self._source, os.O_RDONLY | os.O_CLOEXEC)
            try:
                nbytes = os.fstat(descriptor).st_size
                if nbytes < LEAST_MAPPED:
                    return None
                from jitdelegate.runtime.shared_file import share  # not before: most models are smaller

                mapped = share([(descriptor, 0, nbytes)], by_large_pages=False)  # it is unloaded in parts
            finally:
                os.close(descriptor)
            if mapped is None or fingerprint(mapped) != self.fingerprint() or not self._is_unchanged(mapped):
                return None
            return mapped, mapped.content
        except (ImportError, OSError, ValueError, MemoryError):
            return None  # whoever reads the file finds out

    def _stored(self) -> bytes:
        """The bytes as they are stored."""
        if isinstance(self._source, bytes):
            return self._source
        try:
            with open(self._source, "rb") as file:
                content = file.read()
        except OSError as error:
            raise ModelError(f"Could not open {self.name}: {error.strerror}") from error
        found, expected = fingerprint(content), self.fingerprint()
        if found != expected:
            if not os.path.isfile(self._source):
                raise ModelError(f"{self.name} gives its content once; expected a regular file or bytes")
            self.store.forget_fingerprint(self._source)
            raise ChangedModelError(
                f"{self.name} changed since it was opened: found fingerprint {found}, expected {expected}"
            )
        return content

    def outputs_with(self, extra: bool | tuple[str | int, ...] | None) -> frozenset[tuple[int, int]]:
        """(subgraph, tensor) of the outputs that the model has with other `extra_outputs`; raises as `content`."""
        from jitdelegate.tflite.read import read  # not before: few callers ask for it

        graphs = read(with_ports(self._stored(), self.options.altered(extra_outputs=extra))).graphs
        return frozenset((number, index) for number, graph in enumerate(graphs) for index in graph.outputs)

    def runtime_tensors(self, subgraph: int) -> frozenset[int]:
        """Indices of a subgraph's tensors that are not constants; they have no value before a run.

        Raises:
            ModelError: the file cannot be read, or has changed.
        """
        from jitdelegate.tflite.read import read  # not before: a compiled model never needs it

        tensors = read(self.content()).graphs[subgraph].tensors
        return frozenset(index for index, tensor in enumerate(tensors) if not tensor.is_constant)

    def unpacked(self, subgraph: int, tensor: int) -> NDArray[Any] | None:
        """The value of a tensor that holds a constant in another form; None for other tensors. Raises as `content`."""
        from dataclasses import replace  # not before: a compiled model never needs them

        from jitdelegate.passes.infer_shapes import infer_shapes
        from jitdelegate.tflite.extra_outputs import unpacked_constants
        from jitdelegate.tflite.read import read

        graph = read(self.content()).graphs[subgraph]
        nodes = unpacked_constants(graph).get(tensor, ())
        value = infer_shapes(replace(graph, nodes=nodes)).tensors[tensor].data if nodes else None
        return None if value is None else value.copy()

    def fallback(self) -> Fallback:
        """LiteRT's instance of the model, created at the first call.

        Raises:
            ModelError: the file cannot be read or has changed, or LiteRT cannot open the model.
        """
        if self._fallback is None:
            from jitdelegate.runtime.fallback import Fallback  # not before: a compiled model never needs it

            self._fallback = Fallback(
                self._litert_source(),
                num_threads=self.threads,
                arguments=self._litert_arguments,
                make_delegate=self._make_delegate,
            )
        return self._fallback

    def _litert_source(self) -> bytes | MappedModel:
        """The model as LiteRT gets it: a large file is mapped, so that it is no memory of this process."""
        if self.narrow_states:
            from jitdelegate.tflite.svdf_states import widened  # not before: few models need it

            return widened(self.content())
        kept = self._kept
        self.forget()  # what compilations keep is memory that LiteRT may need
        mapped = kept if kept and self._is_unchanged(kept[0]) else self._mapped()
        if mapped is None:
            return self.content()
        from jitdelegate.runtime.mapped_model import MappedModel  # not before: a compiled model never needs it

        try:
            return MappedModel(mapped[0], self.fingerprint())
        except OSError:  # the system is short of memory or files
            return self.content()

    def apart(self) -> ModelFile:
        """A copy without LiteRT's instance, for a delegate in that instance, which would otherwise never be freed."""
        other = ModelFile(self._source, self.options, self._litert_arguments, self.listener, self.store)
        other._fingerprint, other._given, other.failure_told = self._fingerprint, self._given, self.failure_told
        return other

    @property
    def in_use(self) -> bool:
        """Whether LiteRT's instance has to stay, because it may hold values that the user set."""
        return self._fallback is not None and self._fallback.in_use

    @property
    def hosted(self) -> bool:
        """Whether LiteRT's instance has our delegate."""
        return self._make_delegate is not None

    def host(self, make_delegate: Callable[[], Any]) -> None:
        """Create LiteRT's instance again, with our delegate.

        Args:
            make_delegate: called for every interpreter of LiteRT that is made for the model.
        """
        self._fallback, self._make_delegate = None, make_delegate

    def reset(self) -> None:
        """Reset every variable of LiteRT's instance, if there is one.

        Raises:
            DeviceError: LiteRT cannot make the model ready again.
        """
        if self._fallback is not None:
            self._fallback.reset()

    def close(self) -> None:
        """Release LiteRT's instance."""
        self._fallback = None
        self.forget()


class Kept:
    """See `ModelFile.kept`."""

    def __init__(self, source: ModelFile) -> None:
        self._source = source

    def __enter__(self) -> None:
        self._source._keepers += 1

    def __exit__(self, *_: object) -> None:
        self._source._keepers -= 1
        if not self._source._keepers:
            self._source.forget()


def with_ports(content: bytes, options: DelegateOptions) -> bytes:
    """The model with the inputs and outputs that the options ask for.

    Raises:
        OptionError: an extra output is no tensor of the model.
        ModelError: the bytes are not a model.
    """
    if not options.port_key:
        return content
    from jitdelegate.tflite.extra_outputs import with_extra_outputs  # few callers ask for it
    from jitdelegate.tflite.float_ports import with_float_ports

    converted = with_float_ports(content, inputs=options.quantize_inputs, outputs=options.dequantize_outputs)
    return with_extra_outputs(converted, options.extra_outputs or ())


def _open_store(options: DelegateOptions) -> Store:
    """The store that the options name."""
    folders, folder, is_private = options.prebuilt_folders, options.serialization_dir, options.private_weights
    most_bytes, remote = options.cache_max_bytes, options.remote_place
    if not folders:
        return open_store(folder, private_weights=is_private, most_bytes=most_bytes, remote=remote)
    from jitdelegate.runtime.cache.prebuilt_store import PrebuiltStore  # not before: few models have such folders

    return PrebuiltStore(folders, folder, private_weights=is_private, most_bytes=most_bytes, remote=remote)


def _keep(source: Source) -> str | bytes:
    """An absolute path, or bytes that nobody can change: finds the same model again later."""
    if isinstance(source, bytes):
        return source
    try:
        if isinstance(source, str | os.PathLike):
            return os.path.abspath(os.fsdecode(source))
        return bytes(memoryview(source))
    except (OSError, ValueError, TypeError) as error:  # no working directory, or neither a path nor bytes
        raise ModelError(f"Could not open {source!r}: {error}; expected a path or the content of a file") from error


def default_threads() -> int:
    """Number of CPUs that this process may use, at most MOST_THREADS."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST_THREADS, usable, _allowed_cpus()) if usable > 1 else 1


def _allowed_cpus() -> int:
    """How many CPUs' time the container gets, rounded up; MOST_THREADS where there is no limit."""
    try:
        with open(CPU_LIMIT, "rb", buffering=0) as file:
            quota, period = file.read(64).split()
        return max(1, -(-int(quota) // int(period)))
    except (OSError, ValueError, ZeroDivisionError):  # no such file, or "max"
        return MOST_THREADS
