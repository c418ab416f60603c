"""Checks of single options: each returns the value as `DelegateOptions` keeps it, or raises OptionError."""

from __future__ import annotations

import os

from jitdelegate.base.targets import AUTO as AUTO_TARGET
from jitdelegate.base.targets import CPU, GPU, NPU, ROWS
from jitdelegate.errors import OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

CPU_FEATURES = (
    *("auto", "x86-64-v4-vbmi", "x86-64-v4-vnni", "x86-64-v4"),
    *("x86-64-v3-vnni", "x86-64-v3", "generic"),
)
PRECISIONS = ("float32", "tf32", "float16", "bfloat16")
ANY_PRECISION = "auto"
"""Takes the fastest of PRECISIONS whose results are near enough."""
TUNINGS = ("none", "fast", "full")
PREFERENCES = ("FAST_SINGLE_ANSWER", "SUSTAINED_SPEED", "BALANCED")
"""In the order of TFLite's numbers, as `PRIORITIES`."""
PRIORITIES = ("AUTO", "MAX_PRECISION", "MIN_LATENCY", "MIN_MEMORY_USAGE")
PARTITIONINGS = ("cost_model", "all")
QUANTIZED_EXECUTIONS = ("auto", "dynamic", "float_view")
QUANTIZED_ROUNDINGS = ("litert", "reference")
FLAGS = ("ENABLE_QUANT", "CL_ONLY", "GL_ONLY", "ENABLE_SERIALIZATION")
"""In the order of TFLite's bits, the lowest first."""
MOST_THREADS = 64
LARGEST_DEVICE = 1023
LARGEST_INDEX = 2147483647
"""TFLite's INT_MAX; as the last node of a range it means no end."""
ALIASES = {"backend": "target", "experimental_enable_quant": "quantized_models_allowed"}
"""Other names of options."""
AUTO, MAX_PRECISION = PRIORITIES[:2]
ENABLE_QUANT, *_FOREIGN, ENABLE_SERIALIZATION = FLAGS
LONGEST_SHOWN = 80
"""Most letters of a value in a message."""
LONGEST_NUMBER = 20
"""Most digits of a number, those of the largest handle; Python refuses to parse thousands."""
_LARGEST_HANDLE = (1 << 64) - 1


def check_mapping(mapping: Mapping[str, Any]) -> None:
    """
    Raises:
        OptionError: `mapping` is not a mapping.
    """
    if not (hasattr(mapping, "keys") and hasattr(mapping, "items")):
        raise OptionError(f"options are {shown(mapping)}, expected a mapping from names to values, or a file's path")


def refused(name: str, value: object, expected: str) -> OptionError:
    return OptionError(f"{name} is {shown(value)}, expected {expected}")


def shown(value: object) -> str:
    """A value for an error message, truncated."""
    try:
        text = repr(value)
    except ValueError:  # Python prints no integers of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def threads(value: int | None) -> int | None:
    if value is None or (type(value) is int and 1 <= value <= MOST_THREADS):
        return value
    raise refused("num_threads", value, f"None or a whole number from 1 to {MOST_THREADS}")


def requests(value: int) -> int:
    if type(value) is int and 1 <= value <= MOST_THREADS:
        return value
    raise refused("requests_in_flight", value, f"a whole number from 1 to {MOST_THREADS}")


def device(value: int | str) -> int | str:
    found = value
    if isinstance(found, str) and found.isdecimal() and len(found) <= LONGEST_NUMBER:
        found = int(found)
    if type(found) is int and 0 <= found <= LARGEST_DEVICE:
        return found
    if isinstance(found, str) and found.strip() and not found.strip().lstrip("+-").isdecimal():
        return found
    raise refused("device", value, f"a whole number from 0 to {LARGEST_DEVICE} or a part of a GPU's name")


