"""Options of builtin operators: which of the schema's tables holds them, and their values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jitdelegate.tflite.record import Record, default
from jitdelegate.tflite.schema import ENUMS, UNIONS

BUILTIN_CODES = {name: number for number, name in ENUMS["BuiltinOperator"].items()}
"""TFLite's name of an operator -> its number."""
_REDUCERS = ("MEAN", "SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_ANY", "REDUCE_ALL")
_NAMED_OTHERWISE = {
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "CONV_3D_TRANSPOSE": "Conv3DOptions",
    "L2_NORMALIZATION": "L2NormOptions",
    "L2_POOL_2D": "Pool2DOptions",
    "MAXIMUM": "MaximumMinimumOptions",
    "MAX_POOL_2D": "Pool2DOptions",
    "MINIMUM": "MaximumMinimumOptions",
    "MULTINOMIAL": "RandomOptions",
    "RANDOM_STANDARD_NORMAL": "RandomOptions",
    "RANDOM_UNIFORM": "RandomOptions",
    "UNIDIRECTIONAL_SEQUENCE_RNN": "SequenceRNNOptions",
    **dict.fromkeys(_REDUCERS, "ReducerOptions"),
}


def _tables_by_operator() -> dict[str, str]:
    """Builtin operator to its table: names match up to case and underscores, with the exceptions above."""
    tables = {
        table.lower(): table for union in ("BuiltinOptions", "BuiltinOptions2") for table in UNIONS[union].values()
    }
    guesses = {op: tables.get(op.replace("_", "").lower() + "options") for op in BUILTIN_CODES}
    return {op: table for op, table in guesses.items() if table} | _NAMED_OTHERWISE


OPTIONS_TABLE: dict[str, str] = _tables_by_operator()
"""Builtin operator to the name of its options' table; operators without options are not in it."""


def attributes(op: str, operator: Record) -> Mapping[str, Any]:
    """The options of a builtin operator, by their names in the schema.

    Options that are absent, or in another operator's table (which LiteRT ignores), have the schema's defaults.
    """
    expected = OPTIONS_TABLE.get(op)
    if expected is None:
        return {}
    for union in ("builtin_options", "builtin_options_2"):
        if operator[f"{union}_type"] == expected and operator[union] is not None:
            chosen: Record = operator[union]
            return chosen
    return default(expected)
