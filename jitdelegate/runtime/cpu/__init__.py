"""Runs programs for the CPU. Read `session.py` first.

- `session.py`: `Session(program, num_threads=1)`. `workers.py`: native threads.
- `requests.py`: native threads for asynchronous runs. `request_code.py`: the machine code of their loop.
- `team_past.py`: whether workers helped in earlier processes.
- `profile.py`: time stamps of kernels.
"""
