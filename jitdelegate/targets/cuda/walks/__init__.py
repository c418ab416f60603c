"""Kernels of products: the loops over their tiles.

- Contract: `contract_kernel.py` is shared by `ffma_kernel.py` and `mma_kernel.py`; `gemv.py` is for few pixels,
  `split_k.py` adds up parts of K, `contract_wide.py` multiplies integers without tensor cores.
- MatMul: `matmul_product.py` is shared by `matmul_ffma.py` and `matmul_mma.py`.
- Attention: `attention_template.py` and `attention_kernel.py` are shared by `attention_ffma.py` and
  `attention_mma.py`; `attention_combine.py` adds up parts.
- Windows over images: `window.py`, `depthwise_kernel.py`; `separable_kernel.py` has a 1x1 product after them.
"""
