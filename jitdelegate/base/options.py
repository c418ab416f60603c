"""The options of a model: names, values, and which of them change the compiled code.

- here: `DelegateOptions`, and the level of the debug log. `checks.py`: the options one by one.
- `groups.py`, `flags.py`: LiteRT's options of a CompiledModel, whose names are found here too.
- `texts.py`, `option_file.py`: options from strings, and from JSON and TOML files.
- `user_warning.py`: warnings that name the user's line. `debug.py`: the log of JITDELEGATE_DEBUG.

Load path: plain classes only, no dataclasses, no enum, no typing at import time.
"""

from __future__ import annotations

import os

from jitdelegate.base import option_checks as checks
from jitdelegate.base.targets import CPU, GPU, NAMES
from jitdelegate.errors import OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from jitdelegate.base.flags import CpuKernelMode as CpuKernelMode
    from jitdelegate.base.flags import HardwareAccelerator as HardwareAccelerator
    from jitdelegate.base.option_groups import CpuOptions as CpuOptions
    from jitdelegate.base.option_groups import GpuOptions as GpuOptions
    from jitdelegate.base.option_groups import IntelOpenVinoOptions as IntelOpenVinoOptions
    from jitdelegate.base.option_groups import Options as Options
    from jitdelegate.base.option_groups import QualcommOptions as QualcommOptions

_PARTITION_DEFAULTS = {
    "first_delegate_node_index": 0,
    "last_delegate_node_index": None,
    "max_delegated_partitions": None,
    "min_nodes_per_partition": 0,
    "only_ops": None,
    "partitioning": "cost_model",
    "quantized_models_allowed": True,
}
"""The options that change which operators are delegated, sorted by name."""
_QUANTIZATION_DEFAULTS = {"quantized_execution": "auto", "quantized_rounding": "litert"}
"""The options that change how quantized operators are computed, sorted by name."""
_PORT_DEFAULTS = {"dequantize_outputs": False, "quantize_inputs": False}
"""The options that change the types of inputs and outputs, sorted by name."""


def _debug_level(text: str) -> int:
    """
    Raises:
        OptionError: JITDELEGATE_DEBUG is no level.
    """
    if text not in DEBUG_LEVELS:
        raise checks.refused("JITDELEGATE_DEBUG", text, f"one of {', '.join(DEBUG_LEVELS)}")
    return int(text)


DEBUG_LEVELS = ("0", "1", "2", "3", "4")
DEBUG_LEVEL = _debug_level(os.environ.get("JITDELEGATE_DEBUG") or "0")
"""Level of the debug log, read once; `options.debug` describes the levels."""
TIMED_LEVEL = 2
"""Lowest level that turns the option `profile` on."""


