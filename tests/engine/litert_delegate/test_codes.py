"""Subgraphs with equal tensors are distinguished by their operators."""

from __future__ import annotations

import sys

import pytest
from ai_edge_litert.interpreter import Interpreter

from jitdelegate.base.options import DelegateOptions
from jitdelegate.engine.hosted_model import HostedModel
from jitdelegate.engine.litert_delegate.delegate_client import Facts
from jitdelegate.engine.load_path import load, recompile, specialize
from jitdelegate.engine.model_file import ModelFile
from jitdelegate.errors import DelegateWarning
from jitdelegate.tflite.write import ModelBuilder

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="LiteRT's structures are known on Linux")
ADD, MUL = 0, 18


class Mistaken(HostedModel):
    """Says of the first operator what `code` says."""

    code = ADD

    def facts(self, subgraph: int) -> Facts:
        found = super().facts(subgraph)
        return Facts(found.num_tensors, found.num_nodes, found.tensors, codes=[(0, self.code)])


def sum_model() -> bytes:
    model = ModelBuilder()
    x = model.input((2, 3), name="x")
    model.output(model.op("ADD", [x, x], (2, 3), name="y"))
    return model.finish()


@pytest.mark.parametrize("code", [ADD, MUL])
def test_operators_are_compared(code: int, recwarn: pytest.WarningsRecorder) -> None:
    content = sum_model()
    client = Mistaken(
        load(ModelFile(content, DelegateOptions(serialization_dir=False)), hosted=True), specialize, recompile
    )
    client.code = code
    interpreter = Interpreter(model_content=content, experimental_delegates=[client.delegate()])
    warned = [str(each.message) for each in recwarn if each.category is DelegateWarning]
    claimed = len(interpreter._get_ops_details()) == 2  # the operator, and the delegate's node
    assert claimed == (code == ADD)
    assert any("node 0 has the code 0, expected 18" in text for text in warned) == (code == MUL)
