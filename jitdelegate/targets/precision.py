"""The precision of a program in its key: the one that the options name; for "auto" all that the choice depends on, and
what was chosen by measuring."""

from __future__ import annotations

from jitdelegate.base.options import ANY_PRECISION
from jitdelegate.errors import OptionError
from jitdelegate.runtime.cache.key import BOUND, CHOSEN, INPUTS, PRECISION, TUNED, TUNING, Key, fingerprint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jitdelegate.base.options import DelegateOptions
    from jitdelegate.runtime.cache.key import Parts


def precision_parts(options: DelegateOptions, fingerprints: dict[str, str]) -> Parts:
    """The parts of a key for the options.

    Args:
        fingerprints: of files of inputs, which are read at the first call: further programs of a model have the part of
            the first.
    Raises:
        OptionError: the file cannot be read.
    """
    if options.precision != ANY_PRECISION:
        return ((PRECISION, options.precision),)
    bound, path = f"{options.precision_bound:g}", options.precision_inputs
    if path is not None and path not in fingerprints:
        try:
            fingerprints[path] = fingerprint(path)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", error)
            raise OptionError(f"precision_inputs is {path!r}, which cannot be read: {why}") from error
    inputs = "" if path is None else fingerprints[path]
    return ((PRECISION, ANY_PRECISION), (BOUND, bound), (INPUTS, inputs), (CHOSEN, ""))


def precision_of(key: Key) -> str:
    """The precision that a key asks for, or that was chosen by measuring."""
    precision = key.part(PRECISION)
    return key.part(CHOSEN).partition(":")[0] if precision == ANY_PRECISION else precision


def keys_to_measure(key: Key, precisions: Iterable[str]) -> Sequence[tuple[str, Key]]:
    """Each precision with the key of a program to measure; none where a key leaves no choice."""
    if key.part(PRECISION) != ANY_PRECISION or key.part(CHOSEN):
        return ()
    plain = key.without(BOUND, INPUTS, CHOSEN, TUNING, TUNED)
    return [(precision, plain.changed(PRECISION, precision)) for precision in precisions]
