"""Real models run wholly on the CPU target and agree with LiteRT's builtin kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT
from ai_edge_litert.interpreter import OpResolverType
from skimage.data import astronaut
from skimage.transform import resize

import jitdelegate
from jitdelegate.commands.measurement.difference import nrmse

FLOAT, HALF = 1e-5, 1e-4
"""Bounds on the NRMSE, for float32 weights and for fp16 ones."""
MODELS = {
    "derived/mobilenet_v1_1.0_224_f32": FLOAT,
    "derived/posenet_mobilenet_v1_100_257_f32": FLOAT,
    "real/deeplabv3_257_mv_gpu": FLOAT,
    "real/pretrainedResnet": FLOAT,
    "real/pretrainedResnet_large_float": FLOAT,
    "real/vww_96_float": FLOAT,
    "real/prisma-net": FLOAT,
    "real/face_detection_short_range": HALF,
    "real/palm_detection_lite": HALF,
    "real/palm_detection_full": HALF,
    "real/hand_landmark_lite": HALF,
    "real/face_landmark": HALF,
    "real/iris_landmark": FLOAT,
    "real/toycar": FLOAT,
    "real/keyword_spotting_alexa.float32": FLOAT,
}


def litert(path: Path, value: np.ndarray) -> list[np.ndarray]:
    kernels = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = LiteRT(str(path), experimental_op_resolver_type=kernels)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def values(shape: tuple[int, ...]) -> list[np.ndarray]:
    """Random values, and a picture where the shape is that of one."""
    found = [np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)]
    if len(shape) == 4 and shape[3] == 3:
        found.append((2 * resize(astronaut(), shape[1:3], anti_aliasing=True)[None] - 1).astype(np.float32))
    return found


@pytest.mark.parametrize(("name", "bound"), MODELS.items(), ids=MODELS)
def test_a_real_model_is_compiled_whole_and_agrees_with_litert(models: Path, name: str, bound: float) -> None:
    path = models / f"{name}.tflite"
    with jitdelegate.load(path, serialization_dir=False, num_threads=2) as model:
        assert model.report().fully_delegated
        for value in values(model.inputs[0].shape):
            outputs = model(value)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            for found, expected in zip(outputs, litert(path, value), strict=True):
                assert found.shape == expected.shape
                assert nrmse(np.asarray(found, np.float64), expected.astype(np.float64)) <= bound
