"""Mathematics that all targets share: each function of `ir.expr` is written once, over a small builder of
instructions.

In reading order: `builder.py` has the protocols that a target's values and builder satisfy; `expression.py` emits a
whole expression; `functions.py` lists the functions by name; `cast.py`, `division.py`, `power.py`, `exponential.py` and
`trigonometry.py` implement them; `quantized.py` has Rescale and Table. `fourier.py` cuts Fourier transforms into
stages, `row_parts.py` finds the parts of expressions that are computed once per row.
"""
