"""What the stages of one compilation share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jitdelegate.base.options import DelegateOptions
from jitdelegate.compiler.trace import Trace
from jitdelegate.ir.faults import Faults
from jitdelegate.ir.graph import Model
from jitdelegate.runtime.cache.key import Key

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


@dataclass(frozen=True, slots=True)
class Compilation:
    """One program under construction.

    Attributes:
        content: the .tflite file.
        model: the content, read.
        options: the user's options.
        key: names the subgraph, the shapes of its inputs, and the device.
        trace: receives the graphs.
        faults: receives what fails, which is not tried again.
    """

    content: ReadableBuffer
    model: Model
    options: DelegateOptions
    key: Key
    trace: Trace
    faults: Faults = field(default_factory=Faults)
