"""Sentences of the runs that a program refuses, numbered for its kernels."""

from __future__ import annotations

from jitdelegate.errors import CompileError
from jitdelegate.ir.graph import Node
from jitdelegate.program.program import MOST_REFUSALS


def sentence(node: Node, words: str) -> str:
    """What a run says that the node refuses; {} stands for the value that it found."""
    return f"{words} (operator {min(node.origin, default=0)}, {node.op})"


class Refusals:
    """The refusals of one program.

    Attributes:
        sentences: as in the program; refusal number n is sentence n - 1.
    """

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def number(self, node: Node, words: str) -> int:
        """The number of a node's refusal, which has these words.

        Raises:
            CompileError: the program has as many as status words can tell apart.
        """
        text = sentence(node, words)
        if text not in self.sentences:
            if len(self.sentences) == MOST_REFUSALS:
                raise CompileError(f"{node.op}: operators that may refuse values are more than {MOST_REFUSALS}.")
            self.sentences.append(text)
        return 1 + self.sentences.index(text)
