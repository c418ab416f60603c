"""A timeline as a file of Chrome's trace event format, which ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from jitdelegate.commands.measurement.profile import Node

PROCESS = 1
Run = tuple[float, float]
"""(start, duration) in seconds."""


class Timeline:
    """Events of one process in rows ("threads"), from the first event on."""

    def __init__(self) -> None:
        self._events: list[dict[str, object]] = []
        self._rows: dict[str, int] = {}

    def add(self, row: str, name: str, start: float, seconds: float, facts: Mapping[str, object] | None = None) -> None:
        """An event, by the clock of `time.perf_counter`."""
        number = self._rows.setdefault(row, len(self._rows) + 1)
        event = {"name": name, "ph": "X", "pid": PROCESS, "tid": number, "ts": 1e6 * start, "dur": 1e6 * seconds}
        self._events.append(event | ({"args": {**facts}} if facts else {}))

    def add_stages(self, row: str, start: float, stages: Mapping[str, float]) -> None:
        """Stages that follow each other."""
        for name, seconds in stages.items():
            self.add(row, name, start, seconds)
            start += seconds

    def add_runs(self, row: str, name: str, runs: Iterable[Run]) -> None:
        """Runs, numbered."""
        for number, (start, seconds) in enumerate(runs):
            self.add(row, name, start, seconds, {"run": number})

    def add_kernels(self, row: str, runs: Sequence[Run], nodes: Sequence[Node]) -> None:
        """The kernels of each run one after another, in their median times, shortened where a run was shorter."""
        total = sum(node.seconds for node in nodes)
        for start, seconds in runs:
            scale = min(1.0, seconds / total) if total else 0.0
            for node in nodes:
                self.add(row, node.kind, start, scale * node.seconds, {"name": node.name, "operators": node.operators})
                start += scale * node.seconds

    def text(self) -> str:
        """The content of the file."""
        first = min((float(str(event["ts"])) for event in self._events), default=0.0)
        shifted = [event | {"ts": float(str(event["ts"])) - first} for event in self._events]
        names = [_name("process_name", 0, "jitdelegate.benchmark")]
        names += [_name("thread_name", number, row) for row, number in self._rows.items()]
        return json.dumps({"traceEvents": [*names, *shifted], "displayTimeUnit": "ms"})


def _name(kind: str, number: int, text: str) -> dict[str, object]:
    return {"name": kind, "ph": "M", "pid": PROCESS, "tid": number, "args": {"name": text}}
