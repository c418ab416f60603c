"""What `python -m jitdelegate.<command>` does; each command is one file with a `main`.

- `warm.py`: compiles models into the cache. `analyze.py`: says what runs where and why.
- `demo.py`: a cold and a warm start, with `demo_model.py` and `timed_start.py`.
- `replay.py`: runs kernels of a dump alone.
"""
