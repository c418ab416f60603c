"""A user's script of which some operators are not compiled: a warning shows the line that did it."""

import sys

from ai_edge_litert.interpreter import Interpreter

import jitdelegate

_, path, api = sys.argv
delegate = jitdelegate.GpuDelegate(target="cpu", serialization_dir=False, only_ops="TANH", partitioning="all")
if api == "litert":
    Interpreter(  # litert's line
        model_path=path,
        experimental_delegates=[delegate],
    )
elif api == "interpreter":
    interpreter = jitdelegate.Interpreter(path, experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    interpreter.invoke()  # interpreter's line
else:
    jitdelegate.load(path, options={"only_ops": "TANH", "partitioning": "all", "target": "cpu"})  # load's line
