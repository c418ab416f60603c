"""Runs programs for the CPU. Read `session.py` first.

- `session.py`: `Session(program, num_threads=1)`. `workers.py`: native threads.
- `requests.py`: native threads for runs that nobody waits for. `request_code.py`: their loop in machine code.
- `profile.py`: time stamps of kernels.
"""
