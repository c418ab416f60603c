"""jitdelegate: compiles each .tflite graph for this machine once, caches the program, starts at once ever after.

Public names are loaded on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ai_edge_litert.interpreter import OpResolverType

    from jitdelegate.cache.fingerprint import fingerprint
    from jitdelegate.delegate import GpuDelegate, load_delegate
    from jitdelegate.errors import (
        CacheError,
        CacheWarning,
        CompilerFailedError,
        DelegateWarning,
        DelegationError,
        DeviceError,
        JitDelegateError,
        ModelError,
        OptionError,
        ProgramError,
        TensorError,
    )
    from jitdelegate.interpreter import Interpreter, SignatureRunner
    from jitdelegate.loaded_model import Model, TensorInfo, load
    from jitdelegate.messages import DelegateMessage, on_message
    from jitdelegate.options import Options
    from jitdelegate.report import Report

__version__ = "0.1.0"

__all__ = [
    "CacheError",
    "CacheWarning",
    "CompilerFailedError",
    "DelegateMessage",
    "DelegateWarning",
    "DelegationError",
    "DeviceError",
    "GpuDelegate",
    "Interpreter",
    "JitDelegateError",
    "Model",
    "ModelError",
    "OpResolverType",
    "OptionError",
    "Options",
    "ProgramError",
    "Report",
    "SignatureRunner",
    "TensorError",
    "TensorInfo",
    "fingerprint",
    "load",
    "load_delegate",
    "on_message",
]

_MODULES = {
    "fingerprint": "jitdelegate.cache.fingerprint",
    "GpuDelegate": "jitdelegate.delegate",
    "load_delegate": "jitdelegate.delegate",
    "Interpreter": "jitdelegate.interpreter",
    "OpResolverType": "ai_edge_litert.interpreter",
    "SignatureRunner": "jitdelegate.interpreter",
    "Model": "jitdelegate.loaded_model",
    "TensorInfo": "jitdelegate.loaded_model",
    "load": "jitdelegate.loaded_model",
    "DelegateMessage": "jitdelegate.messages",
    "on_message": "jitdelegate.messages",
    "Options": "jitdelegate.options",
    "Report": "jitdelegate.report",
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
