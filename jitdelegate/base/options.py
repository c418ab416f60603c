"""The options of a model: one table of names, types, defaults and checks, and `DelegateOptions` with their values.

`FIELDS` is the only list of options. The constructor and the slots of `DelegateOptions`, options from texts, from files
and from arguments of commands, and the parts of the cache key follow from it. `python -m scripts.generate_option_docs`
writes `option_types.py` for type checkers and the table of docs/options.md from it.

Load path: plain classes only, no dataclasses, no enum, no typing at import time.
"""

from __future__ import annotations

import os

from jitdelegate.base.targets import AUTO as AUTO_TARGET
from jitdelegate.base.targets import CPU, GPU, LEVELS, NAMES, NPU, ROWS
from jitdelegate.errors import OptionError, did_you_mean

TYPE_CHECKING = False
if TYPE_CHECKING:
    import inspect
    from collections.abc import Callable, Mapping
    from typing import Any, Unpack

    from jitdelegate.base.option_types import Arguments, Checked
else:
    Checked = object

CPU_FEATURES = ("auto", *reversed(LEVELS))
PRECISIONS = ("float32", "tf32", "float16", "bfloat16")
ANY_PRECISION = "auto"
"""Takes the fastest of PRECISIONS whose results are near enough."""
TUNINGS = ("none", "fast", "full")
PREFERENCES = ("FAST_SINGLE_ANSWER", "SUSTAINED_SPEED", "BALANCED")
"""In the order of TFLite's numbers, as `PRIORITIES`."""
PRIORITIES = ("AUTO", "MAX_PRECISION", "MIN_LATENCY", "MIN_MEMORY_USAGE")
AUTO, MAX_PRECISION, MIN_LATENCY, MIN_MEMORY_USAGE = PRIORITIES
FLAGS = ("ENABLE_QUANT", "CL_ONLY", "GL_ONLY", "ENABLE_SERIALIZATION")
"""In the order of TFLite's bits, the lowest first."""
ENABLE_QUANT, *_FOREIGN, ENABLE_SERIALIZATION = FLAGS
REMOTE, REMOTE_KEY = "JITDELEGATE_REMOTE", "JITDELEGATE_REMOTE_KEY"
"""Environment variables for the options of the same names."""
MOST_THREADS = 64
LARGEST_DEVICE = 1023
LARGEST_INDEX = 2147483647
"""TFLite's INT_MAX; as the last node of a range it means no end."""
LONGEST_SHOWN = 80
"""Most letters of a value in a message."""
LONGEST_NUMBER = 20
"""Most digits of a number, those of the largest handle; Python refuses to parse thousands."""
_LARGEST_HANDLE = (1 << 64) - 1
_NO = ("False", "false")
_TRUTHS = {"True": True, "true": True, "1": True, "0": False, **dict.fromkeys(_NO, False)}


def refused(name: str, value: object, expected: str) -> OptionError:
    return OptionError(f"{name} is {shown(value)}, expected {expected}")


def shown(value: object) -> str:
    """A value for an error message, truncated."""
    try:
        text = repr(value)
    except ValueError:  # Python prints no integers of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def _debug_level(text: str) -> int:
    """
    Raises:
        OptionError: JITDELEGATE_DEBUG is no level.
    """
    if text not in DEBUG_LEVELS:
        raise refused("JITDELEGATE_DEBUG", text, f"one of {', '.join(DEBUG_LEVELS)}")
    return int(text)


def environment_folders() -> tuple[str, ...]:
    """The prebuilt folders that the environment names."""
    return tuple(folder for folder in os.environ.get(PREBUILT, "").split(os.pathsep) if folder)


DEBUG_LEVELS = ("0", "1", "2", "3", "4")
PREBUILT = "JITDELEGATE_PREBUILT"
"""The variable that names prebuilt folders, as PATH does, where the option `prebuilt` is not given."""
DEBUG_LEVEL = _debug_level(os.environ.get("JITDELEGATE_DEBUG") or "0")
"""Level of the debug log, read once; `debug.py` describes the levels."""
CACHE_MAX_BYTES = os.environ.get("JITDELEGATE_CACHE_MAX_BYTES") or None
"""The limit of the cache where the option `cache_max_bytes` is not given, read once; it is checked with the options."""
TIMED_LEVEL = 2
"""Lowest level that turns the option `profile` on."""


def check_mapping(mapping: Mapping[str, Any]) -> None:
    """
    Raises:
        OptionError: `mapping` is not a mapping.
    """
    if not (hasattr(mapping, "keys") and hasattr(mapping, "items")):
        raise OptionError(f"options are {shown(mapping)}, expected a mapping from names to values, or a file's path")


