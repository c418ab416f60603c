"""What must hold of every kernel of real networks on every GPU, seen in the code alone."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("numba.cuda", reason="needs numba-cuda, the extra 'cuda'")

from jitdelegate import passes
from jitdelegate.commands.demo_model import mobilenet_v1
from jitdelegate.targets.cuda.code.gpu import GPUS
from jitdelegate.targets.cuda.code.template import Template
from jitdelegate.targets.cuda.compile import back_end
from jitdelegate.targets.cuda.plan.plan import plan
from jitdelegate.tflite.read import read
from tests.conftest import models_dir
from tests.targets.cuda_execute import compiled
from tests.targets.detector import detector
from tests.targets.sass import LOCAL, TENSOR_CORE, instructions

SAMPLE = 60
"""Kernels that CI looks at; scripts/check_cuda.py looks at all of every model."""
BUILT = {"mobilenet_v1": mobilenet_v1, "detector": detector}
REAL = ("deeplabv3_257_mv_gpu", "prisma-net", "palm_detection_lite", "face_landmark", "keyword_spotting_alexa.float32",
        "mobilenet_v2_1.0_224_quant", "style_transfer_quantized_384")  # fmt: skip


@cache
def _content(name: str) -> bytes:
    return BUILT[name]() if name in BUILT else (models_dir() / "real" / f"{name}.tflite").read_bytes()


def kernels(content: bytes, dice: random.Random) -> list[tuple[str, Template]]:
    """(architecture, template) of every kernel of a model on some GPUs, each in a precision that it has."""
    graph = passes.run(read(content).graphs[0])
    found = {}
    for gpu in map(GPUS.__getitem__, dice.sample(back_end.ARCHITECTURES, 3)):
        names = ("float32", "float16", "tf32", "bfloat16") if gpu.has_async_copy else ("float32", "float16")
        for launch in plan(graph, gpu, dice.choice(names)).launches:
            found[gpu.architecture, launch.template] = None
    return list(found)


@pytest.mark.parametrize("name", [*BUILT, *REAL])
def test_no_kernel_spills_and_tensor_cores_are_used_where_they_are_meant(name: str) -> None:
    dice = random.Random(name)
    found = kernels(_content(name), dice)
    for architecture, template in dice.sample(found, min(len(found), SAMPLE // len([*BUILT, *REAL]))):
        counts = instructions(compiled(template, architecture).image)
        assert not any(counts[one] for one in LOCAL), (architecture, template, counts)
        assert any(counts[one] for one in TENSOR_CORE) == template.uses_tensor_cores, (architecture, template, counts)


def test_two_processes_with_other_hash_seeds_make_the_same_bytes(tmp_path: Path) -> None:
    model = tmp_path / "model.tflite"
    model.write_bytes(_content("detector"))
    programs = []
    for seed in ("1", "2"):
        cache_dir = tmp_path / f"cache{seed}"
        command = [sys.executable, "-m", "jitdelegate.warm", str(model), "--target", "cuda:sm_90", "--precision"]
        subprocess.run(
            [*command, "float16", "--serialization-dir", str(cache_dir)],
            check=True,
            env=os.environ | {"PYTHONHASHSEED": seed},
        )
        (path,) = cache_dir.glob("*.jitd")
        programs.append(path.read_bytes())
    assert programs[0] == programs[1]
