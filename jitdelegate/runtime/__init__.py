"""Runs programs: memory, machine code, threads and the caller's buffers, with ctypes alone. Read `io_binding.py` first.

- `io_binding.py`: `IOBinding`, the base class of all sessions:
      `session.run(inputs) -> tuple of tensors`     zero copy in and out; inputs in the order of `program.inputs`
      `session.set_input(k, value)`, `session.input_memory(k)`, `session.output_memory(k)`, `session.invoke()`
                                                    the same on persistent buffers, for LiteRT's Interpreter
      `session.bind(places)`, `session.run_bound(binding)`, `session.run_async(binding)`
                                                    on a caller's memory, checked once for many runs
      `session.verify()`                            hashes the weights; `run` and `invoke` do it themselves
      `session.take_over(other)`                    takes another session's states and persistent buffers
      `session.kernel_seconds()`                    the time of each kernel of a profiled model (`profile.py`)
      `session.close()`                             stops the workers and frees the memory, on the device too
- `cpu/`, `cuda/`: sessions on a CPU and on a GPU. `partitioned_session.py`: a session for partitions, of which LiteRT
  runs some.
- `buffers.py`: `borrow(value, port) -> Borrowed` (address of a checked input, copied only if necessary),
  `tensor_class(dtype, shape)` (output tensors: buffer protocol, `.shape`, `.dtype`, `.nbytes`, `.tolist()`,
  `__array__`).
- `binding.py`: `Place`, `Binding`. `dlpack.py`, `cuda_array.py`, `element_types.py`: memory of other libraries.
  `given_outputs.py`: outputs in memory that the caller gives.
- `event.py`: `Event`. `requests.py`, `worker.py`: asynchronous runs on a Python thread.
- `memory.py`: `Memory(nbytes)`, zeroed anonymous pages; `Code`, machine code with its functions; `States(program)`,
  values that live from run to run; `Weights(program)`, verified before use; `undisturbed(file, run)` for a run on a
  mapped file. `shared_file.py`: `SharedFile`, a mapped file that others may write. `bus_guard.py`: handles SIGBUS when
  the file is truncated.
- `fallback.py`, `litert.py`: the model on LiteRT. `delegate_table.py`: how LiteRT's interpreter calls compiled code
  without Python; `litert_layout.py`: offsets of the fields of its structures.
"""
