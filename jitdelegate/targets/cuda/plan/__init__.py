"""The launches of a graph, and its memory. Read `plan.py` first.

`accepts.py` says what kernels can do, `branches.py` what runs side by side. `narrow_weights.py` changes the graph
before.
"""
