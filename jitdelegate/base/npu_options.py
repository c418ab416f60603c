"""LiteRT's options of NPUs, with its enumerations, for code that sets them; nothing here runs on an NPU.

Their names, values and defaults are those of `ai_edge_litert.qualcomm_options` and `intel_openvino_options`. The module
is loaded when one of them is asked for: most programs need none.
"""

from __future__ import annotations

import enum

from jitdelegate.base.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class QualcommLogLevel(enum.IntEnum):
    """Values of `QualcommOptions.log_level`."""

    OFF = 0
    ERROR = 1
    WARN = 2
    INFO = 3
    VERBOSE = 4
    DEBUG = 5


class QualcommDspPerformanceMode(enum.IntEnum):
    """Values of `QualcommOptions.dsp_performance_mode`."""

    DEFAULT = 0
    SUSTAINED_HIGH_PERFORMANCE = 1
    BURST = 2
    HIGH_PERFORMANCE = 3
    POWER_SAVER = 4
    LOW_POWER_SAVER = 5
    HIGH_POWER_SAVER = 6
    LOW_BALANCED = 7
    BALANCED = 8


class QualcommHtpPerformanceMode(enum.IntEnum):
    """Values of `QualcommOptions.htp_performance_mode`."""

    DEFAULT = 0
    SUSTAINED_HIGH_PERFORMANCE = 1
    BURST = 2
    HIGH_PERFORMANCE = 3
    POWER_SAVER = 4
    LOW_POWER_SAVER = 5
    HIGH_POWER_SAVER = 6
    LOW_BALANCED = 7
    BALANCED = 8
    EXTREME_POWER_SAVER = 9


class QualcommProfiling(enum.IntEnum):
    """Values of `QualcommOptions.profiling`."""

    OFF = 0
    BASIC = 1
    DETAILED = 2
    LINTING = 3
    OPTRACE = 4


class QualcommOptimizationLevel(enum.IntEnum):
    """Values of `QualcommOptions.optimization_level`."""

    OPTIMIZE_FOR_INFERENCE = 0
    OPTIMIZE_FOR_PREPARE = 1
    OPTIMIZE_FOR_INFERENCE_O3 = 2


class QualcommGraphPriority(enum.IntEnum):
    """Values of `QualcommOptions.graph_priority`."""

    DEFAULT = 0
    LOW = 1
    NORMAL = 2
    NORMAL_HIGH = 3
    HIGH = 4


class QualcommBackend(enum.IntEnum):
    """Values of `QualcommOptions.backend`."""

    UNDEFINED = 0
    GPU = 1
    HTP = 2
    DSP = 3
    IR = 4


class QualcommGraphIOTensorMemType(enum.IntEnum):
    """Values of `QualcommOptions.graph_io_tensor_mem_type`."""

    RAW = 0
    MEM_HANDLE = 1


class QualcommOptions(Record):
    """LiteRT's options of Qualcomm's NPUs, which change nothing here."""

    LOG_LEVEL = QualcommLogLevel
    HTP_PERFORMANCE_MODE = QualcommHtpPerformanceMode
    DSP_PERFORMANCE_MODE = QualcommDspPerformanceMode
    PROFILING = QualcommProfiling
    OPTIMIZATION_LEVEL = QualcommOptimizationLevel
    GRAPH_PRIORITY = QualcommGraphPriority
    BACKEND = QualcommBackend
    GRAPH_IO_TENSOR_MEM_TYPE = QualcommGraphIOTensorMemType

    log_level: int | None = None
    htp_performance_mode: int | None = None
    dsp_performance_mode: int | None = None
    use_int64_bias_as_int32: bool | None = None
    enable_weight_sharing: bool | None = None
    use_conv_hmx: bool | None = None
    use_fold_relu: bool | None = None
    profiling: int | None = None
    dump_tensor_ids: Sequence[int] | None = None
    ir_json_dir: str = ""
    dlc_dir: str = ""
    vtcm_size: int | None = None
    num_hvx_threads: int | None = None
    optimization_level: int | None = None
    graph_priority: int | None = None
    backend: int | None = None
    saver_output_dir: str = ""
    graph_io_tensor_mem_type: int | None = None


class IntelOpenVinoGraphBackend(enum.IntEnum):
    """Values of `IntelOpenVinoOptions.graph_backend`."""

    CPU = 0
    GPU = 1
    NPU = 2


class IntelOpenVinoPerformanceMode(enum.IntEnum):
    """Values of `IntelOpenVinoOptions.performance_mode`."""

    LATENCY = 0
    THROUGHPUT = 1
    CUMULATIVE_THROUGHPUT = 2


class IntelOpenVinoOptions(Record):
    """LiteRT's options of Intel's NPUs, which change nothing here."""

    GRAPH_BACKEND = IntelOpenVinoGraphBackend
    PERFORMANCE_MODE = IntelOpenVinoPerformanceMode

    graph_backend: int | None
    performance_mode: int | None
    configs_map: dict[str, str]
    enable_weight_sharing: bool | None

    def __init__(
        self,
        graph_backend: int | None = None,
        performance_mode: int | None = None,
        configs_map: dict[str, str] | None = None,
        enable_weight_sharing: bool | None = None,
    ) -> None:
        self.graph_backend = graph_backend
        self.performance_mode = performance_mode
        self.configs_map = {} if configs_map is None else configs_map
        self.enable_weight_sharing = enable_weight_sharing
