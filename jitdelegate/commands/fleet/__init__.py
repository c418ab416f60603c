"""Jobs of `warm` in several processes. Read `jobs.py` first.

- `jobs.py`: runs jobs on workers, and gives their outcomes as they end.
- `processes.py`: workers on this machine. `memory.py`: how many of them its memory allows.
"""
