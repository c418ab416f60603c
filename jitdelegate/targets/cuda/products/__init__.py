"""Forms that multiply, one file each; `ffma.py` and `mma.py` choose tiles of a Contract, `separable.py` and
`inverted.py` find depthwise convolutions that are written with the products beside them.
"""
