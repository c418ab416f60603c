"""The code around kernels: `schedule.py` writes the entry of a graph, which gives chunks to a team of threads
(`team.py`, `futex.py`), `host_entry.py` the one that LiteRT's interpreter calls, and `link.py` makes one blob of
the object file.
"""
