"""What a product reads: pixels of convolutions (`indirect_gemm.py`), perhaps converted (`converted.py`), weights
(`filters.py`), and panels: constant ones, converted ones, matrices in place (`panels.py`), or packed when they are met
(`packing.py`).
"""
