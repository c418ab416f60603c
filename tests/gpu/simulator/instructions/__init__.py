"""Every instruction the simulator knows, by family; importing this package registers them."""

from tests.gpu.simulator.instructions import (
    arithmetic,
    asynchronous,
    bits,
    cluster,
    compare,
    convert,
    dependent_launch,
    functions,
    loads_and_stores,
    moves,
    tensor_core,
    warp,
)

__all__ = [
    "arithmetic",
    "asynchronous",
    "bits",
    "cluster",
    "compare",
    "convert",
    "dependent_launch",
    "functions",
    "loads_and_stores",
    "moves",
    "tensor_core",
    "warp",
]
