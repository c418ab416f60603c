"""The CUDA target: every kernel form as a Numba CUDA kernel, compiled without a GPU and without a driver.

Read `generate.py` first: `plan/` decides the launches of a graph, `compile/` compiles them, `tuning.py` (with
`stopwatch.py`) measures candidates on a GPU. The rooms, from the bottom:

- `code/` has the parts that kernels are written with: a kernel is a subclass of `Template`, whose fields hold
  everything that the code depends on, and whose `write` writes the code.
- `multiply/` has products of tiles, with and without tensor cores. `sources/` has their operands and the loads into
  shared memory. `walks/` has the kernels around them.
- `products/` has forms that multiply: each chooses a multiply, a tile and a walk by cost. `forms/` has the other forms.
"""
