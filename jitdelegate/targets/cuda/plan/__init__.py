"""The launches of a graph, and its memory. Read `plan.py` first.

`part_rules.py` says what kernels write and read in place, `branches.py` what runs side by side; `narrow_weights.py`
changes the graph before.
"""
