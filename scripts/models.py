"""Model files that a command names."""

from __future__ import annotations

from pathlib import Path


def models_in(path: Path) -> list[Path]:
    """The .tflite files at a path, nested ones too."""
    return sorted(path.rglob("*.tflite")) if path.is_dir() else [path] * path.exists()
