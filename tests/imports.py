"""Uses of parts of the package in fresh processes that tell, or assert, what was imported for them.

This module imports nothing but `sys`, so that nothing hides what they import.
"""

import sys


def assert_none(*names: str) -> None:
    assert not {*names} & {*sys.modules}, {*names} & {*sys.modules}


def the_cache_tools(*arguments: str) -> None:
    from cache_tools.__main__ import main

    status = main(list(arguments))
    assert_none("numpy", "llvmlite", "numba", "flatbuffers")
    sys.exit(status)


def the_flatbuffer_reader() -> str:
    """What it imports but `struct`."""
    import __future__

    import struct

    before = {*sys.modules, __future__.__name__, struct.__name__}
    import jitdelegate.program.flatbuffer  # noqa: F401

    return " ".join(sorted({*sys.modules} - before))


def the_schema() -> None:
    import jitdelegate.tflite.schema  # noqa: F401

    assert_none("numpy", "flatbuffers")


def the_cpu_s_toolchain() -> None:
    from jitdelegate.targets.cpu.target import installed_toolchain

    installed_toolchain()
    assert_none("llvmlite")


def the_cuda_toolchain() -> None:
    from jitdelegate.runtime.cuda.toolchain import installed_toolchain

    assert installed_toolchain()
    assert_none("numba", "numba_cuda", "llvmlite", "cuda")


def the_load_path(cache: str) -> str:
    """What the parts import that open a program, and those of a GPU."""
    import os  # noqa: F401

    before = {*sys.modules}
    import jitdelegate.program.read
    import jitdelegate.runtime.cache.store
    import jitdelegate.runtime.cpu.session
    import jitdelegate.targets.host
    from jitdelegate.runtime.cache.key import KeyParts, model_key

    key = model_key("0", KeyParts("cpu", "", "none", "", toolchain=""))
    jitdelegate.runtime.cache.store.open_store(cache).get(key)
    jitdelegate.targets.host.level()
    import jitdelegate.runtime.cuda.device
    import jitdelegate.runtime.cuda.session
    import jitdelegate.targets.cuda.target

    return " ".join(sorted({*sys.modules} - before))


def borrowed_and_own_memory() -> None:
    import array

    from jitdelegate.program.program import Port
    from jitdelegate.runtime.buffers import borrow, tensor_class

    port = Port(name="x", index=0, shape=(2,), dtype="float32", nbytes=8)
    for value in (array.array("f", [1, 2]), bytes(8)):
        borrow(value, port)
    tensor = tensor_class("float32", (2, 2))()
    assert (tensor.tolist(), bytes(tensor), tensor.shape) and repr(tensor)
    assert_none("numpy")


def an_output() -> None:
    """Of which the first use as an array imports numpy."""
    from jitdelegate.runtime.buffers import tensor_class

    tensor = tensor_class("float32", (2, 3))()
    for use in (bytes, len, repr, memoryview):
        use(tensor)
    for name in ("__cuda_array_interface__", "__torch_function__"):
        hasattr(tensor, name)
    assert tensor.shape and tensor.tolist() and tensor.__array_interface__ and tensor.__dlpack_device__()
    assert tensor.dtype == "float32" and f"{tensor.dtype}"
    assert_none("numpy")
    tensor.mean()
    assert "numpy" in sys.modules


def a_buffer_of_the_host() -> None:
    from jitdelegate.api.tensor_buffer import TensorBuffer

    buffer = TensorBuffer.create("int8", (3,))
    assert buffer.nbytes == 3 and buffer.get_tensor_details() == {"dtype": "int8", "shape": [3]}
    buffer.destroy()
    assert_none("numpy", "ml_dtypes", "jitdelegate.runtime.dlpack")


def a_model_of_changing_shapes(path: str, cache: str) -> str:
    """The cache's outcome, and whether a compiler was imported."""
    import array

    import jitdelegate

    model = jitdelegate.load(path, serialization_dir=cache, target="cpu")
    model(bytes(96), array.array("i", [4, 6]))
    compilers = [name in sys.modules for name in ("llvmlite", "jitdelegate.compiler.compile")]
    return f"{model.report().cache.outcome} {compilers}"


def inputs_of_many_kinds(path: str, cache: str) -> None:
    """None of which leads to LiteRT."""
    import jitdelegate

    model = jitdelegate.load(path, serialization_dir=cache)
    raw = bytes(768)
    assert bytes(model(memoryview(raw))) == bytes(model(raw))

    class Odd:
        shape, dtype = 5, "float32"

    class Short:
        shape, dtype = (768,), "float32"

    for wrong in (Odd(), Short(), memoryview(raw)[4:]):
        try:
            model(wrong)
            raise SystemExit("taken")
        except jitdelegate.TensorError:
            pass
    assert not model.report().notes[1:], model.report().notes
    assert not any(name.startswith("ai_edge_litert") for name in sys.modules)
