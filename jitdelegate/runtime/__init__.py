"""Runs a read program: memory, machine code, threads and the caller's buffers, with nothing but ctypes.

- `cpu_features.py`: `level() -> "x86-64-v4" | "x86-64-v3" | "generic"`.
- `buffers.py`: `borrow(value, port) -> Borrowed` (address of a checked input, no copy where none is needed),
  `tensor_class(dtype, shape)` (output tensors: buffer protocol, `.shape`, `.dtype`, `.nbytes`, `.tolist()`,
  `__array__`).
- `arena.py`: `Memory(nbytes)`, zeroed anonymous pages. `cpu.py`: `load(program) -> Code` (`run`, `work`, `stop`).
- `weights.py`: `Weights(program)`, verified before they are computed with; `undisturbed(file, run)` for a run that
  reads a file others may write. `shared_file.py`: `SharedFile`, such a file, mapped. `bus_guard.py`: what saves the
  process where it is cut off.
- `staging.py`: what both kinds of sessions are to their caller. `session.py`: `Session(program, num_threads=1)` on the
  CPU. `cuda_session.py`: `CudaSession(program, device, stream=None)`.
      `session.run(inputs) -> tuple of tensors`     zero copy in and out; inputs in the order of `program.inputs`
      `session.set_input(k, value)`, `session.input_memory(k)`, `session.output_memory(k)`, `session.invoke()`
                                                    the same on persistent buffers, for LiteRT's Interpreter
      `session.verify()`                            hashes the weights; `run` and `invoke` do it themselves
      `session.take_over(other)`                    goes on with another one's states and persistent buffers
      `session.kernel_seconds()`                    the time of each kernel, where it is profiled (`profile.py`)
      `session.close()`                             ends the workers and frees the memory, on the device too
- `partitioned_session.py`: the same for a program in partitions, some of them LiteRT's. `delegate_table.py`: how
  LiteRT's interpreter calls compiled code without Python; `litert_layout.py`: where its structures' fields lie.
- `cuda_library.py`: `open_library()`, libcuda or a DeviceError. `cuda_driver.py`: its functions. `cuda_device.py`:
  `find_device(library, wanted) -> Device` (`name`, `architecture`). `cuda_weights.py`: weights shared on a device.
"""
