"""LiteRT's options of a CompiledModel, as in `ai_edge_litert.options`: Options, with CpuOptions and GpuOptions.

jitdelegate's own are `DelegateOptions`; `keywords` says these in terms of those. Also LiteRT's enumerations,
HardwareAccelerator and CpuKernelMode, in whose place numbers do as well: loading this module loads enum.
"""

from __future__ import annotations

import enum

from jitdelegate.base import targets
from jitdelegate.base.options import MOST_THREADS, numbered, refused
from jitdelegate.base.record import Record
from jitdelegate.errors import OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from typing import Any, Unpack

    from jitdelegate.base.npu_options import IntelOpenVinoOptions, QualcommOptions
    from jitdelegate.base.option_types import Further

PRECISIONS = ("default", "float16", "float32", "float16 with float32 accumulation")
"""In the order of LiteRT's numbers; our float16 always accumulates in float32."""
KERNEL_MODES = ("DELEGATE", "REFERENCE", "BUILTIN")
"""In the order of LiteRT's numbers."""

_BACKENDS = {"AUTOMATIC": "auto", "automatic": "auto"}


class HardwareAccelerator(enum.IntFlag):
    """Flags of hardware; `Accelerator` is the same.

    Attributes:
        CPU: code for this CPU; what is not compiled runs on LiteRT.
        GPU: code for an NVIDIA GPU. Alone, it refuses a model that is not compiled whole; GPU | CPU takes what there
            is.
        NPU: nothing runs there: alone it is refused, and NPU | CPU runs on the CPU with a warning.
    """

    CPU = targets.CPU
    GPU = targets.GPU
    NPU = targets.NPU


Accelerator = HardwareAccelerator


class CpuKernelMode(enum.IntEnum):
    """Values of `CpuOptions.kernel_mode`, which says what they mean here."""

    DELEGATE = 0
    XNNPACK = 0
    REFERENCE = 1
    BUILTIN = 2


class Group(Record):
    """A group of options."""

    def given(self) -> list[str]:
        """Names of the options that differ from their defaults, in alphabetical order."""
        usual = type(self)().values()
        return sorted(name for name, value in self.values().items() if value != usual[name])


class CpuOptions(Group):
    """LiteRT's options of the CPU.

    Attributes:
        num_threads: threads that share one inference; 0 and less leave it to the runtime.
        kernel_mode: None and DELEGATE compute quantized operators with the bits of LiteRT's default kernels, REFERENCE
            with those of its reference kernels. BUILTIN means nothing here.
        enable_ynnpack, xnnpack_flags, xnnpack_weight_cache_path: mean nothing here, as the report then says.
        cpu_features: jitdelegate's own: the instruction set of compiled code, as in `DelegateOptions`.
    """

    num_threads: int = 0
    kernel_mode: int | None = None
    enable_ynnpack: bool = False
    xnnpack_flags: int | None = None
    xnnpack_weight_cache_path: str = ""
    cpu_features: str = "auto"

    def keywords(self) -> dict[str, Any]:
        """These options as keywords of `DelegateOptions`.

        Raises:
            OptionError: a number of threads or a kernel mode that is none.
        """
        if type(self.num_threads) is not int:
            raise refused("num_threads", self.num_threads, "a whole number")
        threads = min(self.num_threads, MOST_THREADS) if self.num_threads > 0 else None
        found: dict[str, Any] = {"num_threads": threads, "cpu_features": self.cpu_features}
        if self.kernel_mode is not None:
            mode = numbered("kernel_mode", _number(self.kernel_mode), KERNEL_MODES)
            found["quantized_rounding"] = "reference" if mode == "REFERENCE" else "litert"
        return found

    def meaningless(self) -> list[str]:
        """Names of the given options that change nothing."""
        names = {"enable_ynnpack", "xnnpack_flags", "xnnpack_weight_cache_path"}
        if self.kernel_mode is not None and _number(self.kernel_mode) == KERNEL_MODES.index("BUILTIN"):
            names.add("kernel_mode")
        return [name for name in self.given() if name in names]


