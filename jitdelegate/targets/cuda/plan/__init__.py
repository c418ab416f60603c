"""The launches of a graph, and its memory. Read `plan.py` first.

`accepts.py` says what kernels can do, and `branches.py` which launches run at the same time. `narrow_weights.py` first
rewrites the graph.
"""
