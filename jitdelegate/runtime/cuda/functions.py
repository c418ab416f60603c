"""The kernels of a program as functions of the driver."""

from __future__ import annotations

from jitdelegate.errors import DeviceError
from jitdelegate.runtime.buffers import Borrowed
from jitdelegate.runtime.cuda.driver import StickyError, dotted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from jitdelegate.program.program import Program
    from jitdelegate.runtime.cuda.driver import Driver

    Own = Callable[[Any, Callable[[Any], None]], Any]


def load_functions(program: Program, driver: Driver, own: Own) -> list[int]:
    """The function of every entry; entries that share a binary share its module.

    Args:
        own: takes a handle and the function that releases it.
    Raises:
        DeviceError: the driver refuses a binary.
    """
    modules: dict[int, int] = {}
    image = Borrowed(program.code)
    functions = []
    for name, offset in program.entries:
        if offset not in modules:
            modules[offset] = own(_load_module(program, driver, image.address + offset), driver.unload_module)
        functions.append(driver.function(modules[offset], name))
    for function, nbytes in _shared_bytes(program, functions).items():
        driver.allow_shared_bytes(function, nbytes)
    return functions


def _load_module(program: Program, driver: Driver, image: int) -> int:
    try:
        return driver.load_module(image)
    except StickyError:  # it may be of any work before
        raise
    except DeviceError as error:
        raise type(error)(
            f"the driver, which speaks CUDA {dotted(driver.version)}, refuses a kernel for {program.features}: {error}"
        ) from error


def _shared_bytes(program: Program, functions: Sequence[int]) -> dict[int, int]:
    """The most dynamic shared memory that each function is launched with, if any.

    The default limit counts static memory too, so every function with dynamic memory requests a higher limit.
    """
    most: dict[int, int] = {}
    for launch in program.launches:
        if launch.shared_bytes:
            function = functions[launch.kernel]
            most[function] = max(launch.shared_bytes, most.get(function, 0))
    return most
