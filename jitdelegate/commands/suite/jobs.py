"""Measures models, each in a process of its own, so that a runtime that crashes costs no more than its own times."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

from jitdelegate.commands.measurement.process import run_module
from jitdelegate.commands.suite.job import Job, Measured
from jitdelegate.errors import ModelError

JOB = "jitdelegate.commands.suite.job"
MOST_SECONDS = 900.0
"""Of a process, beside its rounds: what hangs is left out too."""


def measure_in_process(job: Job) -> Measured:
    """What the process measures; sides that end it are left out, one after the other."""
    failed: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="jitdelegate-suite-") as folder:
        job = replace(job, stage=os.path.join(folder, "stage"))
        file = Path(folder, "job.json")
        while True:
            job.begin("")
            file.write_text(json.dumps(asdict(job)))
            try:
                result, _ = run_module("process", JOB, [str(file)], most_seconds=MOST_SECONDS + job.most_seconds)
            except ModelError as error:
                culprit = Path(job.stage).read_text()
                if culprit not in job.sides:
                    return Measured(failed={**dict.fromkeys(job.sides, str(error)), **failed})
                failed[culprit] = str(error)
                job = replace(job, sides=tuple(name for name in job.sides if name != culprit))
            else:
                measured = Measured(**result)
                measured.failed |= failed
                return measured
