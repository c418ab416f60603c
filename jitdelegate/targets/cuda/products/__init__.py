"""Forms that multiply, one file each. `ffma.py` and `mma.py` have the templates of a Contract; `separable.py` fuses
depthwise convolutions with the 1x1 convolution after them, `cell.py` few rows with the work on slices of their product.
"""
