"""Puts the stub, or the stub of simulated kernels, where the machine's own driver would be."""

from __future__ import annotations

from typing import Any

import pytest

from jitdelegate.program.program import Program
from tests.gpu.stub.library import Library
from tests.gpu.stub.simulator import SimulatedMemory, simulate


def install(monkeypatch: pytest.MonkeyPatch, library: Library) -> Library:
    """From now on models are opened on the stub; it needs no prototypes."""
    monkeypatch.setattr("jitdelegate.targets.may_be_here", lambda name: True)
    monkeypatch.setattr("jitdelegate.targets.cuda.target.open_library", lambda: library)
    monkeypatch.setattr("jitdelegate.runtime.cuda.mark.open_library", lambda: library)
    monkeypatch.setattr("jitdelegate.runtime.cuda.device.declare", lambda library: None)
    return library


def install_simulated_gpu(monkeypatch: pytest.MonkeyPatch) -> Library:
    """A device that executes kernels as the PTX that their binaries were assembled from."""
    pytest.importorskip("numba.cuda", reason="needs numba-cuda, the extra 'cuda'")
    from jitdelegate.runtime.cuda import session
    from jitdelegate.targets.cuda.compile import compile_templates
    from tests.gpu.simulator import Memory, Module

    modules: dict[str, Module] = {}
    kinds: dict[str, str] = {}
    compile_one, load = compile_templates.compile_template, session.load_functions

    def remember(*arguments: Any) -> Any:
        compiled = compile_one(*arguments)
        modules[compiled.template.symbol] = Module(compiled.ptx.decode())
        return compiled

    def teach(program: Program, *arguments: Any) -> list[int]:
        names = [kernel.name for kernel in program.kernels]
        kinds.update({names[launch.kernel]: launch.kinds for launch in program.launches})  # type: ignore[misc]
        return load(program, *arguments)

    monkeypatch.setattr(compile_templates, "compile_template", remember)
    monkeypatch.setattr(session, "load_functions", teach)
    memory = SimulatedMemory(Memory())
    return install(
        monkeypatch, Library(simulate(modules), kinds, memory=memory, capability=(9, 0), total_bytes=1 << 33)
    )