class GpuOptions(Group):
    """LiteRT's options of the GPU, with those that its Python interface lacks. The latter apply on the CPU as well.

    LiteRT computes in float16 on a GPU unless `enforce_f32` is set. jitdelegate computes in float32 unless `precision`
    or `is_precision_loss_allowed` asks for less.

    Attributes:
        enforce_f32: compute in float32.
        allow_src_quantized_fc_conv_ops: quantize the float data of operators with quantized weights at run time.
        constant_tensor_sharing, infinite_float_capping, benchmark_mode, hint_waiting_for_completion, priority: mean
            nothing here, as the report then says.
        serialization_dir: directory of compiled programs; None is the environment's, or the user's cache directory,
            False keeps none.
        model_token: begins the names of the entries; the model's content is still checked. `model_cache_key`, LiteRT's
            name of it in other languages, is the same.
        serialize_program_cache: False keeps no compiled programs.
        precision: "float32", "tf32", "float16" or "bfloat16", or LiteRT's number of one: 0 default, 1 float16,
            2 float32, 3 float16 with sums in float32, as our float16 has anyway.
        backend: "cuda", "cpu", "litert" or "reference"; None and "auto" take the best there is among the accelerators.
        device: the GPU's number or a part of its name; `preferred_device_substr`, LiteRT's name of it, is the same.
        max_delegated_partitions: most partitions to compile; None is any number.
        further: any options of `DelegateOptions`, by name.
    """

    allow_src_quantized_fc_conv_ops: bool
    backend: str | None
    benchmark_mode: bool
    constant_tensor_sharing: bool
    device: int | str | None
    enforce_f32: bool
    further: dict[str, Any]
    hint_waiting_for_completion: bool
    infinite_float_capping: bool
    max_delegated_partitions: int | None
    model_token: str | None
    precision: str | int | None
    priority: str | int | None
    serialization_dir: str | os.PathLike[str] | bool | None
    serialize_program_cache: bool

    def __init__(
        self,
        enforce_f32: bool = False,
        constant_tensor_sharing: bool = False,
        infinite_float_capping: bool = False,
        benchmark_mode: bool = False,
        allow_src_quantized_fc_conv_ops: bool = False,
        hint_waiting_for_completion: bool = False,
        *,
        serialization_dir: str | os.PathLike[str] | bool | None = None,
        model_token: str | None = None,
        model_cache_key: str | None = None,
        serialize_program_cache: bool = True,
        precision: str | int | None = None,
        backend: str | None = None,
        device: int | str | None = None,
        preferred_device_substr: str | None = None,
        priority: str | int | None = None,
        max_delegated_partitions: int | None = None,
        **further: Unpack[Further],
    ) -> None:
        """
        Raises:
            OptionError: one option has two names and two values. Unknown names are refused when a model is opened.
        """
        self.enforce_f32 = enforce_f32
        self.constant_tensor_sharing = constant_tensor_sharing
        self.infinite_float_capping = infinite_float_capping
        self.benchmark_mode = benchmark_mode
        self.allow_src_quantized_fc_conv_ops = allow_src_quantized_fc_conv_ops
        self.hint_waiting_for_completion = hint_waiting_for_completion
        self.serialization_dir = serialization_dir
        self.model_token = _one_of("model_token", model_token, "model_cache_key", model_cache_key)
        self.serialize_program_cache = serialize_program_cache
        self.precision = precision
        self.backend = backend
        self.device = _one_of("device", device, "preferred_device_substr", preferred_device_substr)
        self.priority = priority
        self.max_delegated_partitions = max_delegated_partitions
        self.further = {**further}

    @property
    def model_cache_key(self) -> str | None:
        """Another name of `model_token`."""
        return self.model_token

    @model_cache_key.setter
    def model_cache_key(self, value: str | None) -> None:
        self.model_token = value

    @property
    def preferred_device_substr(self) -> int | str | None:
        """Another name of `device`."""
        return self.device

    @preferred_device_substr.setter
    def preferred_device_substr(self, value: int | str | None) -> None:
        self.device = value

    def keywords(self) -> dict[str, Any]:
        """These options as keywords of `DelegateOptions`.

        Raises:
            OptionError: `enforce_f32` or `serialize_program_cache` contradicts another option.
        """
        found = {
            "serialization_dir": self.serialization_dir,
            "model_token": self.model_token,
            "precision": self._precision(),
            "target": None if self.backend is None else _BACKENDS.get(self.backend, self.backend),
            "device": self.device,
            "max_delegated_partitions": self.max_delegated_partitions,
            "quantized_execution": "dynamic" if self.allow_src_quantized_fc_conv_ops else None,
        }
        if not self.serialize_program_cache:
            if self.serialization_dir:
                raise OptionError("serialize_program_cache is False, but serialization_dir names a directory")
            found["serialization_dir"] = False
        return {name: value for name, value in (found | self.further).items() if value is not None}

    def _precision(self) -> str | None:
        precision = self.precision
        if type(precision) is int and 0 <= precision < len(PRECISIONS):
            precision = PRECISIONS[precision].split()[0]
        found = None if precision == PRECISIONS[0] else precision
        if self.enforce_f32 and found not in (None, "float32"):
            raise OptionError(f"enforce_f32 is set, but precision is {self.precision!r}")
        return "float32" if self.enforce_f32 else found  # type: ignore[return-value]

    def meaningless(self) -> list[str]:
        """Names of the given options that change nothing."""
        names = {
            *("constant_tensor_sharing", "infinite_float_capping", "benchmark_mode", "hint_waiting_for_completion"),
            "priority",
        }
        return [name for name in self.given() if name in names]


