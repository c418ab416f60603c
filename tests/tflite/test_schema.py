from __future__ import annotations

from importlib.metadata import version

import pytest

from jitdelegate.tflite import schema
from jitdelegate.tflite.options import OPTIONS_TABLE
from tests import imports
from tests.child import answer_of
from tests.tflite.scripts import script


def test_the_schema_is_what_the_script_writes() -> None:
    installed = f"ai-edge-litert {version('ai-edge-litert')}"
    if installed != schema.SOURCE:
        pytest.skip(f"the schema was taken from {schema.SOURCE}, installed is {installed}")
    generate = script("generate_schema")
    assert generate.TARGET.read_text() == generate.generate()


def test_importing_the_schema_needs_neither_numpy_nor_flatbuffers() -> None:
    answer_of(imports.the_schema)


def test_every_options_table_of_an_operator_is_in_a_union() -> None:
    known = {*schema.UNIONS["BuiltinOptions"].values(), *schema.UNIONS["BuiltinOptions2"].values()}
    assert set(OPTIONS_TABLE) <= set(schema.ENUMS["BuiltinOperator"].values())
    assert set(OPTIONS_TABLE.values()) == known


def test_every_field_refers_to_a_table_enum_or_union_that_exists() -> None:
    known = {"", *schema.ENUMS, *schema.UNIONS, *schema.TABLES}
    fields = [field for table in schema.TABLES.values() for field in table if field is not None]
    assert {field[2] for field in fields} <= known
    assert {field[1] for field in fields} <= {
        *"?bBiIqQfstu",
        "[?]",
        "[B]",
        "[H]",
        "[i]",
        "[I]",
        "[q]",
        "[f]",
        "[s]",
        "[t]",
    }
