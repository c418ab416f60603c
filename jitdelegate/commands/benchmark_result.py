"""The figures of a benchmark as benchmark_model's protocol buffer, tflite.tools.benchmark.BenchmarkResult."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

LATENCY = (
    *("avg_ms", "min_ms", "max_ms", "std_ms", "median_ms", "p5_ms", "p95_ms"),
    *("init_ms", "warmup_first_ms", "warmup_avg_ms"),
)
"""Names of the figures in the order of the fields' numbers, from 1 on."""
KILOBYTE = 1024
_VARINT, _BYTES, _FLOAT = 0, 2, 5


def benchmark_result(facts: Mapping[str, Any]) -> bytes:
    """The message's bytes.

    Args:
        facts: those of --result_json.
    """
    latency = facts["latency"]
    memory = (facts["init_bytes"] // KILOBYTE, facts["overall_bytes"] // KILOBYTE, facts["peak_bytes"] / KILOBYTE**2)
    rest = (
        facts["model_size_mb"] * KILOBYTE**2 / 1e6,
        latency["num_runs"],
        latency["num_warmup_runs"],
        facts["throughput_mb_s"],
    )
    return _message(
        facts["name"].encode(), _message(*(latency[name] for name in LATENCY)), _message(*memory), _message(*rest)
    )


def _message(*values: float | bytes) -> bytes:
    """A message whose fields are numbered from 1 on."""
    return b"".join(_field(number, value) for number, value in enumerate(values, 1))


def _field(number: int, value: float | bytes) -> bytes:
    if isinstance(value, float):
        return _varint(number << 3 | _FLOAT) + struct.pack("<f", value)
    if isinstance(value, int):
        return _varint(number << 3 | _VARINT) + _varint(value)
    return _varint(number << 3 | _BYTES) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    """A number in groups of seven bits, the lowest first; negative ones as 64 bits."""
    value &= (1 << 64) - 1
    groups = bytearray()
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes([*groups, value])
