"""Option values from their texts, as LiteRT passes delegate options, and as commands and files have them."""

from __future__ import annotations

from jitdelegate.base.option_checks import ALIASES, LONGEST_NUMBER, MOST_THREADS, check_mapping
from jitdelegate.errors import OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_TRUTHS = {"True": True, "true": True, "1": True, "False": False, "false": False, "0": False}
_OPTIONAL = {
    *(
        "is_precision_loss_allowed",
        "last_delegate_node_index",
        "max_delegated_partitions",
        "model_token",
        "num_threads",
    ),
    *("only_ops", "precision", "precision_inputs", "quantized_models_allowed", "serialization_dir", "stream"),
}
"""Options whose value may be None."""
_NUMBERS = {
    *("experimental_flags", "first_delegate_node_index", "hardware_accelerators", "inference_preference"),
    *("inference_priority1", "inference_priority2"),
    *("inference_priority3", "last_delegate_node_index", "max_delegated_partitions", "min_nodes_per_partition"),
    *("num_threads", "requests_in_flight", "stream"),
}
_SIGNED = {"is_precision_loss_allowed", "max_delegated_partitions"}
_TRUE_OR_FALSE = {
    *("dequantize_outputs", "is_precision_loss_allowed", "private_weights", "profile", "quantize_inputs"),
    *("quantized_models_allowed", "require_full_delegation"),
}


def parse(name: str, text: str) -> str | float | bool | tuple[str, ...] | None:
    """The value of an option from its string; the string itself, to be refused, where it cannot be parsed."""
    name = ALIASES.get(name, name)
    if name in _OPTIONAL and text == "None":
        return None
    if name in _TRUE_OR_FALSE and text in _TRUTHS:
        return _TRUTHS[text]
    if name == "precision_bound":
        return _number(text)
    if name == "serialization_dir" and text in ("False", "false"):
        return False
    if name in ("experimental_flags", "only_ops") and text[:1] + text[-1:] in ("()", "[]"):
        return _names(text)
    sign, digits = ("-", text[1:]) if name in _SIGNED and text.startswith("-") else ("", text)
    if (sign or name in _NUMBERS) and digits.isdecimal() and len(digits) <= LONGEST_NUMBER:
        return int(sign + digits)
    return text


def parsed(mapping: Mapping[str, Any]) -> Mapping[str, Any]:
    """The mapping with values in place of their texts."""
    check_mapping(mapping)
    return {name: parse(name, value) if isinstance(value, str) else value for name, value in mapping.items()}


def _names(text: str) -> tuple[str, ...]:
    """The names in the string of a list or tuple."""
    return tuple(name.strip().strip("'\"") for name in text[1:-1].rstrip(", ").split(","))


def _number(text: str) -> float | str:
    """A number of a few letters; the text itself, to be refused, where it is none."""
    try:
        return float(text) if len(text) <= LONGEST_NUMBER else text
    except ValueError:
        return text


def thread_count(text: str) -> int:
    """A number of threads from its text.

    Raises:
        OptionError: the text is not a whole number from 1 to MOST_THREADS.
    """
    if not text.isdecimal() or len(text) > LONGEST_NUMBER or not 1 <= int(text) <= MOST_THREADS:
        raise OptionError(f"num_threads is {text[:20]!r}, expected a whole number from 1 to {MOST_THREADS}")
    return int(text)
