"""A graph in one file, constants and forms included: for dumps, and for running a dumped kernel alone.

The file is numpy's .npz: the graph's classes and values as JSON, and each array by its number. It contains no code.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, is_zipfile

import numpy as np

from jitdelegate.errors import ModelError
from jitdelegate.ir import expr, forms, graph, index_forms
from jitdelegate.ir.graph import Graph

DESCRIPTION = "graph"
CLASSES = {
    name: each
    for module in (expr, forms, graph, index_forms)
    for name, each in vars(module).items()
    if isinstance(each, type) and is_dataclass(each)
}
"""The classes that make up a graph, by name."""


def save_graph(found: Graph, path: Path) -> None:
    """Write the graph to a new .npz file; raises OSError."""
    arrays: list[np.ndarray] = []
    text = json.dumps(_encoded(found, arrays))
    numbered = {str(number): array for number, array in enumerate(arrays)}
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **{DESCRIPTION: np.array(text)}, **numbered)


def load_graph(path: Path) -> Graph:
    """The graph that `save_graph` wrote.

    Raises:
        ModelError: the file cannot be opened, or it holds no graph.
    """
    try:
        with path.open("rb") as kernel:
            is_archive = is_zipfile(kernel)
        if is_archive:
            with np.load(path, allow_pickle=False) as file:
                found = _decoded(json.loads(str(file[DESCRIPTION])), file)
    except OSError as error:
        raise ModelError(f"could not open {str(path)!r}: {error.strerror or error}") from error
    except KeyError as error:
        raise ModelError(f"{path} holds no graph: {error.args[0]!r} is not there") from error
    except (ValueError, TypeError, BadZipFile, EOFError, zlib.error) as error:
        raise ModelError(f"{path} holds no graph: {error}") from error
    if not is_archive:
        raise ModelError(f"{path} holds no graph: it is no .npz file")
    if not isinstance(found, Graph):
        raise ModelError(f"{path} holds a {type(found).__name__}, expected a graph")
    return found


def _encoded(value: Any, arrays: list[np.ndarray]) -> Any:
    """The value as JSON; each array is replaced by its number."""
    if is_dataclass(value):
        named = {field.name: _encoded(getattr(value, field.name), arrays) for field in fields(value)}
        return {"class": type(value).__name__, "fields": named}
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, tuple | list):
        return [_encoded(each, arrays) for each in value]
    if isinstance(value, Mapping):
        return {"mapping": {name: _encoded(each, arrays) for name, each in value.items()}}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    return value.item() if isinstance(value, np.generic) else value


def _decoded(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The value; lists become tuples, which graphs use."""
    if isinstance(value, list):
        return tuple(_decoded(each, arrays) for each in value)
    if not isinstance(value, dict):
        return value
    if "class" in value:
        named = {name: _decoded(each, arrays) for name, each in value["fields"].items()}
        return CLASSES[value["class"]](**named)
    if "array" in value:
        return arrays[str(value["array"])]
    if "mapping" in value:
        return {name: _decoded(each, arrays) for name, each in value["mapping"].items()}
    return bytes.fromhex(value["bytes"])
