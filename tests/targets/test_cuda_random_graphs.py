"""A sample of `scripts/fuzz_cuda.py`: random graphs in the PTX simulator."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tflite.scripts import script

pytest.importorskip("numba.cuda", reason="needs numba-cuda, the extra 'cuda'")

from jitdelegate.targets.cuda.code.template import Argument, TensorPointer
from tests.targets import cuda_execute


def test_random_graphs_compute_what_the_forms_say(capsys: pytest.CaptureFixture[str]) -> None:
    status = script("fuzz_cuda").main(["--rounds", "40", "--seed", "7"])
    assert status == 0, capsys.readouterr().out


@pytest.mark.parametrize(("graphs", "rounds"), [("fused", "12"), ("moves", "25"), ("parts", "10"), ("passes", "10")])
def test_random_graphs_of_one_kind_compute_what_the_forms_say(
    graphs: str, rounds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--rounds", rounds, "--seed", "7", "--graphs", graphs]
    assert script("fuzz_cuda").main(arguments) == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    ("graphs", "through"), [("any", "session"), ("fused", "session"), ("parts", "session"), ("any", "both")]
)
def test_random_graphs_run_in_sessions_and_by_both_routes(
    graphs: str, through: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--rounds", "8", "--seed", "7", "--graphs", graphs, "--through", through]
    assert script("fuzz_cuda").main(arguments) == 0, capsys.readouterr().out


def test_a_kernel_that_reads_another_element_is_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sample would notice: every tensor of a launch one element further on in the arena."""
    value = cuda_execute._value

    def shifted(argument: Argument, *places: Any) -> int | float:
        return value(argument, *places) + 4 * isinstance(argument, TensorPointer)

    monkeypatch.setattr(cuda_execute, "_value", shifted)
    assert script("fuzz_cuda").main(["--rounds", "3", "--seed", "7"]) == 1
    assert "wrong" in capsys.readouterr().out
