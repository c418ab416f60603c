"""Our delegate inside LiteRT's own interpreter: LiteRT's C structures, read and written through ctypes alone.

Read `delegate_client.py` first, then `native_delegate.py`.

- `delegate_client.py`: `DelegateClient`, a model that runs some of its operators itself, and `DelegateKernel`, one
  partition of it. `HostedModel` in engine/ is the client with compiled programs.
- `native_delegate.py`: `NativeDelegate(client)`, with the `pointer` for LiteRT. `delegation.py`: which subgraphs it
  finds in an interpreter, and what it delegates there. `kernel.py`: a partition between LiteRT's `init` and `free`.
- `callbacks.py`: the functions that LiteRT calls, one set per process. `stubs.py`: machine code around them.
- `context.py`: `Context`, one subgraph of LiteRT: tensors, nodes, and functions for delegates.
- `check.py`: whether the context has the expected layout and the subgraph of the file. A `Doubt`: delegate nothing.
- `trust.py`: `refusal(place) -> str`, "" where the installed LiteRT may be accessed: its wheel is listed, or a child
  process (`probe.py`, on the model of `probe_model.py`) succeeded; the cache keeps its verdict.
- `memory.py`: reads that cannot end the process.

A delegated node jumps to the function in the first word of its kernel's slot, so compiled partitions need no Python.
"""