class Field:
    """One option.

    Attributes:
        default: its value where it is not given; None also where other options then decide.
        usual: the value that is kept where no option is given.
        given: types of the values that are taken, as for a type checker; texts are parsed by them.
        kept: the type of the checked value.
        check: takes the option's name and a given value, not None, and returns the value that is kept, or raises
            OptionError; None for options with `choices`.
        choices: all values, of options that have a few. An option with numbers too takes positions in `choices`.
        key: the part of the cache key that has the value where it is not the default; OTHER for those that the
            target's own parts have, or other options stand for; "" where no program depends on the option.
        alias: another name of the option.
    """

    __slots__ = ("alias", "check", "choices", "default", "given", "kept", "key", "usual")

    def __init__(
        self,
        default: Any,
        given: str = "str",
        kept: str = "",
        *,
        check: Callable[[str, Any], Any] | None = None,
        choices: tuple[str, ...] = (),
        key: str = "",
        alias: str = "",
        usual: Any = None,
    ) -> None:
        self.default = default
        self.given = given
        self.kept = kept or given
        self.check = check
        self.choices = choices
        self.key = key
        self.alias = alias
        self.usual = default if usual is None else usual

    def checked(self, name: str, value: Any) -> Any:
        """The value that is kept of a given one.

        Args:
            name: of the option, for the message.
        Raises:
            OptionError: the value is refused.
        """
        if value is None and self.given.endswith("None"):
            return None
        if self.check is not None:
            return self.check(name, value)
        return (numbered if "int" in self.given else choice)(name, value, self.choices)

    def parsed(self, text: str) -> Any:
        """The value in a text, by the types that the option takes; the text itself where it is none of those."""
        types = self.given.split(" | ")
        if text == "None" and "None" in types:
            return None
        if self.check is _tensors:  # which splits texts itself: digits are an index
            return text == "True" or (False if text == "False" else text)
        if "bool" in types and text in (_TRUTHS if "int" in types else _NO):
            return _TRUTHS[text]
        if self.kept.startswith("tuple[str, ...]") and text[:1] + text[-1:] in ("()", "[]"):
            return _listed(text)
        if len(text) > LONGEST_NUMBER:
            return text
        if "float" in types:
            try:
                return float(text)
            except ValueError:
                return text
        # other texts stay as they are, so that messages show them: signs that mean nothing, and names of devices
        is_negative = text[:1] == "-" and text[1:].isdecimal() and self.check in (_partitions, _precision_loss)
        is_number = text.isdecimal() and "int" in types and "bool" not in types and self.check is not _device
        return int(text) if is_negative or is_number else text


def choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    if isinstance(value, str) and value in choices:
        return value
    raise refused(name, value, f"one of {', '.join(choices)}")


def numbered(name: str, value: Any, choices: tuple[str, ...]) -> str:
    if type(value) is int and 0 <= value < len(choices):
        return choices[value]
    if isinstance(value, str) and value in choices:
        return value
    raise refused(name, value, f"one of {', '.join(choices)}, or a whole number from 0 to {len(choices) - 1}")


def whole(least: int, most: int, words: str = "a whole number from {} to {}") -> Callable[[str, Any], int]:
    """A check of whole numbers; `words` say what is expected."""

    def check(name: str, value: Any) -> int:
        if type(value) is int and least <= value <= most:
            return value
        raise refused(name, value, words.format(least, most))

    return check


def _truth(name: str, value: Any) -> bool:
    if type(value) in (bool, int) and value in (0, 1):
        return bool(value)
    raise refused(name, value, "True, False, 1 or 0")


def _precision_loss(name: str, value: Any) -> bool | None:
    if type(value) in (bool, int) and value in (-1, 0, 1):
        return None if value == -1 else bool(value)
    raise refused(name, value, "True, False, 1 or 0, or None or -1 where it is not given")


def _nbytes(name: str, value: Any) -> int:
    """Bytes, also of a text such as 500M."""
    nbytes = value
    if isinstance(value, str):
        from jitdelegate.base.sizes import parse_size  # not before: few sizes are texts

        try:
            nbytes = parse_size(value)
        except ValueError:
            nbytes = 0
    if type(nbytes) is int and 1 <= nbytes <= _LARGEST_HANDLE:
        return nbytes
    raise refused(name, value, "None, a number of bytes from 1 on, or a text such as '500M' or '2G'")


