"""What the simulator raises."""

from __future__ import annotations

Position = tuple[int, int, int]


class SimulationError(Exception):
    """A kernel did something no kernel may do, or used what the simulator does not know.

    `kind` is one of: "out of bounds", "misaligned", "race", "barrier divergence", "warp divergence", "uninitialised",
    "in flight" (cp.async data read, or a thread ended, before it was waited for), "unknown instruction", "limit",
    "launch", "trap", "syntax", "early" (memory that other launches use is touched before the kernel waits for them, or
    it ends without).
    `kernel`, `line` (of the PTX text, from 1), `instruction`, `block` and `thread` say where; None where unknown.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        kernel: str | None = None,
        line: int | None = None,
        instruction: str | None = None,
        block: Position | None = None,
        thread: Position | None = None,
    ) -> None:
        self.kind, self.message, self.kernel, self.line = kind, message, kernel, line
        self.instruction, self.block, self.thread = instruction, block, thread
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        places = (("kernel", self.kernel), ("line", self.line), ("block", self.block), ("thread", self.thread))
        where = ", ".join(f"{name} {value}" for name, value in places if value is not None)
        what = f" in `{self.instruction}`" if self.instruction else ""
        return f"{self.kind}: {self.message}{what}" + (f" ({where})" if where else "")


class Fault(Exception):  # noqa: N818 - becomes a SimulationError once the place is known
    """What an instruction raises while it runs: it knows the lane, not yet the line."""

    def __init__(self, kind: str, message: str, lane: int) -> None:
        super().__init__(kind, message, lane)
        self.kind, self.message, self.lane = kind, message, int(lane)