class Options(Group):
    """Options of a CompiledModel.

    Attributes:
        hardware_accelerators: flags of `HardwareAccelerator`.
        cpu_options, gpu_options: for runs on the CPU, and on a GPU.
        qualcomm_options, intel_openvino_options: accepted, also LiteRT's own; the report says that nothing runs there.
    """

    hardware_accelerators: int
    cpu_options: CpuOptions
    gpu_options: GpuOptions
    _qualcomm_options: Any
    _intel_openvino_options: Any

    def __init__(
        self,
        hardware_accelerators: int = targets.CPU,
        cpu_options: CpuOptions | None = None,
        gpu_options: GpuOptions | None = None,
        qualcomm_options: Any = None,
        intel_openvino_options: Any = None,
    ) -> None:
        self.hardware_accelerators = hardware_accelerators
        self.cpu_options = CpuOptions() if cpu_options is None else cpu_options
        self.gpu_options = GpuOptions() if gpu_options is None else gpu_options
        self._qualcomm_options = qualcomm_options
        self._intel_openvino_options = intel_openvino_options

    @classmethod
    def create(cls) -> Options:
        """Options for the CPU, to be changed."""
        return cls()

    @property
    def qualcomm_options(self) -> QualcommOptions:
        """Those that were given, or new ones to be changed."""
        if self._qualcomm_options is None:
            from jitdelegate.base.npu_options import QualcommOptions  # not before: few programs name an NPU

            self._qualcomm_options = QualcommOptions()
        return self._qualcomm_options  # type: ignore[no-any-return]

    @qualcomm_options.setter
    def qualcomm_options(self, value: QualcommOptions) -> None:
        self._qualcomm_options = value

    @property
    def intel_openvino_options(self) -> IntelOpenVinoOptions:
        """As `qualcomm_options`."""
        if self._intel_openvino_options is None:
            from jitdelegate.base.npu_options import IntelOpenVinoOptions  # as above

            self._intel_openvino_options = IntelOpenVinoOptions()
        return self._intel_openvino_options  # type: ignore[no-any-return]

    @intel_openvino_options.setter
    def intel_openvino_options(self, value: IntelOpenVinoOptions) -> None:
        self._intel_openvino_options = value

    def keywords(self) -> dict[str, Any]:
        """The groups as keywords of `DelegateOptions`; those of the GPU override those of the CPU.

        Raises:
            OptionError: a group is of another class, or an option is refused.
        """
        for name, kind in (("cpu_options", CpuOptions), ("gpu_options", GpuOptions)):
            if not isinstance(getattr(self, name), kind):
                raise refused(name, getattr(self, name), f"jitdelegate's {kind.__name__}")
        return self.cpu_options.keywords() | self.gpu_options.keywords()

    def notes(self) -> list[str]:
        """Sentences for the report about given options that mean nothing here."""
        names = [*self.cpu_options.meaningless(), *self.gpu_options.meaningless()]
        own = [f"{', '.join(names)}: LiteRT's own options, which change nothing here."] if names else []
        foreign = {"qualcomm_options": self._qualcomm_options, "intel_openvino_options": self._intel_openvino_options}
        given = [name for name, value in foreign.items() if value is not None and not _is_unchanged(value)]
        return own + [f"{name}: no part of the model runs on an NPU." for name in given]


def _is_unchanged(options: object) -> bool:
    """Whether options of an NPU say nothing; not of LiteRT's own, which somebody gave."""
    return isinstance(options, Record) and options == type(options)()


def _number(value: Any) -> Any:
    """A member of an enumeration as its number."""
    return int(value) if isinstance(value, int) else value


def _one_of(name: str, value: Any, other: str, second: Any) -> Any:
    """The value of an option that has two names.

    Raises:
        OptionError: both are given, with two values.
    """
    if None not in (value, second) and value != second:
        raise OptionError(f"{name} is {value!r} but {other}, another name of it, is {second!r}; expected one value")
    return second if value is None else value
