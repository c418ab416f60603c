"""Our delegate inside LiteRT's own interpreter. It reads and writes LiteRT's C structures with ctypes only.

Read `delegate_client.py` first, then `native_delegate.py`.

- `delegate_client.py`: `DelegateClient`, a model that runs some of its operators itself, and `DelegateKernel`, one
  partition of such a model. `HostedModel` in engine/ is the client for compiled programs.
- `native_delegate.py`: `NativeDelegate(client)`, with the `pointer` for LiteRT. `delegation.py`: finds the subgraphs of
  an interpreter, and delegates nodes of each. `kernel.py`: a partition between LiteRT's `init` and `free`.
- `callbacks.py`: the functions that LiteRT calls, one set per process. `stubs.py`: machine code around them.
- `context.py`: `Context`, one subgraph of LiteRT: tensors, nodes, and functions for delegates.
- `check.py`: whether the context has the expected layout and the subgraph of the file. If not, it raises `Doubt`, and
  nothing is delegated.
- `trust.py`: `refusal(directory) -> str`, "" where the installed LiteRT may be accessed: its wheel is listed, or a
  child process (`probe.py`, on the model of `probe_model.py`) succeeded; the cache keeps its verdict.
- `memory.py`: reads that cannot end the process.

A delegated node jumps to the function in the first word of its kernel's slot, so compiled partitions need no Python.
"""
