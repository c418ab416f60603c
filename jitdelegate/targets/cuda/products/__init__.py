"""Forms that multiply, one file each; `ffma.py` and `mma.py` choose tiles of a Contract, `separable.py` finds depthwise
convolutions that are written with the 1x1 convolution behind them.
"""
