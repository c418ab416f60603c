"""GpuDelegate and load_delegate: options in LiteRT's manner."""

from __future__ import annotations

import ctypes.util
import gc
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ai_edge_litert.interpreter import Delegate as LiteRTDelegate
from ai_edge_litert.interpreter import Interpreter as LiteRTInterpreter

import jitdelegate
from jitdelegate.api import interpreter
from jitdelegate.errors import LibraryError, OptionError
from tests.api import small_models


def test_a_delegate_carries_options_to_the_interpreter(tmp_path: Path) -> None:
    delegate = jitdelegate.GpuDelegate(
        serialization_dir=tmp_path / "here", model_token="net", num_threads=1, cpu_features="generic"
    )
    carried = jitdelegate.Interpreter(model_content=small_models.convolution(), experimental_delegates=[delegate])
    report = carried.report()
    assert report.cache.path.startswith(str(tmp_path / "here" / "net-"))
    assert (report.threads, report.features) == (1, "generic")


def test_load_delegate_takes_strings(tmp_path: Path) -> None:
    delegate = jitdelegate.load_delegate(
        "jitdelegate", {"serialization_dir": tmp_path, "num_threads": "3", "model_token": "None", "target": "cpu"}
    )
    options = delegate.options
    assert (options.serialization_dir, options.num_threads, options.model_token) == (str(tmp_path), 3, None)
    assert jitdelegate.load_delegate("jitdelegate", {"serialization_dir": "False"}).options.serialization_dir is False
    assert jitdelegate.load_delegate("jitdelegate", {"serialization_dir": "false"}).options.serialization_dir is False


@pytest.mark.parametrize(
    ("options", "precision"),
    [
        ({}, "float32"),
        ({"is_precision_loss_allowed": "1"}, "float16"),
        ({"is_precision_loss_allowed": True}, "float16"),
        ({"is_precision_loss_allowed": 0}, "float32"),
        ({"is_precision_loss_allowed": "False"}, "float32"),
        ({"is_precision_loss_allowed": "-1", "inference_priority1": "2"}, "float16"),
        ({"is_precision_loss_allowed": 0, "inference_priority1": 2}, "float32"),
        ({"inference_priority1": "MIN_MEMORY_USAGE"}, "float16"),
        ({"is_precision_loss_allowed": 1, "precision": "tf32"}, "tf32"),
        ({"is_precision_loss_allowed": 1, "precision": None}, "float16"),
        ({"precision": "bfloat16"}, "bfloat16"),
    ],
)
def test_the_precision_is_the_one_given_or_what_the_allowed_loss_means(
    options: dict[str, object], precision: str
) -> None:
    assert jitdelegate.load_delegate("jitdelegate", options).options.precision == precision


def test_a_delegate_carries_device_stream_and_precision_to_the_interpreter() -> None:
    given = {"device": "3", "stream": str((1 << 64) - 1), "is_precision_loss_allowed": 1}
    options = jitdelegate.load_delegate("jitdelegate", given).options
    copied = type(options).from_mapping({name: getattr(options, name) for name in options.__slots__})
    assert (copied.device, copied.stream, copied.precision) == (3, (1 << 64) - 1, "float16")
    assert jitdelegate.load_delegate("jitdelegate", {"stream": "None"}).options.stream is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("device", "-1"),
        ("device", "1024"),
        ("stream", "mine"),
        ("is_precision_loss_allowed", "2"),
        ("precision", "half"),
    ],
)
def test_texts_that_are_no_value_of_a_gpu_option_are_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=f"{name} is '{value}'"):
        jitdelegate.load_delegate("jitdelegate", {name: value})


def test_a_delegate_carries_partitions_and_priorities_to_the_interpreter() -> None:
    strings = {"max_delegated_partitions": 2, "only_ops": ["CONV_2D", "ADD"], "require_full_delegation": True}
    delegate = jitdelegate.load_delegate("jitdelegate", {**strings, "inference_priority1": 3, "device": "H100"})
    keywords = {**strings, "inference_priority1": 3, "device": "H100"}
    assert repr(jitdelegate.GpuDelegate(**keywords).options) == repr(delegate.options)
    options, foreign = interpreter._split_delegates([delegate], None)
    assert foreign == []
    assert repr(options) == repr(delegate.options)


def test_unknown_options_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="unknown option speed"):
        jitdelegate.load_delegate("jitdelegate", {"speed": "1"})
    with pytest.raises(OptionError, match="unknown option speed"):
        jitdelegate.GpuDelegate(speed=1)


@pytest.mark.parametrize("value", ["many", "-1", "0", "65", "9" * 5000])
def test_texts_that_are_no_value_are_refused(value: str) -> None:
    with pytest.raises(OptionError, match="num_threads"):
        jitdelegate.load_delegate("jitdelegate", {"num_threads": value})


def test_what_has_no_names_is_no_options() -> None:
    with pytest.raises(OptionError, match="expected a mapping"):
        jitdelegate.load_delegate("jitdelegate", ["speed"])  # type: ignore[arg-type]


