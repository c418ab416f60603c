"""The launches of a graph, and its memory. Read `plan.py` first.

`part_rules.py` says what kernels write and read in place, `branches.py` what runs side by side, `shared_grid.py` joins
launches that write parts of one tensor; `narrow_weights.py` changes the graph before.
"""
