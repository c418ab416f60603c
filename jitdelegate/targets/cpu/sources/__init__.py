"""What a product reads: pixels of convolutions (`indirect_gemm.py`), panels of weights that are packed when the model
is compiled (`panels.py`), and those of computed matrices (`matmul_pack.py`).
"""
