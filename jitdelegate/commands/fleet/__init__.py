"""Jobs of `warm` in several processes, on this machine or on a cluster. Read `jobs.py` first.

- `jobs.py`: runs jobs on workers, and gives their outcomes as they end.
- `processes.py`: workers on this machine. `memory.py`: how many of them its memory allows.
- `clusters.py`: workers of Dask and of Ray.
- `parcel.py`: a model's bytes on their way to a worker of a cluster, and the entries on their way back.
"""