def accelerators(value: int, target: str) -> int:
    """LiteRT's flags of the hardware to use.

    Args:
        target: the checked option, which has to be one of them.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= CPU | GPU | NPU:
        raise refused("hardware_accelerators", value, "CPU (1), GPU (2), or GPU | CPU (3)")
    if value & NPU:
        raise refused("hardware_accelerators", value, "CPU (1), GPU (2), or GPU | CPU (3): nothing here runs on an NPU")
    if target != AUTO_TARGET and not value & ROWS[target].hardware:
        raise refused("hardware_accelerators", value, f"flags that allow the target {target!r}")
    return int(value)


def stream(value: int | None) -> int | None:
    if value is None or (type(value) is int and 0 <= value <= _LARGEST_HANDLE):
        return value
    raise refused("stream", value, "None or the handle of a CUDA stream, a whole number")


def truth(name: str, value: bool | int) -> bool:
    if type(value) in (bool, int) and value in (0, 1):
        return bool(value)
    raise refused(name, value, "True, False, 1 or 0")


def precision_loss(value: bool | int | None) -> bool | None:
    if value is None or (type(value) is int and value == -1):
        return None
    if type(value) in (bool, int) and value in (0, 1):
        return bool(value)
    raise refused("is_precision_loss_allowed", value, "True, False, 1 or 0, or None or -1 where it is not given")


def bound(value: float) -> float:
    if type(value) in (int, float) and 0 <= value <= 1:
        return float(value)
    raise refused("precision_bound", value, "a number from 0 to 1")


def inputs_file(value: str | os.PathLike[str] | None) -> str | None:
    if value is None or (isinstance(value, str | os.PathLike) and os.fsdecode(value).endswith(".npz")):
        return None if value is None else os.fsdecode(value)
    raise refused("precision_inputs", value, "None or the path of a .npz file")


def choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise refused(name, value, f"one of {', '.join(choices)}")
    return value


def numbered(name: str, value: str | int, choices: tuple[str, ...]) -> str:
    """One of the choices, from its name or its position, which is TFLite's number."""
    if type(value) is int and 0 <= value < len(choices):
        return choices[value]
    if isinstance(value, str) and value in choices:
        return value
    raise refused(name, value, f"one of {', '.join(choices)}, or a whole number from 0 to {len(choices) - 1}")


def check_order(priorities: tuple[str, str, str]) -> None:
    """
    Raises:
        OptionError: TFLite refuses the priorities: none is given, one follows AUTO, or one is given twice.
    """
    named = tuple(priority for priority in priorities if priority != AUTO)
    if not named or priorities[: len(named)] != named or len(set(named)) < len(named):
        found = "{!r}, {!r} and {!r}".format(*priorities)
        raise OptionError(
            f"inference_priority1, inference_priority2 and inference_priority3 are {found}, "
            "expected a first one that is not AUTO, none after AUTO but AUTO, and none twice"
        )


def partitions(value: int | None) -> int | None:
    if value is None:
        return None
    if type(value) is int and value <= LARGEST_INDEX:
        return max(value, 1)
    raise refused("max_delegated_partitions", value, f"None or a whole number up to {LARGEST_INDEX}")


def whole(name: str, value: int) -> int:
    if type(value) is int and 0 <= value <= LARGEST_INDEX:
        return value
    raise refused(name, value, f"a whole number from 0 to {LARGEST_INDEX}")


def last_index(value: int | None) -> int | None:
    if value is None or (type(value) is int and 0 <= value <= LARGEST_INDEX):
        return None if value == LARGEST_INDEX else value
    raise refused("last_delegate_node_index", value, f"None or a whole number from 0 to {LARGEST_INDEX}")


def operators(value: str | list[str] | tuple[str, ...] | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = value.split(",") if isinstance(value, str) else value
    if isinstance(names, list | tuple) and names and all(isinstance(name, str) for name in names):
        found = sorted({name.strip() for name in names})
        if all(map(_is_operator, found)):
            return tuple(found)
    raise refused("only_ops", value, "None or names of operators, as ('ADD', 'CONV_2D') or 'ADD,CONV_2D'")


def _is_operator(name: str) -> bool:
    """Whether a name fits into `partition_key`, which separates pairs by spaces and names by commas."""
    return bool(name) and name.isprintable() and not any(letter in " ," for letter in name)


def flags(value: int | str | list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """TFLite's flags by name, in the order of their bits.

    Raises:
        OptionError: an unknown flag, or one that names an API that is not used here.
    """
    if value == ENABLE_QUANT:  # the default, which every load checks
        return (ENABLE_QUANT,)
    if type(value) is int and 0 <= value < 1 << len(FLAGS):
        names = {name for place, name in enumerate(FLAGS) if value >> place & 1}
    elif isinstance(value, str | list | tuple) and all(isinstance(name, str) for name in value):
        listed = value.split(",") if isinstance(value, str) else value
        names = {name.strip() for name in listed} - {""}
    else:
        names = {""}
    if not names.issubset(FLAGS):
        known = f"{ENABLE_QUANT}, {ENABLE_SERIALIZATION} or both"
        raise refused("experimental_flags", value, f"{known}, or TFLite's number of them")
    for name in names.intersection(_FOREIGN):
        api = "OpenCL" if name == "CL_ONLY" else "OpenGL"
        reason = f"but nothing here runs on {api}: a GPU is used through CUDA"
        raise OptionError(f"experimental_flags has {name}, {reason}; expected {ENABLE_QUANT}, {ENABLE_SERIALIZATION}")
    return tuple(name for name in FLAGS if name in names)


def directory(value: str | os.PathLike[str] | bool | None) -> str | bool | None:
    if value is None or value is False:
        return value
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise refused("serialization_dir", value, "a directory, None (user cache) or False (no cache)")
    return os.fspath(value)