class DelegateOptions:
    """One model's options, checked; errors name unknown options and wrong values.

    Attributes:
        target: "cuda" compiles for this machine's GPU, "cpu" for its CPU, "litert" runs the whole model on LiteRT,
            "reference" evaluates it with numpy, to compare with, "auto" takes the fastest there is: LiteRT on a CPU
            without AVX2. `backend` is another name of this option.
        serialization_dir: directory of programs; None is the user's cache directory, False turns the cache off.
        model_token: names the entry instead of the model's fingerprint; the content is still checked.
        num_threads: threads that share one inference; None takes the CPUs that this process and its container may
            use, at most 4.
        cpu_features: instruction set of CPU code. "auto" takes the widest of this CPU; "generic" compiles for any CPU
            and loads through llvmlite. With a named instruction set, the target "auto" compiles on any CPU.
        device: the GPU's number among those visible to the process, or a part of its name in any case, as "h100": the
            first GPU with such a name. A string of digits is a number.
        hardware_accelerators: LiteRT's flags, by which "auto" takes its targets: CPU (1) takes no GPU, GPU (2) takes
            nothing else and refuses a model with an operator that is not compiled, and GPU | CPU (3) takes what there
            is. A named target has to be one of them.
        stream: handle of a CUDA stream of the process on that GPU, such as `torch.cuda.Stream().cuda_stream`: the model
            runs after earlier work in it, and a call returns when the run is done. None is the model's own stream.
        precision: of CUDA code; CPU code is always "float32". "tf32" multiplies in TF32 on tensor cores, "float16" and
            "bfloat16" also store activations in 16 bits; all sum in float32. "auto" runs the model in each of them on
            the GPU, once, and takes the fastest whose outputs are near those of "float32"; without a GPU to run on it
            means "float32". None leaves it to `is_precision_loss_allowed`, and then to the priorities.
        precision_bound: how near, for the precision "auto": the largest NRMSE of an output, that is the root of the
            mean square of its differences over that of its float32 values; of integers, the share that differs.
        precision_inputs: path of a .npz file with an array per input, by its name, on which "auto" runs the model; None
            makes up random values. The key has the fingerprint of its content, which is read at every start.
        is_precision_loss_allowed: TFLite's older option: False means "float32", True "float16", before the priorities.
            None, or TFLite's -1, means not given.
        tuning: of CUDA code: "fast" and "full" measure kernels for the model's shapes on the GPU while it is compiled,
            and keep the fastest beside the programs, for all models: "fast" few candidates for some seconds, "full"
            all. "none" takes what the package's own tables and its cost model say.
        inference_preference: TFLite's hint about the model's use: "FAST_SINGLE_ANSWER", "SUSTAINED_SPEED" or
            "BALANCED", or its numbers 0, 1 and 2. It is checked and kept; no code depends on it.
        inference_priority1: the first priority: "MAX_PRECISION" means "float32", "MIN_LATENCY" and "MIN_MEMORY_USAGE"
            mean "float16". TFLite's numbers are 1, 2 and 3; 0 is "AUTO", which the first priority cannot be.
        inference_priority2: the second priority, other than the first. "AUTO" leaves it open; any value behind a first
            one that is not precision means float16 with sums in float32.
        inference_priority3: the third priority; "AUTO" if the second is.
        max_delegated_partitions: most partitions to compile, the largest first; None is any number. 0 and less mean 1,
            as in TFLite.
        min_nodes_per_partition: partitions with fewer operators run on LiteRT.
        private_weights: keep weights in private memory. Without it, processes share the weights of a large program with
            its file, detect changes of that file, and recover; with it, changes of the file cannot reach a running
            model, and each process has its own copy.
        requests_in_flight: how many inferences of `run_async` are computed at a time, each with an arena of its own;
            further ones wait for their turn. On the CPU they share `num_threads` among them, on a GPU they follow each
            other. A model with variables, and one that is partly on LiteRT, computes one at a time.
        require_full_delegation: refuse a model with an operator that is not compiled, with the reasons.
        first_delegate_node_index: for debugging: operators before this position of the file run on LiteRT.
        last_delegate_node_index: for debugging: operators after this position run on LiteRT. None and TFLite's
            2147483647 mean no end; a last position before the first leaves all operators on LiteRT.
        only_ops: for debugging: operators of other names run on LiteRT; None names all. A sorted tuple of names such as
            "CONV_2D", or of custom operators; a list, or one string with commas, is accepted. Names have no spaces.
        profile: time each kernel, for `Report.kernel_times`. CPU code takes time stamps; a GPU's kernels are launched
            one by one with events between them. Models run slower.
        partitioning: "cost_model" compiles the partitions that save more than their crossings cost, "all" every
            partition that can be compiled.
        quantized_models_allowed: False leaves operators with quantized activations on LiteRT; those with float
            activations and quantized weights are compiled all the same, as in TFLite. None leaves it to
            `experimental_flags`. `experimental_enable_quant` is another name of this option.
        experimental_flags: TFLite's flags: a tuple of "ENABLE_QUANT", which `quantized_models_allowed` means, and
            "ENABLE_SERIALIZATION", which contradicts `serialization_dir=False`; the cache is on without it. TFLite's
            number of the flags, a list, or one string with commas is accepted. "CL_ONLY" and "GL_ONLY" are refused:
            nothing here runs on OpenCL or OpenGL.
        quantized_execution: how quantized operators are computed. Those with quantized activations: in integers, as
            LiteRT computes them, or with "float_view" in float32, every result rounded to the values that its quantized
            type has, as in TFLite's GPU delegate. Those with float activations and quantized weights: "dynamic"
            quantizes the activations per row and multiplies integers, as XNNPACK does, "float_view" multiplies floats
            with dequantized weights, and "auto" takes for each operator what is faster by estimate.
        quantized_rounding: of compiled operators with quantized activations: "litert" gives the bits of LiteRT's
            default kernels, XNNPACK's where it takes the operator, "reference" those of LiteRT's reference kernels.
        quantize_inputs: inputs of int8, uint8 and int16 that are quantized per tensor are float32 instead: a QUANTIZE
            before the model's operators makes quantized values of them.
        dequantize_outputs: such outputs are float32 instead, by a DEQUANTIZE after the model's operators: scale *
            (stored value - zero point). LiteRT's own interpreter allows neither.
    """

    __slots__ = (
        "cpu_features",
        "dequantize_outputs",
        "device",
        "experimental_flags",
        "first_delegate_node_index",
        "hardware_accelerators",
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
        "precision_bound",
        "precision_inputs",
        "private_weights",
        "profile",
        "quantize_inputs",
        "quantized_execution",
        "quantized_models_allowed",
        "quantized_rounding",
        "requests_in_flight",
        "require_full_delegation",
        "serialization_dir",
        "stream",
        "target",
        "tuning",
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
        hardware_accelerators: int = GPU | CPU,
        stream: int | None = None,
        precision: str | None = None,
        precision_bound: float = 0.01,
        precision_inputs: str | os.PathLike[str] | None = None,
        tuning: str = "none",
        is_precision_loss_allowed: bool | int | None = None,
        inference_preference: str | int = "FAST_SINGLE_ANSWER",
        inference_priority1: str | int = "MAX_PRECISION",
        inference_priority2: str | int = "AUTO",
        inference_priority3: str | int = "AUTO",
        max_delegated_partitions: int | None = None,
        min_nodes_per_partition: int = 0,
        private_weights: bool | int = False,
        requests_in_flight: int = 2,
        require_full_delegation: bool | int = False,
        first_delegate_node_index: int = 0,
        last_delegate_node_index: int | None = None,
        only_ops: str | list[str] | tuple[str, ...] | None = None,
        partitioning: str = "cost_model",
        profile: bool | int = False,
        quantized_models_allowed: bool | int | None = None,
        experimental_flags: int | str | list[str] | tuple[str, ...] = checks.ENABLE_QUANT,
        quantized_execution: str = "auto",
        quantized_rounding: str = "litert",
        quantize_inputs: bool | int = False,
        dequantize_outputs: bool | int = False,
    ) -> None:
        self.target = checks.choice("target", target, NAMES)
        self.hardware_accelerators = checks.accelerators(hardware_accelerators, self.target)
        self.cpu_features = checks.choice("cpu_features", cpu_features, checks.CPU_FEATURES)
        self.serialization_dir = checks.directory(serialization_dir)
        if model_token is not None and not isinstance(model_token, str):
            raise checks.refused("model_token", model_token, "a string or None")
        self.model_token = model_token
        self.num_threads = checks.threads(num_threads)
        self.device = checks.device(device)
        self.stream = checks.stream(stream)
        self.inference_preference = checks.numbered("inference_preference", inference_preference, checks.PREFERENCES)
        self.inference_priority1 = checks.numbered("inference_priority1", inference_priority1, checks.PRIORITIES)
        self.inference_priority2 = checks.numbered("inference_priority2", inference_priority2, checks.PRIORITIES)
        self.inference_priority3 = checks.numbered("inference_priority3", inference_priority3, checks.PRIORITIES)
        self.is_precision_loss_allowed = checks.precision_loss(is_precision_loss_allowed)
        meant = self._meant_precision()
        every = (*checks.PRECISIONS, checks.ANY_PRECISION)
        self.precision = meant if precision is None else checks.choice("precision", precision, every)
        self.precision_bound = checks.bound(precision_bound)
        self.precision_inputs = checks.inputs_file(precision_inputs)
        self.tuning = checks.choice("tuning", tuning, checks.TUNINGS)
        self.max_delegated_partitions = checks.partitions(max_delegated_partitions)
        self.min_nodes_per_partition = checks.whole("min_nodes_per_partition", min_nodes_per_partition)
        self.private_weights = checks.truth("private_weights", private_weights)
        self.requests_in_flight = checks.requests(requests_in_flight)
        whole = checks.truth("require_full_delegation", require_full_delegation)
        self.require_full_delegation = whole or self.hardware_accelerators == GPU
        self.first_delegate_node_index = checks.whole("first_delegate_node_index", first_delegate_node_index)
        self.last_delegate_node_index = checks.last_index(last_delegate_node_index)
        self.only_ops = checks.operators(only_ops)
        self.partitioning = checks.choice("partitioning", partitioning, checks.PARTITIONINGS)
        self.profile = checks.truth("profile", profile) or DEBUG_LEVEL >= TIMED_LEVEL
        self.experimental_flags = checks.flags(experimental_flags)
        if self.serialization_dir is False and checks.ENABLE_SERIALIZATION in self.experimental_flags:
            raise OptionError("experimental_flags has ENABLE_SERIALIZATION, but serialization_dir is False: no cache")
        allowed = checks.ENABLE_QUANT in self.experimental_flags
        if quantized_models_allowed is not None:
            allowed = checks.truth("quantized_models_allowed", quantized_models_allowed)
        self.quantized_models_allowed = allowed
        self.quantized_execution = checks.choice(
            "quantized_execution", quantized_execution, checks.QUANTIZED_EXECUTIONS
        )
        self.quantized_rounding = checks.choice("quantized_rounding", quantized_rounding, checks.QUANTIZED_ROUNDINGS)
        self.quantize_inputs = checks.truth("quantize_inputs", quantize_inputs)
        self.dequantize_outputs = checks.truth("dequantize_outputs", dequantize_outputs)

    def __repr__(self) -> str:
        return f"DelegateOptions({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"

    def _meant_precision(self) -> str:
        """The precision that TFLite's options request.

        Raises:
            OptionError: TFLite refuses this order of priorities.
        """
        if self.is_precision_loss_allowed is None:
            order = self.inference_priority1, self.inference_priority2, self.inference_priority3
            checks.check_order(order)
            return "float32" if order[0] == checks.MAX_PRECISION else "float16"
        return "float16" if self.is_precision_loss_allowed else "float32"

    @property
    def changed(self) -> tuple[str, ...]:
        """Names of the options that differ from their defaults, in alphabetical order."""
        usual = DelegateOptions()
        names = tuple(name for name in self.__slots__ if getattr(self, name) != getattr(usual, name))
        meant = {  # by other options, which are named instead
            "require_full_delegation": self.hardware_accelerators == GPU,
            "precision": self._meant_precision(),
            "quantized_models_allowed": checks.ENABLE_QUANT in self.experimental_flags,
        }
        return tuple(name for name in names if name not in meant or getattr(self, name) != meant[name])

    @property
    def partition_key(self) -> str:
        """The options that decide which operators are delegated, as "name=value" pairs; "" for the defaults."""
        return self._pairs(_PARTITION_DEFAULTS)

    @property
    def quantization_key(self) -> str:
        """As `partition_key`, of the options that decide how quantized operators are computed."""
        return self._pairs(_QUANTIZATION_DEFAULTS)

    @property
    def port_key(self) -> str:
        """As `partition_key`, of the options that decide the types of inputs and outputs."""
        return self._pairs(_PORT_DEFAULTS)

    def _pairs(self, defaults: Mapping[str, Any]) -> str:
        changed = [(name, getattr(self, name)) for name, usual in defaults.items() if getattr(self, name) != usual]
        return " ".join(f"{name}={','.join(value) if name == 'only_ops' else value}" for name, value in changed)

    def with_threads(self, num_threads: int | None) -> DelegateOptions:
        """The same options; an interpreter's `num_threads`, at most checks.MOST_THREADS, replaces None."""
        values = {name: getattr(self, name) for name in self.__slots__}
        values["num_threads"] = self.num_threads or (num_threads and min(int(num_threads), checks.MOST_THREADS))
        return DelegateOptions(**values)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> DelegateOptions:
        """Options from keyword names to values.

        Raises:
            OptionError: a name is not an option, a value is refused, or the argument is no mapping.
        """
        return cls(**_keywords(mapping))

    @classmethod
    def from_strings(cls, mapping: Mapping[str, Any]) -> DelegateOptions:
        """Options from names to values that went through str(), as LiteRT passes delegate options.

        Raises:
            OptionError: a name is not an option, or a string cannot be parsed as its value.
        """
        from jitdelegate.base.option_texts import parse  # not before: most options are values

        checks.check_mapping(mapping)
        return cls.from_mapping({str(name): parse(str(name), str(value)) for name, value in mapping.items()})

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
        given = _keywords({name: value for name, value in keywords.items() if value is not None})
        if isinstance(further, str | os.PathLike):
            return cls(**{**file_keywords(further), **given})
        if further is None:
            return cls(**given)
        from jitdelegate.base.option_texts import parsed  # not before: most options are keywords

        return cls(**{**_keywords(parsed(further)), **given})