VENDOR = r"""
#include <string.h>
typedef void (*Report)(const char *);
static int prepared;
static int prepare(void *context, void *delegate) { return prepared++, 0; }
static struct { void *data; int (*prepare)(void *, void *); void *others[3]; long flags; void *builder; } made;
void *tflite_plugin_create_delegate(char **names, char **values, size_t count, Report report) {
    made.prepare = prepare;
    if (count == 1 && !strcmp(names[0], "speed") && !strcmp(values[0], "9")) return &made;
    report("speed has to be 9");
    return 0;
}
void tflite_plugin_destroy_delegate(void *delegate) {}
int prepared_times(void) { return prepared; }
"""


@pytest.fixture(scope="module")
def vendor_library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A delegate library that takes no operators."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("vendor")
    (folder / "vendor.c").write_text(VENDOR)
    library = str(folder / "libvendor.so")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, str(folder / "vendor.c")], check=True)
    return library


def test_another_vendor_s_library_is_passed_on_to_litert(vendor_library: str) -> None:
    delegate = jitdelegate.load_delegate(library=vendor_library, options={"speed": 9})
    assert type(delegate) is LiteRTDelegate
    counter, content = ctypes.CDLL(vendor_library), small_models.convolution()
    interpreter = jitdelegate.Interpreter(model_content=content, experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    assert counter.prepared_times() == 1
    assert interpreter.report().target == "litert"


def test_what_another_vendor_s_library_refuses_is_an_error_with_its_words(vendor_library: str) -> None:
    with pytest.raises(LibraryError, match=r"Failed to load delegate from .*libvendor\.so\nspeed has to be 9"):
        jitdelegate.load_delegate(vendor_library, {"speed": 8})
    with pytest.raises(OptionError, match="only jitdelegate reads files"):
        jitdelegate.load_delegate(vendor_library, "options.json")


def test_a_library_that_does_not_exist_is_an_os_error(monkeypatch: pytest.MonkeyPatch) -> None:
    complaints: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    for kind in (OSError, OptionError, LibraryError):
        with pytest.raises(kind, match=r"libnowhere\.so\.1: cannot open shared object file"):
            jitdelegate.load_delegate("libnowhere.so.1")
    gc.collect()
    assert not complaints


def test_a_library_without_a_delegate_is_an_os_error(monkeypatch: pytest.MonkeyPatch) -> None:
    complaints: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    library = ctypes.util.find_library("c")
    assert library is not None
    with pytest.raises(LibraryError, match="undefined symbol: tflite_plugin_create_delegate"):
        jitdelegate.load_delegate(library)
    gc.collect()
    assert not complaints


def test_two_of_our_delegates_are_one_too_many() -> None:
    two = [jitdelegate.GpuDelegate(), jitdelegate.GpuDelegate()]
    with pytest.raises(OptionError, match="2 GpuDelegates"):
        jitdelegate.Interpreter(model_content=small_models.convolution(), experimental_delegates=two)


@pytest.mark.skipif(sys.platform != "linux", reason="LiteRT's interpreter takes the delegate on Linux")
@pytest.mark.parametrize(("own", "litert", "expected"), [(None, 2, 2), (1, 2, 1), (3, None, 3)])
def test_an_interpreter_s_threads_count_where_the_delegate_names_none(
    own: int | None, litert: int | None, expected: int
) -> None:
    delegate = jitdelegate.GpuDelegate(serialization_dir=False, target="cpu", num_threads=own)
    content = small_models.convolution()
    LiteRTInterpreter(model_content=content, num_threads=litert, experimental_delegates=[delegate]).allocate_tensors()
    report = delegate.report()
    assert report is not None
    assert report.threads == expected


class _AsksWithin:
    """A constructor of LiteRT's kind that asks for its delegates in a comprehension."""

    def __init__(
        self,
        model_path: str | None = None,
        model_content: bytes | None = None,
        experimental_delegates: tuple[jitdelegate.GpuDelegate, ...] = (),
        num_threads: int | None = None,
    ) -> None:
        self.pointers = [delegate._get_native_delegate_pointer() for delegate in experimental_delegates]


def test_the_model_is_found_however_deep_the_constructor_asks(tmp_path: Path) -> None:
    delegate = jitdelegate.GpuDelegate(serialization_dir=False, target="cpu")
    interpreter = _AsksWithin(model_content=small_models.convolution(), experimental_delegates=(delegate,))
    report = delegate.report()
    assert interpreter.pointers[0] and report is not None and report.fully_delegated


def test_a_delegate_stays_out_where_nothing_tells_the_model() -> None:
    delegate = jitdelegate.GpuDelegate(serialization_dir=False)
    with pytest.warns(jitdelegate.DelegateWarning, match="was not made from model_path or model_content"):
        delegate._get_native_delegate_pointer()
    assert delegate.report() is None
