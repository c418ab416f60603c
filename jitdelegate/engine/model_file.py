"""ModelFile: a model's content and LiteRT on it, which all programs of one model share."""

from __future__ import annotations

import os

from jitdelegate.cache.fingerprint import fingerprint
from jitdelegate.cache.store import open_store
from jitdelegate.errors import ModelError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from _typeshed import ReadableBuffer

    from jitdelegate.options import Options
    from jitdelegate.runtime.fallback import Fallback

    Listener = Callable[[Any], None]
    Source = str | os.PathLike[str] | ReadableBuffer

MOST_THREADS = 4
"""As many threads as one inference takes when nobody says how many."""
LONGEST_NAME = 4096
"""Characters of a path that an error shows; a longer one is no path, but perhaps a model."""


class ChangedModelError(ModelError):
    """A model's file holds other bytes than when the model was opened."""


class ModelFile:
    """Where a model comes from, and what was asked for.

    Attributes:
        options: what was asked for.
        threads: threads that share one inference.
        store: where its programs are kept.
        narrow_states: whether LiteRT has to be given a copy of the model, since its own kernel would write past the
            end of states that are too narrow for it.
        listener: called with programs that leave operators to LiteRT; None for nobody.
    """

    def __init__(
        self,
        source: Source,
        options: Options,
        litert_arguments: Mapping[str, Any] | None = None,
        listener: Listener | None = None,
    ) -> None:
        """
        Args:
            source: a path, or the content of a .tflite file.
            litert_arguments: further keyword arguments of LiteRT's interpreter, should the model run there.
            listener: as the attribute.
        Raises:
            ModelError: it is neither.
        """
        self.options = options
        self.threads = options.num_threads or default_threads()
        self.store = open_store(options.serialization_dir, private_weights=options.private_weights)
        self.listener = listener
        self.narrow_states = False
        self._source = _keep(source)
        self._fingerprint = ""
        self._fallback: Fallback | None = None
        self._litert_arguments = litert_arguments
        self._make_delegate: Callable[[], Any] | None = None

    @property
    def origin(self) -> str | bytes:
        """Where it comes from: an absolute path, or the content."""
        return self._source

    @property
    def name(self) -> str:
        """The model in an error's sentence."""
        return repr(self._source[:LONGEST_NAME]) if isinstance(self._source, str) else "the model's content"

    def fingerprint(self) -> str:
        """Of the content when it was asked for first.

        Raises:
            ModelError: there is no such file, or it cannot be read.
        """
        if not self._fingerprint:
            try:
                self._fingerprint = self.store.fingerprint(self._source)
            except (OSError, ValueError) as error:
                raise ModelError(f"could not open {self.name}: {getattr(error, 'strerror', error)}") from error
        return self._fingerprint

    def begin_anew(self) -> None:
        """Be the model that the file holds now; for a model of which nothing is opened yet."""
        self._fingerprint = ""

    def content(self) -> bytes:
        """The bytes of the model that was opened, whatever its file holds by now.

        Raises:
            ModelError: the file cannot be read, or holds other bytes than when it was opened, a ChangedModelError.
        """
        if isinstance(self._source, bytes):
            return self._source
        try:
            with open(self._source, "rb") as file:
                content = file.read()
        except OSError as error:
            raise ModelError(f"could not open {self.name}: {error.strerror}") from error
        found, expected = fingerprint(content), self.fingerprint()
        if found != expected:
            self.store.forget_fingerprint(self._source)
            raise ChangedModelError(
                f"{self.name} changed since it was opened: found fingerprint {found}, expected {expected}"
            )
        return content

    def runtime_tensors(self, subgraph: int) -> frozenset[int]:
        """The tensors of a subgraph that are no constants: without a run they hold nothing.

        Raises:
            ModelError: the file cannot be read, or has changed.
        """
        from jitdelegate.tflite.read import read  # not before: a compiled model never needs it

        tensors = read(self.content()).graphs[subgraph].tensors
        return frozenset(index for index, tensor in enumerate(tensors) if not tensor.is_constant)

    def fallback(self) -> Fallback:
        """The same model in LiteRT, created when first asked for.

        Raises:
            ModelError: the file cannot be read or has changed, or LiteRT cannot open the model.
        """
        if self._fallback is None:
            from jitdelegate.runtime.fallback import Fallback  # not before: a compiled model never needs it

            self._fallback = Fallback(
                self._litert_content(),
                num_threads=self.threads,
                arguments=self._litert_arguments,
                make_delegate=self._make_delegate,
            )
        return self._fallback

    def _litert_content(self) -> bytes:
        if not self.narrow_states:
            return self.content()
        from jitdelegate.tflite.svdf_states import widened  # not before: few models need it

        return widened(self.content())

    def apart(self) -> ModelFile:
        """The same model without LiteRT's instance: for a delegate in that instance, which else would keep itself alive
        for ever."""
        other = ModelFile(self._source, self.options, self._litert_arguments, self.listener)
        other._fingerprint = self._fingerprint
        return other

    @property
    def in_use(self) -> bool:
        """Whether LiteRT's instance has to stay, since it may hold values of its user's."""
        return self._fallback is not None and self._fallback.in_use

    @property
    def hosted(self) -> bool:
        """Whether LiteRT's instance has a delegate of ours."""
        return self._make_delegate is not None

    def host(self, make_delegate: Callable[[], Any]) -> None:
        """Let LiteRT's instance, which is created anew, have a delegate of ours.

        Args:
            make_delegate: called for every interpreter that LiteRT makes for the model.
        """
        self._fallback, self._make_delegate = None, make_delegate

    def reset(self) -> None:
        """Let LiteRT's instance, if there is one, find every variable as its first run did.

        Raises:
            DeviceError: LiteRT cannot make the model ready again.
        """
        if self._fallback is not None:
            self._fallback.reset()

    def close(self) -> None:
        """Let go of LiteRT's instance."""
        self._fallback = None


def _keep(source: Source) -> str | bytes:
    """What finds the same model again later: an absolute path, or bytes that nobody can change."""
    if isinstance(source, bytes):
        return source
    try:
        if isinstance(source, str | os.PathLike):
            return os.path.abspath(os.fsdecode(source))
        return bytes(memoryview(source))
    except (OSError, ValueError, TypeError) as error:  # no working directory, or neither a path nor bytes
        raise ModelError(f"could not open {source!r}: {error}; expected a path or the content of a file") from error


def default_threads() -> int:
    """The CPUs that this process may use, at most MOST_THREADS."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST_THREADS, usable)
