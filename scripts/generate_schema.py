"""Writes jitdelegate/tflite/schema.py: TFLite's schema as plain data, taken from what flatc generated for LiteRT.

    python scripts/generate_schema.py          write the file
    python scripts/generate_schema.py --check  exit 1 if the file differs from what would be written

flatc's Python output does not say to which enum an integer field belongs; `ENUM_OF` does.
"""

from __future__ import annotations

import argparse
import inspect
import pprint
import re
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

TARGET = Path(__file__).resolve().parents[1] / "jitdelegate" / "tflite" / "schema.py"

HEADER = '''"""TFLite's schema as plain data. Written by scripts/generate_schema.py; do not edit.

Taken from ai-edge-litert {version} (Apache-2.0).

ENUMS: enum name -> number -> name.
UNIONS: union name -> number -> table name.
TABLES: table name -> its fields, each at the position of its slot: (name, code, of, default), or None for a dead slot.
    code  a letter of `struct` for a number, "s" text, "t" table, "u" value of the union whose type is the slot before;
          in brackets a vector of these.
    of    the enum, table or union of the field, else "".
"""

from __future__ import annotations

Field = tuple[str, str, str, int | float | bool | None]

SOURCE = "ai-edge-litert {version}"

'''

NUMBER_CODES = {
    "Bool": "?",
    "Int8": "b",
    "Uint8": "B",
    "Int16": "h",
    "Uint16": "H",
    "Int32": "i",
    "Uint32": "I",
    "Int64": "q",
    "Uint64": "Q",
    "Float32": "f",
    "Float64": "d",
}

ENUM_OF = {
    "algorithm": "RngAlgorithm",
    "combiner": "CombinerType",
    "compare_type": "StablehloComparisonType",
    "comparison_direction": "StablehloComparisonDirection",
    "composite_attributes_format": "CustomOptionsFormat",
    "custom_options_format": "CustomOptionsFormat",
    "format": "DimensionType",
    "fused_activation_function": "ActivationFunctionType",
    "idx_out_type": "TensorType",
    "in_data_type": "TensorType",
    "kernel_type": "LSTMKernelType",
    "key_dtype": "TensorType",
    "mode": "MirrorPadMode",
    "out_data_type": "TensorType",
    "out_type": "TensorType",
    "output_type": "TensorType",
    "padding": "Padding",
    "precision_config": "StablehloPrecisionConfig",
    "quantized_bias_type": "TensorType",
    "reduce_function": "ReduceWindowFunction",
    "type": "TensorType",
    "value_dtype": "TensorType",
    "weights_format": "FullyConnectedOptionsWeightsFormat",
}
EXCEPTIONS = {("LSHProjectionOptions", "type"): "LSHProjectionType"}
NO_ENUM = {("StablehloReduceWindowOptions", "padding"), ("StablehloConvolutionOptions", "padding")}

UNIONS = {
    "builtin_options": "BuiltinOptions",
    "builtin_options_2": "BuiltinOptions2",
    "details": "QuantizationDetails",
    "array_segments": "SparseIndexVector",
    "array_indices": "SparseIndexVector",
}

ADDER = re.compile(
    r"^def (?P<table>\w+?)Add(?P<method>\w+)\(builder, (?P<field>\w+)\):\n"
    r"    builder\.Prepend(?P<kind>\w+)Slot\((?P<slot>\d+), .+, (?P<default>[^,\n]+)\)$",
    re.MULTILINE,
)


class Entry(NamedTuple):
    name: str
    code: str
    of: str
    default: int | float | bool | None


def snake(name: str) -> str:
    """flatc's camelCase back to the name in schema.fbs."""
    return re.sub(r"(?=[A-Z])|(?<=Options)(?=2)", "_", name).lower().replace("__", "_").lstrip("_")


def constants(group: type) -> dict[int, str]:
    return {number: name for name, number in vars(group).items() if not name.startswith("_")}


def reference(schema: ModuleType, table: str, method: str, field: str) -> tuple[str, str]:
    """(code, of) of a field that is stored behind an offset."""
    name = snake(field)
    getter = inspect.getsource(getattr(getattr(schema, table), method))
    vector = hasattr(getattr(schema, table), method + "Length")
    if name in UNIONS and not vector:
        return "u", UNIONS[name]
    if "String(" in getter:
        return "[s]" if vector else "s", ""
    flags = re.search(r"self\._tab\.Get\(flatbuffers\.number_types\.(\w+)Flags", getter)
    if flags:
        return f"[{NUMBER_CODES[flags[1]]}]", enum(table, name)
    of = re.search(r"obj = (\w+)\(\)", getter)
    assert of is not None, f"{table}.{field} is neither text, numbers nor tables"
    return "[t]" if vector else "t", of[1]


def enum(table: str, name: str) -> str:
    if (table, name) in NO_ENUM:
        return ""
    if name.endswith("_type") and name.removesuffix("_type") in UNIONS:
        return UNIONS[name.removesuffix("_type")]
    return EXCEPTIONS.get((table, name)) or ENUM_OF.get(name, "")


def number(kind: str, text: str) -> int | float | bool:
    """The default value that flatc wrote as `text`."""
    if kind == "Bool":
        return text in ("True", "1")
    return float(text) if kind.startswith("Float") else int(text)


def entry(schema: ModuleType, found: re.Match[str]) -> Entry:
    table, name = found["table"], snake(found["field"])
    if found["kind"] == "UOffsetTRelative":
        return Entry(name, *reference(schema, table, found["method"], found["field"]), None)
    default = number(found["kind"], found["default"])
    return Entry(name, NUMBER_CODES[found["kind"]], enum(table, name), default)


def tables(schema: ModuleType) -> dict[str, tuple[Entry | None, ...]]:
    """Every table with its fields in slot order; a table without fields has none."""
    source = inspect.getsource(schema)
    found: dict[str, dict[int, Entry]] = {name: {} for name in re.findall(r"^def (\w+)Start\(builder\):", source, re.M)}
    for adder in ADDER.finditer(source):
        found[adder["table"]][int(adder["slot"])] = entry(schema, adder)
    return {
        name: tuple(fields.get(slot) for slot in range(max(fields, default=-1) + 1))
        for name, fields in sorted(found.items())
    }


def enums(schema: ModuleType) -> dict[str, dict[int, str]]:
    groups = inspect.getmembers(schema, inspect.isclass)
    return {name: constants(group) for name, group in groups if not hasattr(group, "Init") and not name.endswith("T")}


def literal(name: str, kind: str, value: object) -> str:
    return f"{name}: {kind} = {pprint.pformat(value, width=118, compact=True)}\n\n"


def generate() -> str:
    """The text of schema.py for the installed ai-edge-litert."""
    from ai_edge_litert import schema_py_generated as schema

    every = enums(schema)
    unions = {
        name: {number: table for number, table in every.pop(name).items() if number} for name in set(UNIONS.values())
    }
    plain = {name: tuple(field and tuple(field) for field in fields) for name, fields in tables(schema).items()}
    return (
        HEADER.format(version=version("ai-edge-litert"))
        + literal("ENUMS", "dict[str, dict[int, str]]", every)
        + literal("UNIONS", "dict[str, dict[int, str]]", unions)
        + literal("TABLES", "dict[str, tuple[Field | None, ...]]", plain).rstrip()
        + "\n"
    )


def main() -> int:
    """Exit status: 0 written or equal, 1 `--check` found a difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only compare")
    text = generate()
    if parser.parse_args().check:
        return int(TARGET.read_text() != text)
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