def _token(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    raise refused(name, value, "a string or None")


def _directory(name: str, value: Any) -> str | bool:
    if value is False:
        return False
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise refused(name, value, "a directory, None (user cache) or False (no cache)")
    return os.fspath(value)


def _folders(name: str, value: Any) -> tuple[str, ...]:
    """Paths of folders; a text is one path."""
    given = value if isinstance(value, list | tuple) else [value]
    if all(isinstance(folder, str | os.PathLike) and os.fspath(folder) for folder in given):
        return tuple(map(os.fsdecode, given))
    raise refused(name, value, "a folder, a list or tuple of folders, or None")


def _remote(name: str, value: Any) -> str | bool:
    if value is False or (isinstance(value, str) and value):
        return value
    raise refused(name, value, "a URL, None (that of JITDELEGATE_REMOTE) or False (no remote)")


def _key_file(name: str, value: Any) -> str:
    if isinstance(value, str | os.PathLike) and os.fspath(value):
        return os.fsdecode(value)
    raise refused(name, value, "the path of a public key, or None")


def _inputs_file(name: str, value: Any) -> str:
    if isinstance(value, str | os.PathLike) and os.fsdecode(value).endswith(".npz"):
        return os.fsdecode(value)
    raise refused(name, value, "None or the path of a .npz file")


def _device(name: str, value: Any) -> int | str:
    device = value
    if isinstance(device, str) and device.isdecimal() and len(device) <= LONGEST_NUMBER:
        device = int(device)
    if type(device) is int and 0 <= device <= LARGEST_DEVICE:
        return device
    if isinstance(device, str) and device.strip() and not device.strip().lstrip("+-").isdecimal():
        return device
    raise refused(name, value, f"a whole number from 0 to {LARGEST_DEVICE} or a part of a GPU's name")


def _accelerators(name: str, value: Any) -> int:
    """LiteRT's flags of the hardware to use."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= CPU | GPU | NPU:
        raise refused(name, value, "CPU (1), GPU (2), or GPU | CPU (3)")
    if value & NPU:
        raise refused(name, value, "CPU (1), GPU (2), or GPU | CPU (3): nothing here runs on an NPU")
    return int(value)


def _bound(name: str, value: Any) -> float:
    if type(value) in (int, float) and 0 <= value <= 1:
        return float(value)
    raise refused(name, value, "a number from 0 to 1")


def _partitions(name: str, value: Any) -> int:
    if type(value) is int and value <= LARGEST_INDEX:
        return max(value, 1)
    raise refused(name, value, f"None or a whole number up to {LARGEST_INDEX}")


def _last_index(name: str, value: Any) -> int | None:
    index = whole(0, LARGEST_INDEX, "None or a whole number from {} to {}")(name, value)
    return None if index == LARGEST_INDEX else index


def _operators(name: str, value: Any) -> tuple[str, ...]:
    given = value.split(",") if isinstance(value, str) else value
    if isinstance(given, list | tuple) and given and all(isinstance(operator, str) for operator in given):
        names = sorted({operator.strip() for operator in given})
        if all(map(_is_operator, names)):
            return tuple(names)
    raise refused(name, value, "None or names of operators, as ('ADD', 'CONV_2D') or 'ADD,CONV_2D'")


def _tensors(name: str, value: Any) -> bool | tuple[str | int, ...] | None:
    """Names and indices of tensors; texts may list them, and have digits for an index."""
    if type(value) is bool:
        return value or None
    given = _listed(value) if isinstance(value, str) else [value] if type(value) is int else value
    if isinstance(given, list | tuple) and given and all(map(_is_tensor, given)):
        return tuple(dict.fromkeys(given))
    raise refused(name, value, "names or indices of tensors, as ('conv1', 7) or 'conv1,7', True for all, or None")


def _listed(text: str) -> Any:
    """What a text lists: as Python writes a tuple or a list, or between commas."""
    inner = text
    if text[:1] + text[-1:] in ("()", "[]"):
        from ast import literal_eval  # not before: few options are tuples in texts

        try:
            return literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            inner = text[1:-1].rstrip(", ")
    names = (part.strip().strip("'\"") for part in inner.split(","))
    return [int(part) if part.isdecimal() and len(part) <= LONGEST_NUMBER else part for part in names]


def _is_tensor(value: Any) -> bool:
    return bool(value) if isinstance(value, str) else type(value) is int and 0 <= value <= LARGEST_INDEX


def _is_operator(name: str) -> bool:
    """Whether a name fits into a part of the key, which separates options by spaces and names by commas."""
    return bool(name) and name.isprintable() and not any(letter in " ," for letter in name)


def _flags(name: str, value: Any) -> tuple[str, ...]:
    """TFLite's flags by name, in the order of their bits.

    Raises:
        OptionError: an unknown flag, or one that names an API that is not used here.
    """
    if type(value) is int and 0 <= value < 1 << len(FLAGS):
        flags = {flag for bit, flag in enumerate(FLAGS) if value >> bit & 1}
    elif isinstance(value, str | list | tuple) and all(isinstance(flag, str) for flag in value):
        listed = value.split(",") if isinstance(value, str) else value
        flags = {flag.strip() for flag in listed} - {""}
    else:
        flags = {""}
    if not flags.issubset(FLAGS):
        raise refused(name, value, f"{ENABLE_QUANT}, {ENABLE_SERIALIZATION} or both, or TFLite's number of them")
    for flag in flags.intersection(_FOREIGN):
        api = "OpenCL" if flag == "CL_ONLY" else "OpenGL"
        reason = f"but nothing here runs on {api}: a GPU is used through CUDA"
        raise OptionError(f"experimental_flags has {flag}, {reason}; expected {ENABLE_QUANT}, {ENABLE_SERIALIZATION}")
    return tuple(flag for flag in FLAGS if flag in flags)


PARTITIONS, QUANTIZATION, PORTS, OTHER = "partitions", "quantization", "ports", "other"
"""Parts of the key."""
_PATH = "str | os.PathLike[str]"
_NAMES = "str | list[str] | tuple[str, ...]"
_TENSORS = "bool | str | int | Sequence[str | int] | None"
_TRUTH = ("bool | int", "bool")
_NUMBERED = ("str | int", "str")
_index = whole(0, LARGEST_INDEX)

FIELDS = {
    "target": Field("auto", choices=NAMES, key=OTHER, alias="backend"),
    "serialization_dir": Field(None, f"{_PATH} | bool | None", "str | bool | None", check=_directory),
    "prebuilt": Field(None, f"{_PATH} | Sequence[{_PATH}] | None", "tuple[str, ...] | None", check=_folders),
    "cache_max_bytes": Field(None, "int | str | None", "int | None", check=_nbytes),
    "remote": Field(None, "str | bool | None", check=_remote),
    "remote_key": Field(None, f"{_PATH} | None", "str | None", check=_key_file),
    "model_token": Field(None, "str | None", check=_token, key=OTHER),
    "num_threads": Field(None, "int | None", check=whole(1, MOST_THREADS, "None or a whole number from {} to {}")),
    "cpu_features": Field("auto", choices=CPU_FEATURES, key=OTHER),
    "device": Field(0, "int | str", check=_device),
    "hardware_accelerators": Field(GPU | CPU, "int", check=_accelerators),
    "stream": Field(
        None,
        "int | None",
        check=whole(0, _LARGEST_HANDLE, "None or the handle of a CUDA stream, a whole number"),
    ),
    "precision": Field(None, "str | None", "str", choices=(*PRECISIONS, ANY_PRECISION), key=OTHER, usual=PRECISIONS[0]),
    "precision_bound": Field(0.01, "float", check=_bound, key=OTHER),
    "precision_inputs": Field(None, f"{_PATH} | None", "str | None", check=_inputs_file, key=OTHER),
    "is_precision_loss_allowed": Field(None, "bool | int | None", "bool | None", check=_precision_loss, key=OTHER),
    "tuning": Field("none", choices=TUNINGS, key=OTHER),
    "inference_preference": Field("FAST_SINGLE_ANSWER", *_NUMBERED, choices=PREFERENCES),
    "inference_priority1": Field("MAX_PRECISION", *_NUMBERED, choices=PRIORITIES, key=OTHER),
    "inference_priority2": Field("AUTO", *_NUMBERED, choices=PRIORITIES, key=OTHER),
    "inference_priority3": Field("AUTO", *_NUMBERED, choices=PRIORITIES, key=OTHER),
    "max_delegated_partitions": Field(None, "int | None", check=_partitions, key=PARTITIONS),
    "min_nodes_per_partition": Field(0, "int", check=_index, key=PARTITIONS),
    "private_weights": Field(False, *_TRUTH, check=_truth),
    "requests_in_flight": Field(2, "int", check=whole(1, MOST_THREADS)),
    "require_full_delegation": Field(False, *_TRUTH, check=_truth),
    "first_delegate_node_index": Field(0, "int", check=_index, key=PARTITIONS),
    "last_delegate_node_index": Field(None, "int | None", check=_last_index, key=PARTITIONS),
    "only_ops": Field(None, f"{_NAMES} | None", "tuple[str, ...] | None", check=_operators, key=PARTITIONS),
    "profile": Field(False, *_TRUTH, check=_truth, key=OTHER, usual=DEBUG_LEVEL >= TIMED_LEVEL),
    "partitioning": Field("cost_model", choices=("cost_model", "all"), key=PARTITIONS),
    "quantized_models_allowed": Field(
        None, "bool | int | None", "bool", check=_truth, key=PARTITIONS, alias="experimental_enable_quant", usual=True
    ),
    "experimental_flags": Field((ENABLE_QUANT,), f"int | {_NAMES}", "tuple[str, ...]", check=_flags, key=OTHER),
    "quantized_execution": Field("auto", choices=("auto", "dynamic", "float_view"), key=QUANTIZATION),
    "quantized_rounding": Field("litert", choices=("litert", "reference"), key=QUANTIZATION),
    "quantize_inputs": Field(False, *_TRUTH, check=_truth, key=PORTS),
    "dequantize_outputs": Field(False, *_TRUTH, check=_truth, key=PORTS),
    "extra_outputs": Field(None, _TENSORS, "bool | tuple[str | int, ...] | None", check=_tensors, key=PORTS),
}
"""Every option by its name, in the order of the documentation."""
ALIASES = {field.alias: name for name, field in FIELDS.items() if field.alias}
"""Other names of options."""
_KEYS = {
    part: [(name, FIELDS[name].usual) for name in sorted(FIELDS) if FIELDS[name].key == part]
    for part in (PARTITIONS, QUANTIZATION, PORTS)
}
_TEXTS: dict[str, Callable[[Any], str]] = {"only_ops": ",".join, "extra_outputs": ascii}
"""How parts of the key write values that are no text or number."""


class OptionSignature:
    """The signature of a function whose further keywords are options, with each of these; made when `inspect` asks."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function: Any = function

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        return self.__signature__

    @property
    def __signature__(self) -> inspect.Signature:
        from inspect import Parameter, signature  # not before: few programs ask, and it is large

        own = signature(self._function, follow_wrapped=False)
        *named, keywords = (parameter for name, parameter in own.parameters.items() if name != "self")
        takes_none, known = keywords.annotation == "Unpack[Keywords]", {parameter.name for parameter in named}
        for name, field in (*FIELDS.items(), *((alias, FIELDS[name]) for alias, name in ALIASES.items())):
            if name not in known:
                kind = f"{field.given.removesuffix(' | None')} | None" if takes_none else field.given
                default = None if takes_none else field.default
                named.append(Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind))
        return own.replace(parameters=named)

    @property
    def __wrapped__(self) -> Any:
        """The function for those who look for its source, in a copy that does not lead here again."""
        return type(self._function)(self._function.__code__, self._function.__globals__)


