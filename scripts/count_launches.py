"""Count the launches of models on CUDA, and add up the time that the cost model predicts. Nothing is compiled.

    python -m scripts.count_launches FOLDER_OR_FILE ... [--kind sm_90] [--precision float32 float16] [--batch 1 8]
        [--list]

No GPU is needed. Models that the CUDA target does not run as a whole are left out. The time is that of one inference
from the first launch to the end of the last: the predicted cycles of every launch, and the estimated time between two
launches of a CUDA graph; then the same if no launch began early or ran beside another.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from jitdelegate.targets.cuda.code.gpu import Gpu, gpu_of
from jitdelegate.targets.cuda.code.template import Launch
from jitdelegate.targets.cuda.plan.branches import Order, nanoseconds
from jitdelegate.targets.cuda.plan.plan import Plan, plan
from scripts.lowered_models import lowered_models


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 all is well, 2 wrong arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="+", type=Path)
    parser.add_argument("--kind", default="sm_90", help="sm_90, or sm_90:114 for one with 114 multiprocessors")
    parser.add_argument("--precision", nargs="+", default=["float32", "float16"])
    parser.add_argument("--batch", nargs="+", type=int, default=[1], help="factors of every input's first axis")
    parser.add_argument("--list", action="store_true", help="every launch, with its microseconds and operators")
    arguments = parser.parse_args(argv)
    gpu = gpu_of(arguments.kind)
    for batch in arguments.batch:
        for path, graph in lowered_models(arguments.path, batch):
            for precision in arguments.precision:
                name = path.stem if batch == 1 else f"{path.stem} x {batch}"
                planned = plan(graph, gpu, precision)
                print(f"{name:<40} {precision:<8} {_summary(planned, gpu)}")
                if arguments.list:
                    print(*(_line(*pair, gpu) for pair in zip(planned.launches, planned.orders, strict=True)), sep="\n")
    return 0


def _summary(planned: Plan, gpu: Gpu) -> str:
    launches, orders = planned.launches, planned.orders
    families = Counter(launch.template.family for launch in launches).most_common()
    text = ", ".join(f"{count} {family}" for family, count in families)
    beside = sum(order.stream > 0 for order in orders)
    times = (nanoseconds(launches, one, gpu) / 1000 for one in (orders, [Order()] * len(launches)))
    return "{:4} launches {:8.1f} us, {:8.1f} in a row of full edges; {} beside others  {}".format(
        len(launches), *times, beside, text
    )


def _line(launch: Launch, order: Order, gpu: Gpu) -> str:
    operators = " ".join(map(str, launch.origin))
    waits = f" after {' '.join(map(str, order.waits))}" if order.waits else ""
    time = launch.cycles / gpu.costs.clock / 1000
    return f"    {order.stream}{waits}  {time:8.2f} us {launch.template.symbol} {launch.grid} operators {operators}"


if __name__ == "__main__":
    sys.exit(main())
