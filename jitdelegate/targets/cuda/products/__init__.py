"""Forms that multiply, one file each. `tiled.py` writes a Contract with tiles in shared memory, for which `ffma.py` and
`mma.py` have the templates; `separable.py` finds depthwise convolutions that are written with the 1x1 convolution
behind them.
"""
