"""The options of a model: what they are called, which values they take, which of them change the compiled code.

Warm road: plain classes only, no dataclasses, no enum, no typing at import time.
"""

from __future__ import annotations

import os

from jitdelegate.errors import OptionError
from jitdelegate.targets.table import NAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

CPU_FEATURES = ("auto", "x86-64-v4", "x86-64-v3", "generic")
PRECISIONS = ("float32", "tf32", "float16", "bfloat16")
PREFERENCES = ("FAST_SINGLE_ANSWER", "SUSTAINED_SPEED", "BALANCED")
"""In the order of TFLite's numbers for them, as `PRIORITIES`."""
PRIORITIES = ("AUTO", "MAX_PRECISION", "MIN_LATENCY", "MIN_MEMORY_USAGE")
PARTITIONINGS = ("cost_model", "all")
MOST_THREADS = 64
LARGEST_DEVICE = 1023
LARGEST_INDEX = 2147483647
"""TFLite's INT_MAX; as the last node of a range it means that there is no end."""
BACKEND = "backend"
"""Another name of `target`."""

_AUTO, _MAX_PRECISION = PRIORITIES[:2]
_TRUTHS = {"True": True, "true": True, "1": True, "False": False, "false": False, "0": False}
_LARGEST_HANDLE = (1 << 64) - 1
_LONGEST_NUMBER = 20
"""Digits, as many as the largest handle has; Python refuses to read numbers of thousands."""
_LONGEST_SHOWN = 80
_PARTITION_DEFAULTS = {
    "first_delegate_node_index": 0,
    "last_delegate_node_index": None,
    "max_delegated_partitions": None,
    "min_nodes_per_partition": 0,
    "only_ops": None,
    "partitioning": "cost_model",
}
"""The options that change which operators are delegated, sorted by name."""


def _debug_level(text: str) -> int:
    """
    Raises:
        OptionError: JITDELEGATE_DEBUG is no level.
    """
    if text not in DEBUG_LEVELS:
        raise OptionError(f"JITDELEGATE_DEBUG is {text[:_LONGEST_SHOWN]!r}, expected one of {', '.join(DEBUG_LEVELS)}")
    return int(text)


DEBUG_LEVELS = ("0", "1", "2", "3", "4")
DEBUG_LEVEL = _debug_level(os.environ.get("JITDELEGATE_DEBUG") or "0")
"""What `options.debug` tells; read once."""
TIMED_LEVEL = 2
"""From here on, models are profiled as by the option `profile`."""


