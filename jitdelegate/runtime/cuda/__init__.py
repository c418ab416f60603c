"""Runs programs for CUDA through the driver alone. Read `session.py` first.

- `session.py`: `CudaSession(program, device, stream=None)`. `states.py`, `weights.py`: what sessions keep in device
  memory. `functions.py`: the kernels, loaded.
- `route.py`: which memory a run uses. `work.py`: its copies and launches; `graph.py`: these as a CUDA graph.
- `binding.py`: a caller's memory for many runs. `memory.py`: places on the GPU and in pinned memory.
- `requests.py`: runs that nobody waits for. `mark.py`: the events at their ends.
- `driver.py`, `library.py`: libcuda's functions. `context.py`: the primary context. `device.py`: finds and names a GPU.
- `architectures.py`: sizes of GPUs to compile for. `toolchain.py`: which compilers are installed.
- `profile.py`: events around kernels. `timing.py`: time of work in a stream.
"""
