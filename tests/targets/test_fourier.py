"""Fourier transforms: accuracy, stages, kernels."""

from __future__ import annotations

import numpy as np
import pytest

from jitdelegate import passes
from jitdelegate.ir.graph import Graph
from jitdelegate.ops import OPS
from jitdelegate.ops.case import Case, ints
from jitdelegate.passes.lower import lower
from jitdelegate.targets.maths.fourier import small_transform, stages
from tests.ops.litert import answers
from tests.passes.graphs import Builder
from tests.targets.execute import execute
from tests.targets.levels import RUNNABLE


@pytest.mark.parametrize("length", [8, 64, 256, 512, 1024, 2048, 4096, 8192])
@pytest.mark.parametrize("features", RUNNABLE)
def test_a_transform_on_the_cpu_is_as_exact_as_litert_s(features: str, length: int) -> None:
    graph = Case(((4, 1, length), ints(1, length))).graph(OPS["RFFT2D"])
    signal = np.random.default_rng(length).normal(size=(4, 1, length)).astype(np.float32)
    exact = np.fft.rfft(signal.astype(np.float64))
    (found,), (other,) = execute(lower(graph), [signal], features), answers(graph, [signal])
    assert np.abs(found - exact).max() <= 1.01 * np.abs(other - exact).max()


@pytest.mark.parametrize("count", [4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096])
@pytest.mark.parametrize("first", [1, 2, 4, 8])
def test_stages_make_up_the_transform(count: int, first: int) -> None:
    if first * first > count:
        pytest.skip("the first stage would have too few groups")
    real, imaginary = np.random.default_rng(count).normal(size=(2, count))
    found = values = real + 1j * imaginary
    for stage in stages(count, first):
        before = found.reshape(stage.radix, stage.groups, stage.stride)
        pairs = small_transform([(each.real, each.imag) for each in before])
        after = np.stack([real + 1j * imaginary for real, imaginary in pairs])
        after[1:] *= stage.twiddles().T[:, :, None]
        found = after.swapaxes(0, 1).ravel()
    np.testing.assert_allclose(found, np.fft.fft(values), atol=1e-12 * count)
    assert first == 1 or stages(count, first)[0].radix == first


def spectrogram(rows: int, length: int) -> Graph:
    """Logarithms of magnitudes of frequencies, as converters write them: with an axis of size 1 that goes again."""
    build = Builder()
    shape = (rows, length // 2 + 1)
    found = build.op("RFFT2D", [build.input(rows, 1, length), build.constant([1, length], "int32")], (), "complex64")
    flat = build.op("RESHAPE", [found, build.constant(shape, "int32")], shape, "complex64")
    magnitudes = build.op("COMPLEX_ABS", [flat], shape)
    return passes.run(build.finish(build.op("LOG", [magnitudes], shape)))


def test_magnitudes_are_one_kernel_after_the_transform() -> None:
    forms = [type(node.form).__name__ for node in spectrogram(6, 64).nodes]
    assert [name for name in forms if name != "View"] == ["Fourier", "Map"]


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_gpus_keep_frequencies_in_float32(precision: str) -> None:
    """The largest magnitude is above float16's range, its logarithm is not."""
    cuda = pytest.importorskip("tests.targets.cuda_execute")
    graph = spectrogram(3, 256)
    signal = 1000 + np.random.default_rng(0).normal(size=(3, 1, 256)).astype(np.float32)
    expected = np.log(np.abs(np.fft.rfft(signal[:, 0].astype(np.float64))))
    (found,) = cuda.run(graph, [signal], precision=precision)
    assert expected.max() > np.log(65504)
    np.testing.assert_allclose(found, expected, atol=2e-3 if precision == "float32" else 1e-2)


def test_kernels_for_gpus_compile_without_spills() -> None:
    cuda = pytest.importorskip("tests.targets.cuda_execute")
    for length in (8, 512, 2048, 8192):
        cuda.assert_compiles_everywhere(cuda.templates_of(spectrogram(2, length)))
