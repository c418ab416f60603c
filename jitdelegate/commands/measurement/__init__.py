"""Measurements of running models, for `benchmark` and `diff`. Read `sides.py` first.

- `entry.py`: what of a model is run, with its inputs and outputs. `inputs.py`, `pictures.py`: values for the inputs.
- `sides.py`: ways to run it, ours and others. `timing.py`: runs by the clock. `statistics.py`: what to say about times.
- `starts.py`, with `process.py`, `timed_side.py` and `clock.py`: starts in fresh processes.
- `memory.py`: memory of a process.
- `profile.py`: time per kernel, with benchmark_model's tables. `trace.py`: a timeline for Perfetto.
- `difference.py`: how far outputs are apart. `bisect.py`, with `excerpt.py`: the first operator where they part.
"""
