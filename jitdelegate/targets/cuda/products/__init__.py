"""Forms that multiply, one file each. `ffma.py` and `mma.py` have the templates of a Contract; `separable.py` fuses
depthwise convolutions with the 1x1 convolution after them.
"""
