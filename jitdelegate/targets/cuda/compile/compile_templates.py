"""Compiles templates to machine code: Numba on this thread, NVIDIA's compilers on one thread per CPU."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from jitdelegate.ir.faults import Faults
from jitdelegate.targets.cuda.code.template import Template
from jitdelegate.targets.cuda.compile import back_end
from jitdelegate.targets.cuda.compile.template_store import TemplateStore


@dataclass(frozen=True, slots=True)
class Compiled:
    """A template compiled for one GPU architecture."""

    template: Template
    ptx: bytes
    cubin: back_end.Cubin


def compile_templates(
    templates: Sequence[Template],
    architecture: str,
    store: TemplateStore,
    origins: Mapping[Template, Sequence[int]] | None = None,
) -> list[Compiled]:
    """Machine code of each template, in their order.

    NVVM and nvJitLink release the interpreter's lock, so they work on one template while Numba lowers the next.

    Args:
        origins: by template, the positions of the operators that it computes; errors are theirs.
    Raises:
        CompileError: the compilers refuse kernels, or fail; has the reasons of all.
        DeviceError: a compiler is missing.
        ImportError: numba-cuda is needed and not installed.
    """
    faults, jobs, compiled = Faults(), [], []
    owners = {one: (origins or {}).get(one, ()) for one in templates}
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for one in templates:
            with faults.of(owners[one]):
                jobs.append((one, pool.submit(compile_template, one, store.text(one), architecture, store)))
        for one, job in jobs:
            with faults.of(owners[one]):
                compiled.append(job.result())
    faults.settle()
    return compiled


def compile_template(template: Template, text: str, architecture: str, store: TemplateStore) -> Compiled:
    """Machine code of one template from its NVVM IR."""
    code = store.ptx(template, text, architecture)
    return Compiled(template, code, back_end.cubin(code, architecture))
