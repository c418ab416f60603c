"""Programs for `ai_edge_litert`, as its documentation writes them.

`tests/api/test_litert_programs.py` runs each as it is, and with jitdelegate in its import lines. A program runs in a
folder with its models, and leaves its results in `outputs`.
"""
