"""Runs programs for the CPU. Read `session.py` first.

- `session.py`: `Session(program, num_threads=1)`. `workers.py`: native threads.
- `requests.py`: native threads for asynchronous runs. `request_code.py`: the machine code of their loop.
- `profile.py`: time stamps of kernels.
"""
