"""What notebooks show of models, reports and outputs, as a cell's result."""

from __future__ import annotations

import re
import warnings
from html.parser import HTMLParser
from pathlib import Path

import numpy as np

import jitdelegate
from jitdelegate.tflite.write import ModelBuilder
from tests.api import partial_models, small_models

OPTIONS = {"serialization_dir": False, "target": "cpu"}


class Texts(HTMLParser):
    """The texts of a page's cells; all elements have to be closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in {"table", "caption", "thead", "tr", "th", "td"}
        self._open.append(tag)
        if tag in {"th", "td", "caption"}:
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in {"th", "td", "caption"}:
            self.cells[-1] += data


def test_a_model_shows_its_ports_and_where_it_runs() -> None:
    with jitdelegate.load(small_models.two_signatures(), **OPTIONS) as model:
        cells = Texts(model._repr_html_()).cells
        for one in (*model.inputs, *model.outputs):
            assert {one.name, str(list(one.shape)), one.dtype} <= {*cells}
        assert all(repr(key) in cells[0] for key in model.signatures)
        assert any(cell.startswith("cpu ") for cell in cells)
    Texts(model._repr_html_())


def test_a_report_shows_every_operator_and_reason(tmp_path: Path) -> None:
    options = {"partitioning": "all", "only_ops": partial_models.ONLY}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jitdelegate.DelegateWarning)  # once a process
        model = jitdelegate.load(partial_models.alternating(), **OPTIONS, options=options)
    report = model.report()
    cells = Texts(report._repr_html_()).cells
    assert {"litert", "cpu"} <= {*cells}
    for one in report.operators:
        assert any(one.op in cell for cell in cells), one
    assert f"{report.delegated} of {len(report.operators)} delegated" in cells


def test_a_profiled_report_shows_kernels() -> None:
    with jitdelegate.load(small_models.two_outputs(), **OPTIONS, profile=True) as model:
        model(*(np.ones(one.shape, one.dtype) for one in model.inputs))
        assert "Kernels" in Texts(model.report()._repr_html_()).cells


def test_an_output_shows_its_range_and_elements() -> None:
    with jitdelegate.load(small_models.two_outputs(), **OPTIONS) as model:
        outputs = model(*(np.full(one.shape, 0.5, one.dtype) for one in model.inputs))
        for output in outputs:
            cells = Texts(output._repr_html_()).cells
            array = np.asarray(output)
            assert cells[0] == repr(output)
            assert cells[2] == f"{array.min():g} to {array.max():g}, {array.astype(np.float64).mean():g} in the mean"
            assert re.findall(r"[-\d.]+", cells[-1])


def test_outputs_of_all_kinds_are_shown() -> None:
    with jitdelegate.load(small_models.integers(), **OPTIONS) as model:
        output = model(*(np.full(one.shape, value, one.dtype) for one, value in zip(model.inputs, (3, 4), strict=True)))
        assert "7 to 7, 7 in the mean" in Texts(output._repr_html_()).cells
    builder = ModelBuilder()
    builder.output(builder.op("LOG", [builder.input((3, 50), name="x")], (3, 50)))
    with jitdelegate.load(builder.finish(), **OPTIONS) as model:
        output = model(-np.ones((3, 50), np.float32))
        cells = Texts(output._repr_html_()).cells
        assert "150 of 150" in cells and "..." in cells[-1]
    builder = ModelBuilder()
    builder.output(builder.op("RELU", [builder.input((0, 4), name="x")], (0, 4)))
    with jitdelegate.load(builder.finish(), **OPTIONS) as model:
        assert "[]" in Texts(model(np.ones((0, 4), np.float32))._repr_html_()).cells[-1]


def test_names_of_a_model_are_escaped() -> None:
    builder = ModelBuilder()
    name = "<script>alert(1)</script>\x1b[2J"
    builder.output(builder.op("TANH", [builder.input((1, 4), name=name)], (1, 4)))
    with jitdelegate.load(builder.finish(), **OPTIONS) as model:
        page = model._repr_html_()
    assert "<script>" not in page and "\x1b" not in page
    assert "<script>alert(1)</script>\\x1b[2J" in Texts(page).cells
