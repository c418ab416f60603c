"""Measurements of running models, for `benchmark` and `diff`. Read `sides.py` first.

- `entry.py`: the signature of a model that is run, with its inputs and outputs. `inputs.py`, `pictures.py`: values for
  the inputs.
- `side.py`, `sides.py`, `other_runtimes.py`: the runtimes that are compared, ours and others. `timing.py`: timed runs.
  `statistics.py`: percentiles and means of times.
- `starts.py`, with `process.py` and `timed_side.py`: starts in fresh processes.
- `own_process.py`: time and memory of a process.
- `profile.py`: time per kernel, with benchmark_model's tables. `trace.py`: a timeline for Perfetto.
- `column.py`: tables that are printed row by row. `svg.py`: pictures.
- `machine_speed.py`, with `machine_loops.py`: how fast the machine multiplies and reads.
- `difference.py`: the difference of outputs. `bisect.py`: the first operator whose results differ.
"""
