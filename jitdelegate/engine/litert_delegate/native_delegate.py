"""NativeDelegate: a TfLiteDelegate for LiteRT's own interpreter."""

from __future__ import annotations

import ctypes
import struct

from jitdelegate.engine.litert_delegate.callbacks import callbacks_for, delegations, next_number
from jitdelegate.engine.litert_delegate.delegation import Delegation
from jitdelegate.engine.litert_delegate.trust import platform_refusal
from jitdelegate.runtime.litert_layout import LAYOUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jitdelegate.engine.litert_delegate.delegate_client import DelegateClient
    from jitdelegate.runtime.cache.directory import CacheDirectory
    from jitdelegate.runtime.litert_layout import Layout

ALLOW_DYNAMIC_TENSORS = 1
"""A flag: LiteRT offers models with dynamic tensors too, and kernels set their outputs' shapes."""
_SIZE = 256
"""Bytes of a TfLiteDelegate, more than LiteRT has today, so that fields of later versions are zero."""

_structures: list[ctypes.Array[ctypes.c_char]] = []
"""Never freed: an interpreter uses its delegates until it is destroyed, which Python may not notice."""

_PREPARE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_delegate_nothing = _PREPARE(lambda context, delegate: 0)
"""`Prepare` where our machine code does not run: LiteRT calls it before anything can be refused."""


class NativeDelegate:
    """A client's delegate, for one interpreter.

    If anything differs from what is expected, it warns and delegates nothing, and the model runs on LiteRT. On systems
    that it cannot work on, this object warns.

    Attributes:
        pointer: the address of the TfLiteDelegate.

    Raises:
        DeviceError: there is no executable memory.
    """

    __slots__ = ("_delegation", "_number", "pointer")
    _living = delegations  # a module's own names are gone before its last objects

    def __init__(
        self,
        client: DelegateClient,
        flags: int = ALLOW_DYNAMIC_TENSORS,
        *,
        directory: CacheDirectory | None = None,
        layout: Layout = LAYOUT,
    ) -> None:
        """
        Args:
            client: the model.
            flags: TfLiteDelegate.flags.
            directory: directory for verdicts on LiteRT versions that are not listed.
            layout: the assumed layout of LiteRT's structures.
        """
        self._number = next_number()
        self._delegation = delegations[self._number] = Delegation(client, directory)
        trouble = platform_refusal()
        if trouble:
            self._delegation.warn(trouble)
            prepare = ctypes.cast(_delegate_nothing, ctypes.c_void_p).value
        else:
            prepare = callbacks_for(layout).prepare_graph
        content = ctypes.create_string_buffer(_SIZE)
        for name, value in {"data_": self._number, "Prepare": prepare, "flags": flags}.items():
            struct.pack_into("<Q", content, layout.delegate[name], value)
        _structures.append(content)
        self.pointer = ctypes.addressof(content)

    @property
    def interruption(self) -> BaseException | None:
        """The KeyboardInterrupt or similar exception that LiteRT turned into a RuntimeError, to be raised again."""
        return self._delegation.interruption

    def raise_interruption(self) -> None:
        """Raise the interruption again, once."""
        interruption, self._delegation.interruption = self._delegation.interruption, None
        if interruption is not None:
            raise interruption

    @property
    def contexts(self) -> dict[int, int]:
        """Address of a TfLiteContext to the index of its subgraph."""
        return self._delegation.contexts

    def _get_native_delegate_pointer(self) -> int:
        """The address of the TfLiteDelegate, for LiteRT's Interpreter."""
        return self.pointer

    def __del__(self) -> None:
        self._living.pop(getattr(self, "_number", 0), None)
