"""Digests of what LiteRT answers on aarch64 to models of one operator, for tests of our rounding on other machines.

    python -m scripts.litert_answers tests/ops/litert_on_aarch64.json

Looks for models anew, on a machine with such a CPU, for each operator in the file: those that LiteRT answers otherwise
than we do by the rules of x86-64, two of each type of data. The file has for each operator, by the seed of
scripts/one_op_models.py, the digests of the model and of LiteRT's answers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch
from zlib import crc32

from jitdelegate.base.targets import AARCH64, X86_64
from jitdelegate.runtime.cache.key import machine_with, this_cpu
from jitdelegate.targets.cpu import target as cpu
from jitdelegate.targets.reference import target as reference
from scripts.one_op_models import MAKERS, one_op_model
from scripts.quantized_inputs import hostile
from scripts.quantized_models import input_tensors
from scripts.quantized_runs import Outputs, run_litert, run_ours

SEEDS, EACH = 300, 2
"""Models that are tried, and most of one type that are kept."""


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 written, 2 wrong arguments or another CPU."""
    arguments = sys.argv[1:] if argv is None else argv
    if len(arguments) != 1 or this_cpu() != AARCH64:
        print(f"{__doc__}\nThis CPU is {this_cpu()}.", file=sys.stderr)
        return 2
    path = Path(arguments[0])
    lines = (f'"{op}": {json.dumps(dict(_found(op)))}' for op in json.loads(path.read_text()))
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return 0


def _found(op: str) -> Iterator[tuple[int, tuple[str, str]]]:
    """(seed, digests) of an operator's models."""
    left = dict.fromkeys(MAKERS[op][0], EACH)
    for seed in range(SEEDS):
        model = one_op_model(op, seed)
        if not left[model.types]:
            continue
        try:
            answers = digest(run_litert(model.content, list(hostile(input_tensors(model.content)))))
        except RuntimeError:
            continue
        if ours(model.content, X86_64) not in ("", answers):
            left[model.types] -= 1
            yield seed, (f"{crc32(model.content):08x}", answers)


def ours(content: bytes, beside: str, target: str = "reference") -> str:
    """The digest of our answers by the rules of a CPU; "" where the operator is left to LiteRT."""

    def machine() -> str:
        return machine_with(beside)

    with patch.object(cpu, "this_machine", machine), patch.object(reference, "this_machine", machine):
        ran = run_ours(content, list(hostile(input_tensors(content))), target)
    return "" if ran.refused else digest(ran.outputs)


def digest(outputs: Outputs) -> str:
    """The digest of the outputs for all inputs."""
    return f"{crc32(b''.join(output.tobytes() for each in outputs for output in each)):08x}"


if __name__ == "__main__":
    sys.exit(main())
