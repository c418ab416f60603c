"""Layouts are data, and the known one is what LiteRT's headers say."""

from __future__ import annotations

import pytest

from jitdelegate.errors import OptionError
from jitdelegate.runtime.litert_layout import LAYOUT, Layout
from tests.engine.litert_delegate.c_structures import DECLARATIONS, changes, structure


@pytest.mark.parametrize("name", DECLARATIONS)
def test_the_known_layout_is_what_a_c_compiler_makes_of_the_headers(name: str) -> None:
    found, declared = getattr(LAYOUT, name), structure(name, DECLARATIONS[name])
    assert (found.size, found.fields) == (declared.size, declared.fields)


def test_a_layout_survives_as_text() -> None:
    for _, layout in changes():
        again = Layout.from_text(layout.text())
        assert again.text() == layout.text() and again.digest() == layout.digest()


def test_layouts_are_told_apart() -> None:
    layouts = [LAYOUT, *(layout for _, layout in changes())]
    assert len({layout.digest() for layout in layouts}) == len(layouts) > 100


@pytest.mark.parametrize("text", ["", "nonsense", LAYOUT.text()[:-5], LAYOUT.text().replace("8", "x", 1)])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match="is not the text of a layout"):
        Layout.from_text(text)
