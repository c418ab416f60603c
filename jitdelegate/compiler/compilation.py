"""What the stages of one compilation share, and what the compilations of one content share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jitdelegate.base.options import DelegateOptions
from jitdelegate.compiler.trace import Trace
from jitdelegate.ir.faults import Faults
from jitdelegate.ir.graph import Model
from jitdelegate.runtime.cache.key import Key
from jitdelegate.tflite.read import read

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


class Reading:
    """Reads a content once.

    Attributes:
        left: the subgraphs that signatures name, and that were not asked for yet.
    """

    def __init__(self) -> None:
        self.left: set[int] = set()
        self._read: tuple[ReadableBuffer, Model] | None = None

    def model(self, content: ReadableBuffer, subgraph: int) -> Model:
        """The model, to compile one subgraph; read again only if `content` is another object than before.

        Raises:
            ModelError: the bytes are not a model.
        """
        known = self._read
        if known is None or known[0] is not content:
            known = self._read = content, read(content)
            self.left = {signature.graph for signature in known[1].signatures}
        self.left.discard(subgraph)
        return known[1]