class Options:
    """One model's options, checked; unknown names and values are refused by name.

    Attributes:
        target: "cuda" compiles for this machine's GPU, "cpu" for its CPU, "litert" runs the whole model on LiteRT,
            "reference" evaluates it with numpy, to compare with, "auto" takes the best there is. Mappings and files may
            call it "backend".
        serialization_dir: where programs are kept; None is the user's cache directory, False turns the cache off.
        model_token: names the entry instead of the model's fingerprint; the content is checked all the same.
        num_threads: threads that share one inference; None takes the CPUs this process may use, at most 4.
        cpu_features: the instruction set that CPU code is compiled for. "auto" takes the widest that the CPU has;
            "generic" compiles for any CPU and loads through llvmlite.
        device: the number of the GPU, among those that the process may see, or a part of its name in small or large
            letters, as "h100": the first GPU with such a name. A text of digits is a number.
        stream: the handle of a CUDA stream of the process on that GPU, such as `torch.cuda.Stream().cuda_stream`: the
            model runs after what is in it, and a call returns when it is done. None is a stream of the model's own.
        precision: of CUDA code; CPU code is always "float32". "tf32" multiplies with shorter numbers on tensor cores,
            "float16" and "bfloat16" store activations in 16 bits too; sums are float32 in all of them. Where it is not
            given, `is_precision_loss_allowed` decides, and where that is not given either, the priorities do.
        is_precision_loss_allowed: TFLite's older option: False means "float32", True "float16", and the priorities are
            not looked at. None, or TFLite's -1, is not given.
        inference_preference: TFLite's hint how the model is used: "FAST_SINGLE_ANSWER", "SUSTAINED_SPEED" or
            "BALANCED", or its numbers 0, 1 and 2. It is checked and kept; no code depends on it.
        inference_priority1: what matters most: "MAX_PRECISION" means "float32", "MIN_LATENCY" and "MIN_MEMORY_USAGE"
            mean "float16". TFLite's numbers are 1, 2 and 3, and 0 is "AUTO", which the first cannot be.
        inference_priority2: what matters next, other than the first. "AUTO" leaves the order of the rest open, which
            is never wrong here: whether precision comes second or third, both mean float16 with sums in float32.
        inference_priority3: what matters least, "AUTO" where the second is.
        max_delegated_partitions: how many parts of the graph may be compiled, the largest first; None is any number.
            0 and less mean 1, as in TFLite.
        min_nodes_per_partition: parts with fewer operators stay with LiteRT.
        private_weights: keep the weights in memory of the process alone. Usually processes share those of a large
            program with its file, notice when somebody writes that file, and recover; with this option nothing that
            happens to the file reaches a running model at all, and each process takes memory for its own weights.
        require_full_delegation: refuse a model of which one operator is not compiled, with the reasons.
        first_delegate_node_index: for debugging: operators before this position of the file stay with LiteRT.
        last_delegate_node_index: for debugging: operators after this position stay with LiteRT. None has no end, nor
            has TFLite's 2147483647; a last one before the first leaves all to LiteRT.
        only_ops: for debugging: all but operators of these names, as "CONV_2D", or a custom operator's own, stay with
            LiteRT; None names all. A sorted tuple; a list or one text with commas is taken too. Names have no spaces.
        profile: time each kernel, for `Report.kernel_times`: CPU code takes time stamps, a GPU's kernels are launched
            one by one with events between them. Meant for finding slow kernels: models run slower.
        partitioning: "cost_model" compiles the parts that are worth their crossings between LiteRT and compiled code,
            "all" every part that may be compiled.
    """

    __slots__ = (
        "cpu_features",
        "device",
        "first_delegate_node_index",
        "inference_preference",
        "inference_priority1",
        "inference_priority2",
        "inference_priority3",
        "is_precision_loss_allowed",
        "last_delegate_node_index",
        "max_delegated_partitions",
        "min_nodes_per_partition",
        "model_token",
        "num_threads",
        "only_ops",
        "partitioning",
        "precision",
        "private_weights",
        "profile",
        "require_full_delegation",
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
        device: int | str = 0,
        stream: int | None = None,
        precision: str | None = None,
        is_precision_loss_allowed: bool | int | None = None,
        inference_preference: str | int = "FAST_SINGLE_ANSWER",
        inference_priority1: str | int = "MAX_PRECISION",
        inference_priority2: str | int = "AUTO",
        inference_priority3: str | int = "AUTO",
        max_delegated_partitions: int | None = None,
        min_nodes_per_partition: int = 0,
        private_weights: bool | int = False,
        require_full_delegation: bool | int = False,
        first_delegate_node_index: int = 0,
        last_delegate_node_index: int | None = None,
        only_ops: str | list[str] | tuple[str, ...] | None = None,
        partitioning: str = "cost_model",
        profile: bool | int = False,
    ) -> None:
        self.target = _choice("target", target, NAMES)
        self.cpu_features = _choice("cpu_features", cpu_features, CPU_FEATURES)
        self.serialization_dir = _directory(serialization_dir)
        if model_token is not None and not isinstance(model_token, str):
            raise _refused("model_token", model_token, "a string or None")
        self.model_token = model_token
        self.num_threads = _threads(num_threads)
        self.device = _device(device)
        self.stream = _stream(stream)
        self.inference_preference = _numbered("inference_preference", inference_preference, PREFERENCES)
        self.inference_priority1 = _numbered("inference_priority1", inference_priority1, PRIORITIES)
        self.inference_priority2 = _numbered("inference_priority2", inference_priority2, PRIORITIES)
        self.inference_priority3 = _numbered("inference_priority3", inference_priority3, PRIORITIES)
        self.is_precision_loss_allowed = _loss(is_precision_loss_allowed)
        meant = self._meant_precision()
        self.precision = meant if precision is None else _choice("precision", precision, PRECISIONS)
        self.max_delegated_partitions = _partitions(max_delegated_partitions)
        self.min_nodes_per_partition = _whole("min_nodes_per_partition", min_nodes_per_partition)
        self.private_weights = _truth("private_weights", private_weights)
        self.require_full_delegation = _truth("require_full_delegation", require_full_delegation)
        self.first_delegate_node_index = _whole("first_delegate_node_index", first_delegate_node_index)
        self.last_delegate_node_index = _last_index(last_delegate_node_index)
        self.only_ops = _operators(only_ops)
        self.partitioning = _choice("partitioning", partitioning, PARTITIONINGS)
        self.profile = _truth("profile", profile) or DEBUG_LEVEL >= TIMED_LEVEL

    def __repr__(self) -> str:
        return f"Options({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"

    def _meant_precision(self) -> str:
        """The precision that TFLite's options ask for.

        Raises:
            OptionError: TFLite refuses this order of priorities.
        """
        if self.is_precision_loss_allowed is None:
            order = self.inference_priority1, self.inference_priority2, self.inference_priority3
            _check_order(order)
            return "float32" if order[0] == _MAX_PRECISION else "float16"
        return "float16" if self.is_precision_loss_allowed else "float32"

    @property
    def partition_key(self) -> str:
        """What these options change about which operators are delegated: "name=value" pairs, "" for the defaults."""
        found = [(name, getattr(self, name)) for name, usual in _PARTITION_DEFAULTS.items()]
        changed = [(name, value) for name, value in found if value != _PARTITION_DEFAULTS[name]]
        return " ".join(f"{name}={','.join(value) if name == 'only_ops' else value}" for name, value in changed)

    def with_threads(self, num_threads: int | None) -> Options:
        """The same options, which take an interpreter's `num_threads`, as far as there may be so many, where they name
        no number themselves."""
        values = {name: getattr(self, name) for name in self.__slots__}
        values["num_threads"] = self.num_threads or (num_threads and min(int(num_threads), MOST_THREADS))
        return Options(**values)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Options:
        """Options from keyword names to values.

        Raises:
            OptionError: a name is not an option, a value is refused, or there are no names at all.
        """
        return cls(**_keywords(mapping))

    @classmethod
    def from_strings(cls, mapping: Mapping[str, Any]) -> Options:
        """Options from names to values that went through str(), as LiteRT passes delegate options.

        Raises:
            OptionError: a name is not an option, or a text does not parse as its value.
        """
        check_mapping(mapping)
        return cls.from_mapping({str(name): _parse(str(name), str(value)) for name, value in mapping.items()})

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Options:
        """Options from a file of JSON or TOML, which its suffix says: a table from names to values of their types.

        The table is the whole file, or the one in it that is named "jitdelegate" or "gpu_options".

        Raises:
            OptionError: the file cannot be read or parsed, or what is in it is refused; the message names the file.
        """
        return cls(**file_keywords(path))

    @classmethod
    def from_keywords(
        cls, keywords: Mapping[str, Any], further: Mapping[str, Any] | str | os.PathLike[str] | None
    ) -> Options:
        """Options from keywords and `further` ones, a mapping or a file's path, over which the keywords win.

        Raises:
            OptionError: as `from_mapping` and `from_file`.
        """
        if isinstance(further, str | os.PathLike):
            return cls(**{**file_keywords(further), **keywords})
        return cls(**{**_keywords({} if further is None else further), **keywords})


