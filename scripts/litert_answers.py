"""Digests of what LiteRT answers on aarch64 to models of one operator, for tests of our rounding on other machines.

    python -m scripts.litert_answers tests/ops/litert_on_aarch64.json

Computes the digests in a file anew, on a machine with such a CPU. Each is of a model that LiteRT answers otherwise on
x86-64, and of its answers: {operator: {seed of scripts/one_op_models.py: [digest of the model, of the answers]}}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from zlib import crc32

from jitdelegate.base.targets import AARCH64
from jitdelegate.runtime.cache.key import this_cpu
from scripts.one_op_models import one_op_model
from scripts.quantized_inputs import hostile
from scripts.quantized_models import input_tensors
from scripts.quantized_runs import Outputs, run_litert


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 written, 2 wrong arguments or another CPU."""
    arguments = sys.argv[1:] if argv is None else argv
    if len(arguments) != 1 or this_cpu() != AARCH64:
        print(f"{__doc__}\nThis CPU is {this_cpu()}.", file=sys.stderr)
        return 2
    path = Path(arguments[0])
    found = {
        op: {seed: _digests(op, int(seed)) for seed in seeds} for op, seeds in json.loads(path.read_text()).items()
    }
    lines = (f'"{op}": {json.dumps(seeds)}' for op, seeds in found.items())
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return 0


def _digests(op: str, seed: int) -> list[str]:
    content = one_op_model(op, seed).content
    return [f"{crc32(content):08x}", digest(run_litert(content, list(hostile(input_tensors(content)))))]


def digest(outputs: Outputs) -> str:
    """The digest of the outputs for all inputs."""
    return f"{crc32(b''.join(output.tobytes() for each in outputs for output in each)):08x}"


if __name__ == "__main__":
    sys.exit(main())
