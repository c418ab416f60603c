"""The code around kernels: `schedule.py` writes the entry of a graph, which gives chunks to a team of threads
(`team.py`, `futex.py`). `host_entry.py` writes the entry that LiteRT's interpreter calls. `link.py` makes one blob of
the object file. `architecture.py` finds what differs between processors: `x86_64.py`, `aarch64.py`.
"""
