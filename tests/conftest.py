"""What tests share: where real models and LiteRT's op tests are, which are not part of the repository, a GPU that is
made up, and what no test may leave to another."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # few tests need these
    from tests.gpu.stub.compiler import Compiler
    from tests.gpu.stub.library import Library

SHARED = Path(__file__).resolve().parents[2] / "shared"
KEPT_OBJECTS = 256
"""Compiled texts of kernels, some 0.1 MB each."""


def pytest_configure() -> None:
    """A shell's job in the background ignores SIGINT, and so would all children that tests interrupt."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def models_dir() -> Path:
    """The folder of real models: JITDELEGATE_TEST_MODELS, or `shared/models` beside the checkout.

    Skips the test, with the reason, where there is none.
    """
    return _folder("real models", "JITDELEGATE_TEST_MODELS", SHARED / "models")


def real_model(name: str) -> Path:
    """A file in the folder of real models, by its path without the suffix; skips the test where it is not there."""
    path = models_dir() / f"{name}.tflite"
    if not path.exists():
        pytest.skip(f"{path.name} is not there")
    return path


def op_tests_dir() -> Path:
    """The folder of LiteRT's op tests: JITDELEGATE_OP_TESTS, or `shared/op_tests` beside the checkout.

    Skips the test, with the reason, where there is none.
    """
    return _folder("op tests", "JITDELEGATE_OP_TESTS", SHARED / "op_tests")


def _folder(content: str, variable: str, default: Path) -> Path:
    folder = Path(os.environ.get(variable, default))
    if not folder.is_dir():
        pytest.skip(f"no {content}: {folder} is not a folder ({variable} names another)")
    return folder


@pytest.fixture
def models() -> Path:
    """The folder of real models."""
    return models_dir()


@pytest.fixture
def op_tests() -> Path:
    """The folder of LiteRT's op tests."""
    return op_tests_dir()


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    """Stands in for the compiler of CUDA programs."""
    from tests.gpu.stub.compiler import install_compiler

    return install_compiler(monkeypatch)


@pytest.fixture
def driver() -> Library:
    """The driver of a machine with one GPU, for tests that hand it over."""
    from tests.gpu.stub.programs import library

    return library()


@pytest.fixture
def gpu(driver: Library, monkeypatch: pytest.MonkeyPatch) -> Library:
    """The driver of a machine with one GPU, which is found."""
    from tests.gpu.stub.install import install

    return install(monkeypatch, driver)


@pytest.fixture
def model(tmp_path: Path) -> str:
    """The file of a small model."""
    from tests.api import small_models

    path = tmp_path / "model.tflite"
    path.write_bytes(small_models.convolution())
    return str(path)


@pytest.fixture(scope="session")
def cache_homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Paths of folders that are not there yet, one for each test: few tests need theirs, and making one takes time."""
    folder = tmp_path_factory.mktemp("cache-homes")
    return (str(folder / f"{number}") for number in count())


@pytest.fixture(scope="session", autouse=True)
def code_compiled_once() -> Iterator[None]:
    """Many tests compile equal models, and most of that time is LLVM's, which gives equal bytes for equal text."""
    from jitdelegate.targets.cpu import generate

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generate, "compile_object", lru_cache(KEPT_OBJECTS)(generate.compile_object))
        yield


@pytest.fixture(autouse=True)
def private_cache(cache_homes: Iterator[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's cache, or reads a prebuilt folder of the environment's."""
    monkeypatch.setenv("XDG_CACHE_HOME", next(cache_homes))
    monkeypatch.delenv("JITDELEGATE_PREBUILT", raising=False)


@pytest.fixture(autouse=True)
def own_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test finds the GPU contexts that another one's process would keep."""
    monkeypatch.setattr("jitdelegate.runtime.cuda.context._held", {})
