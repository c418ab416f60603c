"""What the stages of one compilation share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jitdelegate.base.options import DelegateOptions
from jitdelegate.compiler.trace import Trace
from jitdelegate.ir.faults import Faults
from jitdelegate.ir.graph import Model
from jitdelegate.program.known_constants import NO_CONSTANTS
from jitdelegate.program.program import Program
from jitdelegate.runtime.cache.key import Key

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from jitdelegate.program.known_constants import Known


@dataclass(frozen=True, slots=True)
class Compilation:
    """One program under construction.

    Attributes:
        content: the .tflite file.
        model: the content, read.
        options: the user's options.
        key: names the subgraph, the shapes of its inputs, and the device.
        trace: receives the graphs.
        sources: the programs whose weights the program shares, as `compile_model` gets them.
        known: the constants that they store.
        faults: receives what fails, which is not tried again.
    """

    content: ReadableBuffer
    model: Model
    options: DelegateOptions
    key: Key
    trace: Trace
    sources: Sequence[Program | None] = ()
    known: Known = field(default_factory=lambda: NO_CONSTANTS)
    faults: Faults = field(default_factory=Faults)
