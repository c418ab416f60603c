"""Measured costs, by architecture: written by `scripts/gpu_check.sh --apply`. Where there are none, estimates count."""

from __future__ import annotations

from collections.abc import Mapping

MEASURED: Mapping[str, Mapping[str, float]] = {}
"""By architecture ("sm_90"), values of `gpu.Costs`. Nothing was measured yet."""
