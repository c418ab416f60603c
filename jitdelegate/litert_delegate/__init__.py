"""Our delegate inside LiteRT's own interpreter: LiteRT's C structures, read and written through ctypes alone.

- `layout.py`: where the fields of the structures lie, as data. `memory.py`: reads that cannot end the process.
- `trust.py`: `refusal(place) -> str`, "" where the installed LiteRT may be touched: its wheel is listed, or a child
  process (`probe.py`, on the model of `probe_model.py`) came through and said so; its verdict is kept in the cache.
- `context.py`: `Context`, one subgraph of LiteRT's: tensors, nodes, and what LiteRT does for a delegate.
- `check.py`: is the context what it is taken for, and is it the subgraph of the file? A `Doubt` means: claim nothing.
- `delegate_client.py`: `DelegateClient`, the model that wants to run some of its operators itself, and
  `DelegateKernel`, one partition of it. `hosted_model.py`: the client that opens compiled programs.
- `native_delegate.py`: `NativeDelegate(client)`, with the `pointer` that LiteRT takes. `delegation.py`: what it finds
  and claims in an interpreter. `kernel.py`: a partition between LiteRT's `init` and `free`.
- `callbacks.py`: the functions that LiteRT calls, one set per process. `stubs.py`: the machine code in front of them.

LiteRT's nodes of ours run what the first word of the kernel's slot names. So a compiled partition takes no Python.
"""
