"""Runs a read program: memory, machine code, threads and the caller's buffers, with nothing but ctypes.

- `cpu_features.py`: `level() -> "x86-64-v4" | "x86-64-v3" | "generic"`.
- `buffers.py`: `borrow(value, port) -> Borrowed` (address of a checked input, no copy where none is needed),
  `tensor_class(dtype, shape)` (output tensors: buffer protocol, `.shape`, `.dtype`, `.nbytes`, `.tolist()`,
  `__array__`).
- `arena.py`: `Memory(nbytes)`, zeroed anonymous pages. `cpu.py`: `load(program) -> Code` (`run`, `work`, `stop`).
- `session.py`: `Session(program, num_threads=1)`
      `session.run(inputs) -> tuple of tensors`     zero copy in and out; inputs in the order of `program.inputs`
      `session.set_input(k, value)`, `session.input_memory(k)`, `session.output_memory(k)`, `session.invoke()`
                                                    the same on persistent buffers, for LiteRT's Interpreter
      `session.verify()`                            hashes the weights once; `run` and `invoke` do it themselves
      `session.close()`                             ends the workers and frees the memory
"""
