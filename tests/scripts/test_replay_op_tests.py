"""LiteRT's op tests replayed: what is counted as equal, refused, wrong and crashed."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import jitdelegate
from jitdelegate.ir.graph import Quant
from jitdelegate.tflite.write import ModelBuilder
from scripts.op_test_archive import OpTest, in_order, read_archive, read_archives
from scripts.op_test_runs import Ran, Run, run_cpu, run_litert
from scripts.replay_op_tests import Verdict, difference, main, reasons, replay, table

Arrays = Mapping[str, np.ndarray]
LEFT, RIGHT = np.array([[1, 2, 3]], np.float32), np.array([[5, -7, 11]], np.float32)


def addition(open_rows: bool = False) -> bytes:
    """f32[1,3] + f32[1,3], with the names that converters give."""
    model = ModelBuilder()
    signature = (-1, 3) if open_rows else None
    names = ("serving_default_right:0", "serving_default_left:0")
    operands = [model.input((1, 3), name=name, shape_signature=signature) for name in names]
    model.output(model.op("ADD", operands, (1, 3), name="Add:0"))
    return model.finish()


def convolution_without_bias() -> bytes:
    """f32[1,1,1,1] -> f32[1,1,1,1], which LiteRT refuses."""
    model = ModelBuilder()
    weights = model.constant(np.full((1, 1, 1, 1), 3, np.float32))
    image = model.input((1, 1, 1, 1), name="image")
    model.output(
        model.op("CONV_2D", [image, weights], (1, 1, 1, 1), options={"stride_w": 1, "stride_h": 1}, name="out")
    )
    return model.finish()


def rounding() -> bytes:
    """f32[1,3] -> f32[1,3] by way of int8 in steps of 0.5."""
    model, quant = ModelBuilder(), Quant((0.5,), (0,))
    stored = model.op("QUANTIZE", [model.input((1, 3), name="value")], (1, 3), dtype="int8", quant=quant)
    model.output(model.op("DEQUANTIZE", [stored], (1, 3), name="rounded"))
    return model.finish()


def write_archive(path: Path, cases: Mapping[str, tuple[bytes, list[tuple[Arrays, Arrays]]]]) -> Path:
    """An archive of (model, value sets), by their parameters."""
    lines = ["case\tsets\tparameters"]
    with zipfile.ZipFile(path, "w") as archive:
        for number, (parameters, (model, sets)) in enumerate(cases.items()):
            arrays = {
                f"{index}/{side}/{name}": array
                for index, values in enumerate(sets)
                for side, named in zip(("in", "out"), values, strict=True)
                for name, array in named.items()
            }
            stream = io.BytesIO()
            np.savez(stream, **arrays)  # type: ignore[arg-type]
            archive.writestr(f"{number:03}.npz", stream.getvalue())
            archive.writestr(f"{number:03}.tflite", model)
            lines.append(f"{number:03}\t{len(sets)}\t{parameters}")
        archive.writestr("cases.tsv", "\n".join(lines) + "\n")
    return path


def sum_of(left: np.ndarray, right: np.ndarray, off: float = 0.0) -> tuple[Arrays, Arrays]:
    return {"left": left, "right": right}, {"Add": (left + right + off).astype(np.float32)}


def one_case(folder: Path, model: bytes, *sets: tuple[Arrays, Arrays]) -> OpTest:
    (test,) = read_archive(write_archive(folder / "one.zip", {"a=1": (model, list(sets))}))
    return test


def only(test: OpTest, run: Run = run_cpu) -> Verdict:
    (verdict,) = replay([test], run)
    return verdict


def test_an_archive_is_read_case_by_case(tmp_path: Path) -> None:
    values = sum_of(LEFT, RIGHT)
    write_archive(tmp_path / "b.zip", {"x=1,y=2": (addition(), [values, values]), "x=2": (b"no model", [values])})
    write_archive(tmp_path / "a.zip", {"z=1": (addition(), [values])})
    tests = list(read_archives(tmp_path))
    assert [(test.op, test.number, test.parameters) for test in tests] == [
        ("a", "000", "z=1"),
        ("b", "000", "x=1,y=2"),
        ("b", "001", "x=2"),
    ]
    assert len(tests[1].sets) == len(tests[1].stored) == len(tests[1].steps) == 2
    assert tests[2].graph is None and len(tests[2].stored) == 1


def test_arrays_follow_the_model_s_names_or_else_their_own_order() -> None:
    arrays = {"left": LEFT, "right": RIGHT}
    assert in_order(["serving_default_right:0", "serving_default_left:0"], arrays) == [RIGHT, LEFT]
    assert in_order(["one", "left"], arrays) == [LEFT, RIGHT]
    with pytest.raises(LookupError, match=r"2 arrays \(left, right\) for the 1 tensors left"):
        in_order(["left"], arrays)


def test_a_right_answer_is_equal(tmp_path: Path) -> None:
    verdict = only(one_case(tmp_path, addition(), sum_of(LEFT, RIGHT), sum_of(LEFT, 2 * RIGHT)))
    assert (verdict.kind, verdict.delegated, verdict.is_float, verdict.litert_differs) == ("equal", True, True, False)


def test_a_wrong_expectation_counts_as_litert_s_disagreement_and_litert_is_the_reference(tmp_path: Path) -> None:
    test = one_case(tmp_path, addition(), sum_of(LEFT, RIGHT, off=0.01))
    assert (only(test).kind, only(test).litert_differs) == ("equal", True)
    as_stored = only(test, lambda test: Ran(test.stored))
    assert (as_stored.kind, as_stored.litert_differs) == ("wrong", True)


def test_what_differs_from_both_is_wrong_also_where_it_ran_on_litert(tmp_path: Path) -> None:
    test = one_case(tmp_path, addition(), sum_of(LEFT, RIGHT))
    off = [test.stored[0] + np.array([0, 0, 0.0625], np.float32)]
    for ran in (Ran(off), Ran(off, ("because",))):
        verdict = only(test, partial(lambda ran, _: ran, ran))
        assert (verdict.kind, verdict.delegated) == ("wrong", ran.delegated)
        assert verdict.reasons == ("output 0 has 1 of 3 values wrong, at [0, 2] 14.0625, expected 14.0",)


def test_the_stored_output_is_the_reference_where_litert_refuses_the_model(tmp_path: Path) -> None:
    image, model = np.full((1, 1, 1, 1), 2, np.float32), convolution_without_bias()
    right = one_case(tmp_path, model, ({"image": image}, {"out": 3 * image}))
    assert run_litert(right).error
    assert (only(right).kind, only(right).litert_differs) == ("equal", False)
    assert only(one_case(tmp_path, model, ({"image": image}, {"out": 4 * image}))).kind == "wrong"


def test_what_runs_on_litert_is_refused_with_its_reasons(tmp_path: Path) -> None:
    verdict = only(one_case(tmp_path, addition(), sum_of(LEFT, RIGHT)), lambda test: Ran(test.stored, ("'x' is new.",)))
    assert (verdict.kind, verdict.delegated, verdict.reasons) == ("refused", False, ("'x' is new.",))


def test_an_error_is_a_refusal_only_where_litert_fails_too(tmp_path: Path) -> None:
    broken = one_case(tmp_path, b"no model", sum_of(LEFT, RIGHT))
    assert only(broken).kind == "refused" and "model: bytes 4..7" in only(broken).reasons[0]
    fine = replace(broken, model=addition())
    assert only(fine, lambda test: Ran(error="no.")).kind == "wrong"


def test_only_what_the_report_calls_delegated_counts_as_such_whatever_its_reasons(tmp_path: Path) -> None:
    model = ModelBuilder()
    model.output(model.input((1, 3), name="same"))
    test = one_case(tmp_path, model.finish(), ({"same": LEFT}, {"same": LEFT}))
    with jitdelegate.load(test.model, serialization_dir=False, target="cpu") as loaded:
        assert run_cpu(test).delegated == loaded.report().fully_delegated


def test_a_case_that_ends_its_process_is_counted_and_the_next_one_runs(tmp_path: Path) -> None:
    test = one_case(tmp_path, addition(), sum_of(LEFT, RIGHT))

    def run(test: OpTest) -> Ran:
        return os.abort() if test.number == "000" else run_cpu(test)

    crashed, equal = replay([test, replace(test, number="001")], run)
    assert (crashed.kind, crashed.reasons, equal.kind) == ("crashed", ("ended by SIGABRT",), "equal")


def test_inputs_get_the_shapes_of_the_arrays(tmp_path: Path) -> None:
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    test = one_case(tmp_path, addition(open_rows=True), sum_of(rows, 2 * rows))
    assert only(test).kind in ("equal", "refused") and not only(test).litert_differs
    ran = run_cpu(test)
    np.testing.assert_array_equal(ran.outputs[0], 3 * rows)


@pytest.mark.parametrize(("steps", "differs"), [(0, False), (2, False), (3, True)])
def test_what_was_quantized_may_be_two_steps_off(tmp_path: Path, steps: int, differs: bool) -> None:
    values = {"value": LEFT}, {"rounded": LEFT + np.float32(0.5 * steps)}
    test = one_case(tmp_path, rounding(), values)
    assert (test.steps, test.is_float) == ([0.5], False)
    assert only(test).litert_differs == differs


def test_differences_are_told() -> None:
    assert difference(np.array([1, np.nan], np.float32), np.array([1.00001, np.nan], np.float32)) == ""
    assert "shape [2], expected [1, 2]" in difference(np.zeros(2), np.zeros((1, 2)))
    assert "1 of 2 values wrong, at [1] 3, expected 2" in difference(np.array([1, 3]), np.array([1, 2]))
    assert difference(np.array([1, 3], np.int8), np.array([1, 2], np.int8), limit=1) == ""
    assert "at [0] -128, expected 127" in difference(np.array([-128], np.int8), np.array([127], np.int8), limit=2)
    assert difference(np.zeros((0, 3)), np.zeros((0, 3))) == ""


def test_the_table_counts_by_archive() -> None:
    def verdict(op: str, kind: str, delegated: bool = True, differs: bool = False) -> Verdict:
        return Verdict(op, "000", "", kind, delegated, op != "softmax", ("'a' has [2, 3].",), differs)

    found = [verdict("add", "equal", differs=True), verdict("add", "wrong"), verdict("softmax", "refused", False)]
    assert table(found).splitlines() == [
        "op       cases  delegated  equal  refused  wrong  crashed  LiteRT differs",
        "add          2          2      1        0      1        0               1",
        "softmax      1          0      0        1      0        0               0",
        "all          3          2      1        1      1        0               1",
        "2 of 2 float cases and 0 of 1 others delegated",
    ]
    assert list(reasons(found)) == ["    1  '...' has [...].  (softmax 1)"]


def test_the_script_prints_the_table_and_its_status_tells_of_wrong_cases(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    image = np.full((1, 1, 1, 1), 2, np.float32)
    write_archive(tmp_path / "add.zip", {"n=1": (addition(), [sum_of(LEFT, RIGHT)])})
    values = {"image": image}, {"out": 4 * image}
    write_archive(tmp_path / "conv.zip", {"n=2": (convolution_without_bias(), [values])})
    assert main([str(tmp_path), "--reasons"]) == 1
    out, err = capfd.readouterr()
    assert "conv      1          1      0        0      1        0               0" in out
    assert "conv 000 (n=2): wrong: output 0 has 1 of 1 values wrong, at [0, 0, 0, 0] 6.0, expected 8.0" in err
    assert main([str(tmp_path), "--only", "a*", "--json"]) == 0
    assert [case["op"] for case in json.loads(capfd.readouterr().out)] == ["add"]


def test_a_sample_is_the_same_for_the_same_seed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_archive(tmp_path / "add.zip", {f"n={n}": (addition(), [sum_of(LEFT, RIGHT)]) for n in range(9)})
    drawn = []
    for seed in ("1", "1", "2"):
        assert main([str(tmp_path), "--sample", "3", "--seed", seed, "--json"]) == 0
        drawn.append([case["number"] for case in json.loads(capfd.readouterr().out)])
    assert drawn[0] == drawn[1] != drawn[2] and len(drawn[2]) == 3


def test_a_folder_without_archives_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path)])
    assert ended.value.code == 2 and "no archives" in capfd.readouterr().err


def test_cases_run_in_the_simulator_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("numba.cuda", reason="needs numba-cuda, the extra 'cuda'")
    rows = np.ones((4, 3), np.float32)
    resized = (addition(open_rows=True), [sum_of(rows, rows)])
    write_archive(tmp_path / "add.zip", {"n=1": (addition(), [sum_of(LEFT, RIGHT)]), "n=2": resized})
    assert main([str(tmp_path), "--target", "simulator", "--json"]) == 0
    assert [case["kind"] for case in json.loads(capfd.readouterr().out)] == ["equal", "equal"]


def test_a_sample_of_litert_s_op_tests_is_neither_wrong_nor_crashes(op_tests: Path) -> None:
    assert main([str(op_tests), "--sample", "25", "--seed", "3"]) == 0
