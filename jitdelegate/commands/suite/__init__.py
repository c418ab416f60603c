"""Measurements of a folder of models, for `benchmark --suite`. Read `jobs.py` first.

- `jobs.py`: measures each model in a process of its own, `job.py`, which survives a runtime that crashes.
- `machine_state.py`: the loop that tells whether the machine is as fast as before, and the CPU time of others.
- `kernel_work.py`: multiply-adds and bytes of each kernel. `figures.py`: the figures of a row, with shares of the
  machine's speed. `disturbance.py`: which rows a disturbed machine has spoilt.
- `report.py`: what is printed. `plot.py`: a picture of the ratios.
"""
