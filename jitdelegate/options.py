"""The options of a model: what they are called, which values they take, which of them change the compiled code.

Warm road: plain classes only, no dataclasses, no enum, no typing at import time.
"""

from __future__ import annotations

import os

from jitdelegate.errors import OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

TARGETS = ("auto", "cpu", "cuda", "litert")
CPU_FEATURES = ("auto", "x86-64-v4", "x86-64-v3", "generic")
PRECISIONS = ("float32", "tf32", "float16", "bfloat16")
MOST_THREADS = 64
LARGEST_DEVICE = 1023
_TRUTHS = {"True": True, "true": True, "1": True, "False": False, "false": False, "0": False}
_LARGEST_HANDLE = (1 << 64) - 1
_LONGEST_NUMBER = 20
"""Digits, as many as the largest handle has; Python refuses to read numbers of thousands."""


class Options:
    """One model's options, checked; unknown names and values are refused by name.

    Attributes:
        target: "cuda" compiles for this machine's GPU, "cpu" for its CPU, "litert" runs the whole model on LiteRT,
            "auto" takes the best there is.
        serialization_dir: where programs are kept; None is the user's cache directory, False turns the cache off.
        model_token: names the entry instead of the model's fingerprint; the content is checked all the same.
        num_threads: threads that share one inference; None takes the CPUs this process may use, at most 4.
        cpu_features: the instruction set that CPU code is compiled for. "auto" takes the widest that the CPU has;
            "generic" compiles for any CPU and loads through llvmlite.
        device: the number of the GPU, among those that the process may see.
        stream: the handle of a CUDA stream of the process on that GPU, such as `torch.cuda.Stream().cuda_stream`: the
            model runs after what is in it, and a call returns when it is done. None is a stream of the model's own.
        precision: of CUDA code; CPU code is always "float32". "tf32" multiplies with shorter numbers on tensor cores,
            "float16" and "bfloat16" store activations in 16 bits too; sums are float32 in all of them.
        is_precision_loss_allowed: TFLite's own option; where it is true and no precision is given, that is "float16".
    """

    __slots__ = (
        "cpu_features",
        "device",
        "is_precision_loss_allowed",
        "model_token",
        "num_threads",
        "precision",
        "serialization_dir",
        "stream",
        "target",
    )

    def __init__(
        self,
        *,
        target: str = "auto",
        serialization_dir: str | os.PathLike[str] | bool | None = None,
        model_token: str | None = None,
        num_threads: int | None = None,
        cpu_features: str = "auto",
        device: int = 0,
        stream: int | None = None,
        precision: str | None = None,
        is_precision_loss_allowed: bool | int = False,
    ) -> None:
        self.target = _choice("target", target, TARGETS)
        self.cpu_features = _choice("cpu_features", cpu_features, CPU_FEATURES)
        self.serialization_dir = _directory(serialization_dir)
        if model_token is not None and not isinstance(model_token, str):
            raise OptionError(f"model_token is {model_token!r}, expected a string or None")
        self.model_token = model_token
        self.num_threads = _threads(num_threads)
        self.device = _device(device)
        self.stream = _stream(stream)
        self.is_precision_loss_allowed = _truth("is_precision_loss_allowed", is_precision_loss_allowed)
        if precision is None:
            precision = "float16" if self.is_precision_loss_allowed else "float32"
        self.precision = _choice("precision", precision, PRECISIONS)

    def __repr__(self) -> str:
        return f"Options({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Options:
        """Options from keyword names to values.

        Raises:
            OptionError: a name is not an option, a value is refused, or there are no names at all.
        """
        check_mapping(mapping)
        unknown = [str(name) for name in mapping if name not in cls.__slots__]
        if unknown:
            raise OptionError(f"unknown option {', '.join(unknown)}; options are {', '.join(cls.__slots__)}")
        return cls(**mapping)

    @classmethod
    def from_strings(cls, mapping: Mapping[str, Any]) -> Options:
        """Options from names to values that went through str(), as LiteRT passes delegate options.

        Raises:
            OptionError: a name is not an option, or a text does not parse as its value.
        """
        check_mapping(mapping)
        return cls.from_mapping({str(name): _parse(str(name), str(value)) for name, value in mapping.items()})


def check_mapping(mapping: Mapping[str, Any]) -> None:
    """Raises OptionError for what has no names and values."""
    if not (hasattr(mapping, "keys") and hasattr(mapping, "items")):
        raise OptionError(f"options are {mapping!r}, expected a mapping from names to values")


def thread_count(text: str) -> int:
    """A number of threads from its text.

    Raises:
        OptionError: the text is not a whole number from 1 to MOST_THREADS.
    """
    if not text.isdecimal() or len(text) > _LONGEST_NUMBER or not 1 <= int(text) <= MOST_THREADS:
        raise OptionError(f"num_threads is {text[:20]!r}, expected a whole number from 1 to {MOST_THREADS}")
    return int(text)


def _threads(value: int | None) -> int | None:
    if value is None or (type(value) is int and 1 <= value <= MOST_THREADS):
        return value
    raise OptionError(f"num_threads is {value!r}, expected None or a whole number from 1 to {MOST_THREADS}")


def _device(value: int) -> int:
    if type(value) is int and 0 <= value <= LARGEST_DEVICE:
        return value
    raise OptionError(f"device is {value!r}, expected a whole number from 0 to {LARGEST_DEVICE}")


def _stream(value: int | None) -> int | None:
    if value is None or (type(value) is int and 0 <= value <= _LARGEST_HANDLE):
        return value
    raise OptionError(f"stream is {value!r}, expected None or the handle of a CUDA stream, a whole number")


def _truth(name: str, value: bool | int) -> bool:
    if type(value) in (bool, int) and value in (0, 1):
        return bool(value)
    raise OptionError(f"{name} is {value!r}, expected True, False, 1 or 0")


def _choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise OptionError(f"{name} is {value!r}, expected one of {', '.join(choices)}")
    return value


def _directory(value: str | os.PathLike[str] | bool | None) -> str | bool | None:
    if value is None or value is False:
        return value
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise OptionError(
            f"serialization_dir is {value!r}, expected a directory, None (user cache) or False (no cache)"
        )
    return os.fspath(value)


def _parse(name: str, text: str) -> str | int | bool | None:
    if name == "num_threads":
        return None if text == "None" else thread_count(text)
    if name in ("serialization_dir", "model_token", "precision", "stream") and text == "None":
        return None
    if name in ("device", "stream") and text.isdecimal() and len(text) <= _LONGEST_NUMBER:
        return int(text)
    if name == "is_precision_loss_allowed":
        return _TRUTHS.get(text, text)
    if name == "serialization_dir" and text in ("False", "false"):
        return False
    return text
