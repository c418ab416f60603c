"""The CUDA target: every kernel form as a Numba CUDA kernel, compiled without a GPU and without a driver.

Read `generate.py` first: `plan.py` decides which launches a graph takes, `compile_templates.py` compiles them. Then,
from the bottom:

- A kernel is a subclass of `Template` (`template.py`): the fields hold everything that the code depends on, and `write`
  writes the code. `sizes.py` has records of launch arguments, with named fields; `writer.py` collects launches and
  constants; `front_end.py` calls Numba, `back_end.py` calls NVVM and nvJitLink, and `template_store.py` caches the
  output of Numba and NVVM.
- `device_code.py` is the builder that kernels are written with. `element.py` loads and stores tensors. `division.py`
  and `axes.py` split indices into coordinates. `lanes.py` combines the values of several threads. `output.py` and
  `epilogue.py` are the end of a kernel, `expression.py` is its scalar mathematics.
- Contract: `narrow_weights.py` finds integers among weights, `stored_weights.py` float16 numbers and, for
  `narrow_integers.py`, int4; `contract.py` chooses the kernel. `conv_problem.py` and `pixel_gather.py` are implicit
  GEMM on the host and on the device. `ffma.py` chooses tiles for products without tensor cores, `mma.py` for those with
  them; `ffma_kernel.py` and `mma_kernel.py` (with `tensor_core.py`) are their kernels, `tile_loader.py` and
  `contract_kernel.py` hold what the two share, `ffma_tile.py` and `mma_tile.py` have tiles and costs. `gemv.py` is for
  few pixels, `split_k.py` adds up parts of K, `contract_wide.py` sums 64 bits.
- MatMul: `matmul.py` chooses the kernel; `matmul_product.py` is shared by `matmul_ffma.py`, which loads by
  `matrix_loader.py`, and `matmul_mma.py`, which loads by `line_loader.py` and `fragments.py`.
- Attention: `attention.py` finds it and chooses the kernel, `attention_problem.py` and `strides.py` say where its
  operands lie; `attention_template.py` and `attention_kernel.py` are shared by `attention_ffma.py` and
  `attention_mma.py`, and `attention_combine.py` adds up parts.
- Windows over images: `image_parts.py` and `window.py` are shared by `depthwise.py`, `pool.py` and `resize.py`.
- Tensors within others: `part_rules.py` says what kernels write and read in place, `shared_grid.py` joins launches that
  write parts of one tensor.
- Maps: `index_map.py`, `operand.py`, `map.py`, `transpose.py`, `concat.py`.
- One file per form: `reduce.py`, `softmax.py`, `scan.py`, `arg_reduce.py`, `gather.py`, `scatter.py`,
  `update.py`, `non_max_suppression.py`, `recurrent.py`, `fourier.py`.
- `gpu.py` and `cost.py` hold the limits and the estimates that kernels are chosen by.
"""