class DelegateOptions(Checked):
    """One model's options, checked; errors name unknown options and wrong values.

    Attributes:
        target: "cuda" compiles for this machine's GPU, "cpu" for its CPU, "litert" runs the whole model on LiteRT,
            "reference" evaluates it with numpy, for comparison, and "auto" takes the fastest available one: LiteRT
            where generic code alone runs. `backend` is another name of this option.
        serialization_dir: directory of programs; None is the user's cache directory, False turns the cache off.
        prebuilt: folders of programs that are only read, and looked into before `serialization_dir`: a path, or a list
            or tuple of paths, in their order. `warm --output` makes them. With None, the variable JITDELEGATE_PREBUILT
            names them, with a colon between two; an empty list means none.
        cache_max_bytes: most bytes of programs in the directory: after one was stored, those go that were not used for
            longest. A number, or a text such as "500M" or "2G"; None takes that of the environment variable
            JITDELEGATE_CACHE_MAX_BYTES, or sets no limit.
        remote: URL of a folder with programs that other machines compiled and `cache_tools push` signed: s3://, gs://,
            https://, file:// and whatever else fsspec opens. Programs that the directory lacks are fetched from there
            into it. None is that of the environment variable JITDELEGATE_REMOTE, False is none.
        remote_key: path of the public key of the remote's signer; None is that of JITDELEGATE_REMOTE_KEY. Without a
            key, only a folder of this machine is used that the user or root owns and no other user may write.
        model_token: begins the names of the model's entries, in place of its fingerprint, which stays a part of the
            key: two models may have one token.
        num_threads: threads that share one inference; None takes the CPUs that this process and its container may
            use, at most 4.
        cpu_features: instruction set of CPU code. "auto" takes the widest one of this CPU; "generic" compiles for any
            CPU and loads through llvmlite. With a named instruction set, the target "auto" compiles on any CPU.
        device: the GPU's number among those visible to the process, or a part of its name in upper or lower case, such
            as "h100", which means the first GPU with such a name. A string of digits is a number.
        hardware_accelerators: LiteRT's flags, by which "auto" chooses: CPU (1) uses no GPU, GPU (2) uses only a GPU and
            refuses a model with an operator that is not compiled, and GPU | CPU (3) uses what is available. The flags
            have to allow a named target.
        stream: handle of a CUDA stream of the process on that GPU, such as `torch.cuda.Stream().cuda_stream`: the model
            runs after earlier work in it, and a call returns when the run is done. None is the model's own stream.
        precision: of products; sums are float32, but for those of "float16" on a CPU. On a GPU, "tf32" multiplies in
            TF32 on tensor cores, "float16" and "bfloat16" also store activations in 16 bits. On the CPU, "bfloat16"
            stores weights that a product waits for in bfloat16, and multiplies in bfloat16 on AMD's CPUs with
            AVX512-BF16 and on Arm's with i8mm; "float16" multiplies in float16 on Arm's CPUs that can, in sums of some
            64 products, and means "float32" on others, as "tf32" does. "auto" runs the model once in each precision of
            the device, and takes the fastest whose outputs are close to those of "float32"; for a GPU of another
            machine it means "float32". With None, `is_precision_loss_allowed` decides, and then the priorities.
        precision_bound: largest error for the precision "auto": the largest NRMSE of an output, that is the root mean
            square of its differences divided by that of its float32 values; for integers, the share of elements that
            differ.
        precision_inputs: path of a .npz file with an array for each input, by its name, with which "auto" runs the
            model; None means random values. The key has the fingerprint of its content, which is read at every start.
        is_precision_loss_allowed: TFLite's older option: False means "float32", True "float16", before the priorities.
            None, or TFLite's -1, means not given.
        tuning: of CUDA code: "fast" and "full" measure kernels for the model's shapes on the GPU while it is compiled,
            and store the fastest in the cache directory, for all models: "fast" measures few candidates for some
            seconds, "full" all of them. "none" uses the package's own tables and its cost model.
        inference_preference: TFLite's hint about the model's use: "FAST_SINGLE_ANSWER", "SUSTAINED_SPEED" or
            "BALANCED", or its numbers 0, 1 and 2. It is checked and has no effect.
        inference_priority1: the first priority: "MAX_PRECISION" means "float32", "MIN_LATENCY" and "MIN_MEMORY_USAGE"
            mean "float16". TFLite's numbers are 1, 2 and 3; 0 is "AUTO", which the first priority cannot be.
        inference_priority2: the second priority, other than the first. "AUTO" means none. If the first priority is not
            precision, any value means float16 with sums in float32. On the CPU, "MIN_MEMORY_USAGE" before "MIN_LATENCY"
            keeps Winograd's algorithms off, whose weights are larger, and whose rounding errors are about twice those
            of direct sums.
        inference_priority3: the third priority; "AUTO" if the second is.
        max_delegated_partitions: most partitions to compile, the largest first; None is any number. 0 and less mean 1,
            as in TFLite.
        min_nodes_per_partition: partitions with fewer operators run on LiteRT.
        private_weights: keep weights in private memory. Without it, processes share the weights of a large program with
            its file, detect changes of that file, and recover; with it, changes of the file cannot reach a running
            model, and each process has its own copy.
        requests_in_flight: number of inferences of `run_async` that are computed at the same time, each with its own
            arena; further ones wait. On the CPU they share `num_threads`, on a GPU they run one after another. A model
            with variables, or of which LiteRT runs a part, computes one at a time.
        require_full_delegation: refuse a model with an operator that is not compiled, with the reasons.
        first_delegate_node_index: for debugging: operators before this position of the file run on LiteRT.
        last_delegate_node_index: for debugging: operators after this position run on LiteRT. None and TFLite's
            2147483647 mean no end; a last position before the first leaves all operators on LiteRT.
        only_ops: for debugging: operators of other names run on LiteRT; None means all. A sorted tuple of names such as
            "CONV_2D", or of custom operators; a list, or one string with commas, is accepted. Names have no spaces.
        profile: time each kernel, for `Report.kernel_times`. CPU code takes time stamps; a GPU's kernels are launched
            one by one with events between them. Models run slower.
        partitioning: "cost_model" compiles the partitions that save more than their crossings cost, "all" every
            partition that can be compiled.
        quantized_models_allowed: False leaves operators with quantized activations on LiteRT; those with float
            activations and quantized weights are still compiled, as in TFLite. With None, `experimental_flags` decides.
            `experimental_enable_quant` is another name of this option.
        experimental_flags: TFLite's flags: a tuple of "ENABLE_QUANT", which has the meaning of
            `quantized_models_allowed`, and "ENABLE_SERIALIZATION", which contradicts `serialization_dir=False`; the
            cache is also on without it. TFLite's number of the flags, a list, or one string with commas is accepted.
            "CL_ONLY" and "GL_ONLY" are refused: nothing here runs on OpenCL or OpenGL.
        quantized_execution: how quantized operators are computed. Those with quantized activations: in integers, as
            LiteRT computes them, or with "float_view" in float32, with every result rounded to a value of its quantized
            type, as in TFLite's GPU delegate. Those with float activations and quantized weights: "dynamic" quantizes
            the activations per row and multiplies integers, as XNNPACK does, "float_view" multiplies floats with
            dequantized weights, and "auto" takes the faster way for each operator by estimate.
        quantized_rounding: of compiled operators with quantized activations: "litert" gives the results of LiteRT's
            default kernels, or of XNNPACK for operators that it supports; "reference" gives those of LiteRT's reference
            kernels.
        quantize_inputs: inputs of int8, uint8 and int16 that are quantized per tensor are float32 instead: a QUANTIZE
            before the model's operators converts them.
        dequantize_outputs: such outputs are float32 instead, by a DEQUANTIZE after the model's operators: scale *
            (stored value - zero point). LiteRT's own interpreter allows neither, and no extra outputs.
        extra_outputs: intermediate tensors that are outputs too, after the model's own: names, and indices of the main
            subgraph's tensors; a tuple, a list, or one string with commas. Signatures have them by the tensors' names.
            Quantized ones give their stored numbers. Operators that would be fused with others are then kept apart, so
            the model may run slower. True means every tensor that an operator computes.
    """

    __slots__ = tuple(sorted(FIELDS))

    def __init__(self, **arguments: Unpack[Arguments]) -> None:
        """
        Raises:
            OptionError: an option is unknown, a value is refused, or two options contradict each other.
        """
        keywords = _by_name(arguments)
        for name, field in FIELDS.items():
            setattr(self, name, field.checked(name, keywords[name]) if name in keywords else field.default)
        if self.target != AUTO_TARGET and not self.hardware_accelerators & ROWS[self.target].hardware:
            expected = f"flags that allow the target {self.target!r}"
            raise refused("hardware_accelerators", self.hardware_accelerators, expected)
        if self.serialization_dir is False and ENABLE_SERIALIZATION in self.experimental_flags:
            raise OptionError("experimental_flags has ENABLE_SERIALIZATION, but serialization_dir is False: no cache")
        for name, meant in self._meant().items():
            if getattr(self, name) == FIELDS[name].default:
                setattr(self, name, meant)
        self.profile = self.profile or DEBUG_LEVEL >= TIMED_LEVEL
        if self.cache_max_bytes is None and CACHE_MAX_BYTES is not None:
            self.cache_max_bytes = _nbytes("JITDELEGATE_CACHE_MAX_BYTES", CACHE_MAX_BYTES)

    __signature__ = OptionSignature(__init__)

    def __repr__(self) -> str:
        return f"DelegateOptions({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"

    def _meant(self) -> dict[str, Any]:
        """The values that other options mean for options that are not given.

        Raises:
            OptionError: TFLite refuses this order of priorities.
        """
        order = self._order
        loses = self.is_precision_loss_allowed
        if loses is None:
            _check_order(order)
            loses = order[0] != MAX_PRECISION
        return {
            "require_full_delegation": self.hardware_accelerators == GPU,
            "precision": "float16" if loses else "float32",
            "quantized_models_allowed": ENABLE_QUANT in self.experimental_flags,
            "remote": os.environ.get(REMOTE) or None,
            "remote_key": os.environ.get(REMOTE_KEY) or None,
        }

    @property
    def remote_place(self) -> tuple[str, str]:
        """The remote's URL, and the path of its signer's public key; "" for none of them."""
        return self.remote if isinstance(self.remote, str) else "", self.remote_key or ""

    @property
    def _order(self) -> tuple[str, str, str]:
        return self.inference_priority1, self.inference_priority2, self.inference_priority3

    @property
    def saves_memory(self) -> bool:
        """Whether memory has priority over latency; TFLite has it the other way where neither is given."""
        order = self._order
        return MIN_MEMORY_USAGE in (order if MIN_LATENCY not in order else order[: order.index(MIN_LATENCY)])

    @property
    def prebuilt_folders(self) -> tuple[str, ...]:
        """The folders of `prebuilt`, or of the environment where the option is not given."""
        return environment_folders() if self.prebuilt is None else self.prebuilt

    @property
    def changed(self) -> tuple[str, ...]:
        """Names of the options that differ from their defaults, in alphabetical order."""
        meant = self._meant()  # an option that others stand for is not named beside them
        names = (name for name in self.__slots__ if getattr(self, name) != FIELDS[name].usual)
        return tuple(name for name in names if name not in meant or getattr(self, name) != meant[name])

    @property
    def partition_key(self) -> str:
        """The options that decide which operators are delegated, as "name=value" pairs; "" for the defaults."""
        return self._pairs(PARTITIONS)

    @property
    def quantization_key(self) -> str:
        """As `partition_key`, of the options that decide how quantized operators are computed."""
        return self._pairs(QUANTIZATION)

    @property
    def port_key(self) -> str:
        """As `partition_key`, of the options that decide the types of inputs and outputs."""
        return self._pairs(PORTS)

    def _pairs(self, part: str) -> str:
        """The options of one part of the key that differ from their defaults, sorted by name."""
        changed = [(name, getattr(self, name)) for name, usual in _KEYS[part] if getattr(self, name) != usual]
        return " ".join(f"{name}={_TEXTS.get(name, str)(value)}" for name, value in changed)

    def with_threads(self, num_threads: int | None) -> DelegateOptions:
        """The same options; an interpreter's `num_threads`, at most MOST_THREADS, replaces None."""
        return self.altered(num_threads=self.num_threads or (num_threads and min(int(num_threads), MOST_THREADS)))

    def altered(self, **values: Any) -> DelegateOptions:
        """A copy with some values replaced.

        Raises:
            OptionError: as the constructor.
        """
        return DelegateOptions(**{**{name: getattr(self, name) for name in self.__slots__}, **values})

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> DelegateOptions:
        """Options from keyword names to values.

        Raises:
            OptionError: a name is not an option, a value is refused, or the argument is no mapping.
        """
        return cls(**_by_name(mapping))

    @classmethod
    def from_strings(cls, mapping: Mapping[str, Any]) -> DelegateOptions:
        """Options from names to values that went through str(), as LiteRT passes delegate options.

        Raises:
            OptionError: a name is not an option, or a string cannot be parsed as its value.
        """
        check_mapping(mapping)
        return cls.from_mapping(_parsed({str(name): str(value) for name, value in mapping.items()}))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> DelegateOptions:
        """Options from a .json or .toml file: a table from names to values, or to their texts.

        The table is the whole file, or its table "jitdelegate" or "gpu_options".

        Raises:
            OptionError: the file cannot be read or parsed, or an option is refused; the message names the file.
        """
        return cls(**file_keywords(path))

    @classmethod
    def from_keywords(
        cls, keywords: Mapping[str, Any], further: Mapping[str, Any] | str | os.PathLike[str] | None = None
    ) -> DelegateOptions:
        """Options from keywords that are not None, and from `further`, a mapping or a file's path, which they override.

        The mapping may have texts for values, as that of `from_strings`.

        Raises:
            OptionError: as `from_mapping` and `from_file`.
        """
        given = {name: value for name, value in keywords.items() if value is not None}
        if further is None:
            return cls(**given)
        given = _by_name(given)
        if isinstance(further, str | os.PathLike):
            return cls(**{**file_keywords(further), **given})
        return cls(**{**_by_name(_parsed(further)), **given})


