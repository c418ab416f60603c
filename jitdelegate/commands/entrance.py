"""python -m jitdelegate lists the commands; python -m jitdelegate.<command> runs one, which Ctrl-C may end."""

from __future__ import annotations

import sys
from importlib import import_module

import jitdelegate

INTERRUPTED = 128 + 2
"""Exit status of a command that SIGINT ended, as shells give it."""
COMMANDS = {
    "jitdelegate.warm MODEL...": "compile models into the cache ahead of their first use",
    "jitdelegate.analyze MODEL...": "where each operator of a model would run, why, and what to change",
    "jitdelegate.benchmark MODEL": "time a model as LiteRT's benchmark_model does, beside others",
    "jitdelegate.diff MODEL": "compare outputs with LiteRT's, and find the operator that differs",
    "jitdelegate.demo [MODEL]": "start a model cold, warm and with LiteRT, and compare; make the guides' models",
    "jitdelegate.replay KERNEL...": "run kernels of a dump alone, timed and compared with numpy",
    "cache_tools COMMAND": "list, verify, explain, prune and repair the cache",
}


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 listed, 2 wrong arguments."""
    given = sys.argv[1:] if argv is None else argv
    if given == ["--version"]:
        print(f"jitdelegate {jitdelegate.__version__}")
        return 0
    print("usage: python -m COMMAND [--help] [--version]\n\ncommands:")
    for usage, text in COMMANDS.items():
        print(f"  {usage:<32}{text}")
    return 2 if given not in ([], ["-h"], ["--help"]) else 0


def run(command: str) -> int:
    """Exit status of `jitdelegate.commands.<command>`; its interruption (Ctrl-C, SIGINT) is a line and status 130."""
    try:
        main = import_module(f"jitdelegate.commands.{command}").main
        return int(main())
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