def file_keywords(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The options in a file as keywords of `DelegateOptions`, already checked.

    Raises:
        OptionError: as `DelegateOptions.from_file`.
    """
    from jitdelegate.base.option_file import read_table  # not before: few options come from files
    from jitdelegate.base.option_texts import parsed

    table = read_table(path)
    try:
        keywords = _keywords(parsed(table))
        DelegateOptions(**keywords)
    except OptionError as error:
        raise OptionError(f"{os.fsdecode(path)}: {error}") from error
    return keywords


def _keywords(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping as keywords of `DelegateOptions`.

    Raises:
        OptionError: a name is not an option, or an option has two names and two values.
    """
    checks.check_mapping(mapping)
    unknown = [str(name) for name in mapping if name not in DelegateOptions.__slots__ and name not in checks.ALIASES]
    if unknown:
        raise _unknown(unknown)
    keywords = dict(mapping.items())
    for alias, name in checks.ALIASES.items():
        if alias in keywords:
            value = _aliased(alias, keywords.pop(alias))
            found = _aliased(name, keywords.setdefault(name, value))
            if found != value:
                raise OptionError(
                    f"{name} is {found!r} but {alias}, another name of it, is {value!r}; expected one value"
                )
    return keywords


def _aliased(name: str, value: Any) -> str | bool:
    """The checked value of an option that has two names, one of which is `name`."""
    return (
        checks.choice(name, value, NAMES) if checks.ALIASES.get(name, name) == "target" else checks.truth(name, value)
    )


def _unknown(names: list[str]) -> OptionError:
    """The error about unknown options, with similar names."""
    from difflib import get_close_matches  # not before: it is as large as the load path

    options = sorted((*DelegateOptions.__slots__, *checks.ALIASES))
    shown = [name[: checks.LONGEST_SHOWN] for name in names]
    near = {name: match for name in shown for match in get_close_matches(name, options, 1)}
    hints = [f"{name} (did you mean {near[name]}?)" if name in near else name for name in shown]
    return OptionError(f"unknown option {', '.join(hints)}; options are {', '.join(options)}")


_LITERTS = {
    **dict.fromkeys(("Options", "CpuOptions", "GpuOptions"), "groups"),
    **dict.fromkeys(("CpuKernelMode", "HardwareAccelerator"), "flags"),
    **dict.fromkeys(("IntelOpenVinoOptions", "QualcommOptions"), "groups"),
}
"""Names of `ai_edge_litert.options`, by the module here that has them; found on first use."""


if not TYPE_CHECKING:  # type checkers take the names from above, and find misspelt ones

    def __getattr__(name: str) -> object:
        if name not in _LITERTS:
            raise AttributeError(f"module 'jitdelegate.base.options' has no attribute {name!r}")
        module = __import__(f"jitdelegate.base.options.{_LITERTS[name]}", fromlist=[name])
        return getattr(module, name)