def file_keywords(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The options in a file as keywords of `DelegateOptions`, already checked.

    Raises:
        OptionError: as `DelegateOptions.from_file`.
    """
    from jitdelegate.base.option_file import read_table  # not before: few options come from files

    table = read_table(path)
    try:
        keywords = _by_name(_parsed(table))
        DelegateOptions(**keywords)
    except OptionError as error:
        raise OptionError(f"{os.fsdecode(path)}: {error}") from error
    return keywords


def _parsed(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping with values in place of their texts."""
    check_mapping(mapping)
    values = dict(mapping.items())
    for name, value in values.items():
        field = FIELDS.get(ALIASES.get(name, name))
        if field is not None and isinstance(value, str):
            values[name] = field.parsed(value)
    return values


def _by_name(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping with options under their own names.

    Raises:
        OptionError: a name is not an option, or an option has two names and two values.
    """
    check_mapping(mapping)
    unknown = [str(name) for name in mapping if name not in FIELDS and name not in ALIASES]
    if unknown:
        raise _unknown(unknown)
    keywords = dict(mapping.items())
    for alias, name in ALIASES.items():
        if alias not in keywords:
            continue
        value = FIELDS[name].checked(alias, keywords.pop(alias))
        own = FIELDS[name].checked(name, keywords.setdefault(name, value))
        if own != value:
            raise OptionError(f"{name} is {own!r} but {alias}, another name of it, is {value!r}; expected one value")
    return keywords


def _check_order(priorities: tuple[str, str, str]) -> None:
    """
    Raises:
        OptionError: TFLite refuses the priorities: none is given, one follows AUTO, or one is given twice.
    """
    named = tuple(priority for priority in priorities if priority != AUTO)
    if not named or priorities[: len(named)] != named or len(set(named)) < len(named):
        raise OptionError(
            "inference_priority1, inference_priority2 and inference_priority3 are {!r}, {!r} and {!r}, expected a "
            "first one that is not AUTO, none after AUTO but AUTO, and none twice".format(*priorities)
        )


def _unknown(names: list[str]) -> OptionError:
    """The error about unknown options, with similar names."""
    options = sorted((*FIELDS, *ALIASES))
    shown = [name[:LONGEST_SHOWN] for name in names]
    hints = [f"{name}{did_you_mean(name, options)}" for name in shown]
    return OptionError(f"unknown option {', '.join(hints)}; options are {', '.join(options)}")
