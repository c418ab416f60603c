"""Compiles each .tflite model for this machine once, and caches the program, so that later starts are fast.

Public names are imported on first use, so that importing the package takes almost no time.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ai_edge_litert.interpreter import OpResolverType

    from jitdelegate.api.batch_predictor import BatchPredictor
    from jitdelegate.api.compiled_model import CompiledModel
    from jitdelegate.api.delegate import GpuDelegate, load_delegate
    from jitdelegate.api.delegate_warning import on_message
    from jitdelegate.api.dynamic_batcher import DynamicBatcher
    from jitdelegate.api.environment import Environment, EnvironmentOptions
    from jitdelegate.api.interpreter import Interpreter, SignatureRunner
    from jitdelegate.api.model import Model, load
    from jitdelegate.api.model_session import ModelSession
    from jitdelegate.api.report import Report
    from jitdelegate.api.tensor_buffer import TensorBuffer
    from jitdelegate.api.tensor_info import SignatureInfo, TensorInfo
    from jitdelegate.base.litert_options import (
        Accelerator,
        CpuKernelMode,
        CpuOptions,
        GpuOptions,
        HardwareAccelerator,
        Options,
    )
    from jitdelegate.base.options import DelegateOptions
    from jitdelegate.engine.delegate_message import DelegateMessage
    from jitdelegate.errors import (
        CacheError,
        CacheWarning,
        ClosedError,
        CompiledModelError,
        CompilerFailedError,
        DelegateWarning,
        DelegationError,
        DeviceError,
        EventTimeoutError,
        JitDelegateError,
        LibraryError,
        ModelError,
        OptionError,
        ProgramError,
        RefusedValueError,
        TensorError,
    )
    from jitdelegate.runtime.cache.key import fingerprint
    from jitdelegate.runtime.cache.statistics import cache_stats
    from jitdelegate.runtime.event import Event

__version__ = "0.1.0"

__all__ = [
    "Accelerator",
    "BatchPredictor",
    "CacheError",
    "CacheWarning",
    "ClosedError",
    "CompiledModel",
    "CompiledModelError",
    "CompilerFailedError",
    "CpuKernelMode",
    "CpuOptions",
    "DelegateMessage",
    "DelegateOptions",
    "DelegateWarning",
    "DelegationError",
    "DeviceError",
    "DynamicBatcher",
    "Environment",
    "EnvironmentOptions",
    "Event",
    "EventTimeoutError",
    "GpuDelegate",
    "GpuOptions",
    "HardwareAccelerator",
    "Interpreter",
    "JitDelegateError",
    "LibraryError",
    "Model",
    "ModelError",
    "ModelSession",
    "OpResolverType",
    "OptionError",
    "Options",
    "ProgramError",
    "RefusedValueError",
    "Report",
    "SignatureInfo",
    "SignatureRunner",
    "TensorBuffer",
    "TensorError",
    "TensorInfo",
    "cache_stats",
    "fingerprint",
    "load",
    "load_delegate",
    "on_message",
]

_MODULES = {
    "Accelerator": "jitdelegate.base.litert_options",
    "HardwareAccelerator": "jitdelegate.base.litert_options",
    "CompiledModel": "jitdelegate.api.compiled_model",
    "TensorBuffer": "jitdelegate.api.tensor_buffer",
    "Environment": "jitdelegate.api.environment",
    "EnvironmentOptions": "jitdelegate.api.environment",
    "Options": "jitdelegate.base.litert_options",
    "CpuOptions": "jitdelegate.base.litert_options",
    "GpuOptions": "jitdelegate.base.litert_options",
    "CpuKernelMode": "jitdelegate.base.litert_options",
    "BatchPredictor": "jitdelegate.api.batch_predictor",
    "DynamicBatcher": "jitdelegate.api.dynamic_batcher",
    "cache_stats": "jitdelegate.runtime.cache.statistics",
    "fingerprint": "jitdelegate.runtime.cache.key",
    "GpuDelegate": "jitdelegate.api.delegate",
    "load_delegate": "jitdelegate.api.delegate",
    "Interpreter": "jitdelegate.api.interpreter",
    "OpResolverType": "ai_edge_litert.interpreter",
    "SignatureRunner": "jitdelegate.api.interpreter",
    "Model": "jitdelegate.api.model",
    "ModelSession": "jitdelegate.api.model_session",
    "SignatureInfo": "jitdelegate.api.tensor_info",
    "TensorInfo": "jitdelegate.api.tensor_info",
    "load": "jitdelegate.api.model",
    "DelegateMessage": "jitdelegate.engine.delegate_message",
    "on_message": "jitdelegate.api.delegate_warning",
    "DelegateOptions": "jitdelegate.base.options",
    "Event": "jitdelegate.runtime.event",
    "Report": "jitdelegate.api.report",
}


if not TYPE_CHECKING:  # type checkers take the names from above, and find misspelt ones

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'jitdelegate' has no attribute {name!r}")
        module = __import__(_MODULES.get(name, "jitdelegate.errors"), fromlist=[name])
        value = globals()[name] = getattr(module, name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
