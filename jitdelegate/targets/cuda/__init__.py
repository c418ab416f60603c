"""The CUDA target: every kernel form as a Numba CUDA kernel, compiled without a GPU and without a driver.

Read `generate.py` first: `plan/` decides which launches a graph takes, `compile/` compiles them, `tuning.py` (with
`stopwatch.py`) measures candidates on a GPU. The rooms, from the bottom:

- `code/` is what kernels are written with: a kernel is a subclass of `Template`, whose fields hold everything that the
  code depends on, and whose `write` writes the code.
- `multiply/` has products of tiles, with and without tensor cores, `sources/` what these read and how it gets into
  shared memory, `walks/` the kernels around them.
- `products/` has forms that multiply: one chooses multiply, tile and walk by cost. `forms/` has the other forms.
"""