def check_mapping(mapping: Mapping[str, Any]) -> None:
    """Raises OptionError for what has no names and values."""
    if not (hasattr(mapping, "keys") and hasattr(mapping, "items")):
        raise OptionError(f"options are {_shown(mapping)}, expected a mapping from names to values, or a file's path")


def file_keywords(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The options in a file as keywords of `Options`, which takes them.

    Raises:
        OptionError: as `Options.from_file`.
    """
    from jitdelegate.options.option_file import read_table  # not before: few options come from files

    table = read_table(path)
    try:
        keywords = _keywords(table)
        Options(**keywords)
    except OptionError as error:
        raise OptionError(f"{os.fsdecode(path)}: {error}") from error
    return keywords


def thread_count(text: str) -> int:
    """A number of threads from its text.

    Raises:
        OptionError: the text is not a whole number from 1 to MOST_THREADS.
    """
    if not text.isdecimal() or len(text) > _LONGEST_NUMBER or not 1 <= int(text) <= MOST_THREADS:
        raise OptionError(f"num_threads is {text[:20]!r}, expected a whole number from 1 to {MOST_THREADS}")
    return int(text)


def _keywords(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping with names that `Options` takes.

    Raises:
        OptionError: a name is not an option, or both names of the target are there and differ.
    """
    check_mapping(mapping)
    unknown = [str(name) for name in mapping if name not in Options.__slots__ and name != BACKEND]
    if unknown:
        raise _unknown(unknown)
    keywords = dict(mapping.items())
    if BACKEND in keywords:
        backend = _choice(BACKEND, keywords.pop(BACKEND), NAMES)
        target = _choice("target", keywords.setdefault("target", backend), NAMES)
        if target != backend:
            raise OptionError(
                f"target is {target!r} but backend, another name of it, is {backend!r}; expected one value"
            )
    return keywords


def _unknown(names: list[str]) -> OptionError:
    """The error about options that do not exist, with the names that are nearest to them."""
    from difflib import get_close_matches  # not before: it is as large as the warm road

    options = sorted((*Options.__slots__, BACKEND))
    shown = [name[:_LONGEST_SHOWN] for name in names]
    near = {name: match for name in shown for match in get_close_matches(name, options, 1)}
    hints = [f"{name} (did you mean {near[name]}?)" if name in near else name for name in shown]
    return OptionError(f"unknown option {', '.join(hints)}; options are {', '.join(options)}")


def _refused(name: str, value: object, expected: str) -> OptionError:
    return OptionError(f"{name} is {_shown(value)}, expected {expected}")


def _shown(value: object) -> str:
    """A value for an error message, cut where it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no numbers of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _threads(value: int | None) -> int | None:
    if value is None or (type(value) is int and 1 <= value <= MOST_THREADS):
        return value
    raise _refused("num_threads", value, f"None or a whole number from 1 to {MOST_THREADS}")


def _device(value: int | str) -> int | str:
    found = value
    if isinstance(found, str) and found.isdecimal() and len(found) <= _LONGEST_NUMBER:
        found = int(found)
    if type(found) is int and 0 <= found <= LARGEST_DEVICE:
        return found
    if isinstance(found, str) and found.strip() and not found.strip().lstrip("+-").isdecimal():
        return found
    raise _refused("device", value, f"a whole number from 0 to {LARGEST_DEVICE} or a part of a GPU's name")


def _stream(value: int | None) -> int | None:
    if value is None or (type(value) is int and 0 <= value <= _LARGEST_HANDLE):
        return value
    raise _refused("stream", value, "None or the handle of a CUDA stream, a whole number")


def _truth(name: str, value: bool | int) -> bool:
    if type(value) in (bool, int) and value in (0, 1):
        return bool(value)
    raise _refused(name, value, "True, False, 1 or 0")


def _loss(value: bool | int | None) -> bool | None:
    if value is None or (type(value) is int and value == -1):
        return None
    if type(value) in (bool, int) and value in (0, 1):
        return bool(value)
    raise _refused("is_precision_loss_allowed", value, "True, False, 1 or 0, or None or -1 where it is not given")


def _choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise _refused(name, value, f"one of {', '.join(choices)}")
    return value


def _numbered(name: str, value: str | int, choices: tuple[str, ...]) -> str:
    """One of the choices from its name, or from its place among them, which is TFLite's number for it."""
    if type(value) is int and 0 <= value < len(choices):
        return choices[value]
    if isinstance(value, str) and value in choices:
        return value
    raise _refused(name, value, f"one of {', '.join(choices)}, or a whole number from 0 to {len(choices) - 1}")


def _check_order(priorities: tuple[str, str, str]) -> None:
    """Raises OptionError for priorities that TFLite refuses: none at all, one after AUTO, or one twice."""
    named = tuple(priority for priority in priorities if priority != _AUTO)
    if not named or priorities[: len(named)] != named or len(set(named)) < len(named):
        found = "{!r}, {!r} and {!r}".format(*priorities)
        raise OptionError(
            f"inference_priority1, inference_priority2 and inference_priority3 are {found}, "
            "expected a first one that is not AUTO, none after AUTO but AUTO, and none twice"
        )


def _partitions(value: int | None) -> int | None:
    if value is None:
        return None
    if type(value) is int and value <= LARGEST_INDEX:
        return max(value, 1)
    raise _refused("max_delegated_partitions", value, f"None or a whole number up to {LARGEST_INDEX}")


def _whole(name: str, value: int) -> int:
    if type(value) is int and 0 <= value <= LARGEST_INDEX:
        return value
    raise _refused(name, value, f"a whole number from 0 to {LARGEST_INDEX}")


def _last_index(value: int | None) -> int | None:
    if value is None or (type(value) is int and 0 <= value <= LARGEST_INDEX):
        return None if value == LARGEST_INDEX else value
    raise _refused("last_delegate_node_index", value, f"None or a whole number from 0 to {LARGEST_INDEX}")


def _operators(value: str | list[str] | tuple[str, ...] | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = value.split(",") if isinstance(value, str) else value
    if isinstance(names, list | tuple) and names and all(isinstance(name, str) for name in names):
        found = sorted({name.strip() for name in names})
        if all(map(_is_operator, found)):
            return tuple(found)
    raise _refused("only_ops", value, "None or names of operators, as ('ADD', 'CONV_2D') or 'ADD,CONV_2D'")


def _is_operator(name: str) -> bool:
    """Whether a name can stand in `partition_key`, whose pairs have spaces and whose names have commas between them."""
    return bool(name) and name.isprintable() and not any(letter in " ," for letter in name)


def _directory(value: str | os.PathLike[str] | bool | None) -> str | bool | None:
    if value is None or value is False:
        return value
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise _refused("serialization_dir", value, "a directory, None (user cache) or False (no cache)")
    return os.fspath(value)


_OPTIONAL = {
    *(
        "is_precision_loss_allowed",
        "last_delegate_node_index",
        "max_delegated_partitions",
        "model_token",
        "num_threads",
    ),
    *("only_ops", "precision", "serialization_dir", "stream"),
}
"""Options whose value may be None."""
_NUMBERS = {
    *("first_delegate_node_index", "inference_preference", "inference_priority1", "inference_priority2"),
    *("inference_priority3", "last_delegate_node_index", "max_delegated_partitions", "min_nodes_per_partition"),
    *("num_threads", "stream"),
}
_SIGNED = {"is_precision_loss_allowed", "max_delegated_partitions"}
_TRUE_OR_FALSE = {"is_precision_loss_allowed", "private_weights", "profile", "require_full_delegation"}


def _parse(name: str, text: str) -> str | int | bool | tuple[str, ...] | None:
    """The value that the text of an option stands for; the text itself where it stands for none, to be refused."""
    if name in _OPTIONAL and text == "None":
        return None
    if name in _TRUE_OR_FALSE and text in _TRUTHS:
        return _TRUTHS[text]
    if name == "serialization_dir" and text in ("False", "false"):
        return False
    if name == "only_ops":
        return _names(text)
    sign, digits = ("-", text[1:]) if name in _SIGNED and text.startswith("-") else ("", text)
    if (sign or name in _NUMBERS) and digits.isdecimal() and len(digits) <= _LONGEST_NUMBER:
        return int(sign + digits)
    return text


def _names(text: str) -> str | tuple[str, ...]:
    """The names in the text of a list or tuple of them; other texts are as they are."""
    if text[:1] + text[-1:] not in ("()", "[]"):
        return text
    return tuple(name.strip().strip("'\"") for name in text[1:-1].rstrip(", ").split(","))
