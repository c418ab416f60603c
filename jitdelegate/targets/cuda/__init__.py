"""The CUDA target: every kernel form as a Numba CUDA kernel, compiled without a GPU and without a driver.

Read `generate.py` first: `plan.py` decides which launches a graph takes, `compile_templates.py` makes their code. Then,
from the bottom:

- A kernel is a `template.py`: its fields are all that its code depends on, its `write` writes the code. `sizes.py` has
  the records of what a launch says by name; `writer.py` collects launches and constants; `front_end.py` is Numba,
  `back_end.py` NVVM and nvJitLink, `template_store.py` what is kept of the first.
- `device_code.py` is the builder that kernels are written with, `element.py` how tensors are stored, `division.py` and
  `axes.py` how indices are taken apart, `lanes.py` how threads combine what they found, `output.py` and `epilogue.py`
  the end of a kernel.
- Contract: `contract.py` chooses. `conv_problem.py` and `pixel_gather.py` are implicit GEMM on the host and on the
  device, `tile_loader.py` and `contract_kernel.py` what both multiplications share: `ffma.py` without tensor cores,
  `mma.py` (`tensor_core.py`) with them; their tiles and costs are in `ffma_tile.py` and `mma_tile.py`. `gemv.py` is for
  few pixels, `split_k.py` adds up parts of K.
- MatMul: `matmul.py` chooses; `matmul_product.py` and `matrix_loader.py` are shared by `matmul_ffma.py` and
  `matmul_mma.py`.
- Windows over images: `image_parts.py` and `window.py` are shared by `depthwise.py`, `pool.py` and `resize.py`.
- Maps: `index_map.py`, `operand.py`, `map.py`, `transpose.py`, `concat.py`.
- One file a form: `reduce.py`, `softmax.py`, `scan.py`, `arg_reduce.py`, `gather.py`, `scatter.py`,
  `non_max_suppression.py`, `recurrent.py`.
- `gpu.py` and `cost.py` are what kernels are chosen by.
"""
