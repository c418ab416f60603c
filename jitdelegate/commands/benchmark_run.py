"""One benchmark: everything that is measured, in order, and printed."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from typing import Any

from jitdelegate.base.options import DelegateOptions
from jitdelegate.base.progress import progress
from jitdelegate.base.tables import print_line, print_table
from jitdelegate.commands import benchmark_lines as lines
from jitdelegate.commands.arguments import write_file
from jitdelegate.commands.benchmark_inputs import inputs_of
from jitdelegate.commands.benchmark_result import benchmark_result
from jitdelegate.commands.measurement import sides
from jitdelegate.commands.measurement.entry import find_entry
from jitdelegate.commands.measurement.own_process import MEGABYTE, peak_bytes
from jitdelegate.commands.measurement.profile import Node, profiled, tables
from jitdelegate.commands.measurement.side import Side
from jitdelegate.commands.measurement.sides import OwnSide, open_side
from jitdelegate.commands.measurement.starts import Start, measure_starts
from jitdelegate.commands.measurement.statistics import MICRO, Statistics
from jitdelegate.commands.measurement.timing import Length, interleaved, ratio, timed
from jitdelegate.commands.measurement.trace import Timeline
from jitdelegate.commands.run_arguments import threads_of
from jitdelegate.errors import JitDelegateError
from jitdelegate.runtime.profile import ROWS

FIGURES = {
    "count": "number of runs",
    "min_us": "min",
    "p5_us": "p5",
    "median_us": "median",
    "avg_us": "average",
    "p95_us": "p95",
    "p99_us": "p99",
    "max_us": "max",
    "std_us": "standard deviation",
    "runs_per_second": "runs a second",
    "time_over_jitdelegate": "time over jitdelegate's",
}
"""Rows of the table of all sides; the last is the median of the rounds' ratios."""


class Benchmark:
    """The measurements of one model, by the arguments of the command.

    Raises:
        JitDelegateError: a side cannot run the model.
        OSError: a file cannot be written; it has the file's name.
    """

    def __init__(self, arguments: argparse.Namespace, options: DelegateOptions) -> None:
        self._arguments = arguments
        self._options = options
        self._threads = threads_of(arguments, options)
        entry = find_entry(arguments.graph, options, arguments.signature_to_run_for)
        self._entry, self._values = inputs_of(arguments, entry)
        self._timeline = Timeline()
        self._facts: dict[str, Any] = {}

    def run(self) -> None:
        """Measure and print everything."""
        before = peak_bytes()
        ours, init = self._open()
        init_bytes = peak_bytes() - before
        warm_up = self._warm_up(ours)
        own = self._measure(ours)
        print_line(lines.timings_line(init, warm_up, own))
        shown = bool(self._arguments.report_peak_memory_footprint)
        overall_bytes = peak_bytes() - before
        print_line("\n".join(lines.memory_lines(init_bytes, overall_bytes, peak=shown)))
        report = ours.report()  # by now, as a GPU may have failed
        self._facts |= {"accelerators": [report.target], "features": report.features}
        self._facts |= {"init_bytes": init_bytes, "overall_bytes": overall_bytes}
        self._keep(init, warm_up, own)
        self._save_outputs(ours)
        self._profile()
        if not self._arguments.dry_run:
            self._print_statistics(self._compare(ours) or {ours.name: own.seconds})
            self._print_starts()
        self._write()

    def _open(self) -> tuple[OwnSide, float]:
        """Our side, and the seconds that it took to make it ready."""
        arguments = self._arguments
        print_line(f"Loaded model {arguments.graph}")
        if self._entry.called:
            print_line(f"Using signature: {self._entry.called}")
        with progress(1, still=True) as bar:
            bar.begin("opening the model")
            start = time.perf_counter()
            ours = OwnSide(sides.OURS, self._entry, self._options, self._threads)
            seconds = time.perf_counter() - start
        report = ours.report()
        self._timeline.add("start", "open", start, seconds, {"cache": report.cache.outcome})
        self._timeline.add_stages("stages of the start", start, report.seconds)
        print_line(lines.delegate_line(sides.OURS, len(report.operators), report.delegated, ours.partitions()))
        print_line("\n".join(lines.session_lines(os.path.getsize(arguments.graph), seconds)))
        self._facts = {
            "name": arguments.benchmark_name,
            "model": arguments.graph,
            "model_size_mb": os.path.getsize(arguments.graph) / MEGABYTE,
            "signature": self._entry.called,
            "fully_accelerated": report.fully_delegated,
            "operators": len(report.operators),
            "delegated": report.delegated,
            "num_threads": self._threads,
            "cache": report.cache.outcome,
        }
        self._ready(ours)
        return ours, seconds

    def _ready(self, side: Side) -> Side:
        side.set_inputs(self._values)
        return side

    def _warm_up(self, ours: Side) -> Statistics:
        arguments = self._arguments
        least = (0, -1.0) if arguments.dry_run else (arguments.warmup_runs, arguments.warmup_min_secs)
        length = self._length(*least)
        print_line(lines.running_line(length))
        with progress(length.runs, still=True) as bar:
            bar.begin("warm-up")
            runs = timed(ours.run, length, bar.done)
        self._timeline.add_runs("warm-up", "warm-up", runs)
        statistics = Statistics(tuple(seconds for _, seconds in runs))
        print_line(f"{statistics.line()}\n")
        return statistics

    def _length(self, runs: int, seconds: float) -> Length:
        arguments = self._arguments
        return Length(runs, seconds, arguments.max_secs, arguments.run_delay, arguments.run_frequency)

    def _measure(self, ours: Side) -> Statistics:
        """Runs of our side alone."""
        length = self._measured_length()
        print_line(lines.running_line(length))
        with progress(length.runs, still=True) as bar:
            bar.begin("runs")
            runs = timed(ours.run, length, bar.done)
        self._timeline.add_runs("runs", "run", runs)
        statistics = Statistics(tuple(seconds for _, seconds in runs))
        print_line(f"{statistics.line()}\n")
        return statistics

    def _measured_length(self) -> Length:
        arguments = self._arguments
        return self._length(*((0, -1.0) if arguments.dry_run else (max(arguments.num_runs, 1), arguments.min_secs)))

    def _compare(self, ours: Side) -> dict[str, tuple[float, ...]]:
        """Seconds of each run of every side, which take turns; nothing where there is no other side."""
        names = self._arguments.compare
        opened = [self._ready(open_side(name, self._entry, self._options, self._threads)) for name in names]
        if not opened:
            return {}
        length = self._measured_length()
        with progress(length.runs, still=True) as bar:
            bar.begin(f"by turns with {', '.join(names)}")
            found = interleaved({side.name: side.run for side in (ours, *opened)}, length, bar.done)
        for name, runs in found.items():
            self._timeline.add_runs(f"{name}, by turns", "run", runs)
        return {name: tuple(seconds for _, seconds in runs) for name, runs in found.items()}

    def _keep(self, init: float, warm_up: Statistics, own: Statistics) -> None:
        """Figures for the JSON file, by the names of litert-benchmark."""
        figures = own.to_dict()
        latency = {
            f"{name}_ms": figures[f"{name}_us"] / 1e3
            for name in ("avg", "min", "max", "median", "std", "p5", "p95", "p99")
        }
        self._facts["latency"] = latency | {
            "init_ms": 1e3 * init,
            "warmup_first_ms": 1e3 * warm_up.first,
            "warmup_avg_ms": 1e3 * warm_up.average,
            "num_warmup_runs": warm_up.count,
            "num_runs": own.count,
        }
        nbytes = sum(value.nbytes for value in self._values)
        self._facts["throughput_mb_s"] = nbytes / MEGABYTE / own.average if own.average else 0.0
        self._facts["runs_per_second"] = figures["runs_per_second"]
        self._facts["peak_bytes"] = peak_bytes()

    def _save_outputs(self, ours: Side) -> None:
        if self._arguments.output_filepath and not self._arguments.dry_run:
            content = b"".join(output.tobytes() for output in ours.outputs())
            write_file(self._arguments.output_filepath, content)

    def _profile(self) -> None:
        """Time each kernel in runs of a program of its own, which takes time stamps."""
        arguments = self._arguments
        if not (arguments.enable_op_profiling or arguments.trace) or arguments.dry_run:
            return
        side = OwnSide(sides.OURS, self._entry, self._options.altered(profile=True), self._threads)
        self._ready(side)
        side.run()
        runs = timed(side.run, Length(min(ROWS, max(arguments.num_runs, 1)), 0.0, arguments.max_secs))
        whole = Statistics(tuple(seconds for _, seconds in runs))
        nodes = profiled(side.kernel_times(), side.report().operators, self._entry.graph, whole.median)
        self._timeline.add_runs("profiled runs", "run", runs)
        self._timeline.add_kernels("kernels (median times)", runs, nodes)
        self._facts["profile"] = [_plain(node) for node in nodes]
        if arguments.enable_op_profiling:
            text = tables(nodes, csv=arguments.op_profiling_output_mode == "csv")
            if arguments.op_profiling_output_file:
                write_file(arguments.op_profiling_output_file, f"{text}\n")
            else:
                print_line(f"\nOperator-wise Profiling Info for Regular Benchmark Runs:\n{text}")

    def _print_statistics(self, times: dict[str, tuple[float, ...]]) -> None:
        figures = {name: Statistics(seconds).to_dict() for name, seconds in times.items()}
        for name, each in figures.items():
            each["time_over_jitdelegate"] = ratio(times[name], times[sides.OURS])
        self._facts["sides"] = figures
        rows = [(words, *(_number(figure[name]) for figure in figures.values())) for name, words in FIGURES.items()]
        print_line("")
        print_table(("microseconds a run", *figures), rows, right=range(1, len(figures) + 1))

    def _print_starts(self) -> None:
        """Starts; where they cannot be measured, why."""
        rounds = self._arguments.startup_runs
        if rounds < 1:
            return
        litert = sides.LITERT in self._arguments.compare
        try:
            with progress(rounds * (2 + litert), still=True) as bar:

                def shown(kind: str) -> None:
                    bar.begin(f"{kind} start")
                    bar.done()

                starts = measure_starts(
                    self._entry, self._values, self._options, self._threads, rounds=rounds, litert=litert, shown=shown
                )
        except JitDelegateError as error:
            print_line(f"\nno starts: {error}")
            return
        self._facts["starts"] = {each.kind: each.to_dict() for each in starts}
        stages = list(starts[0].seconds)
        print_line("\nstarts in fresh processes, in milliseconds; the process counts from its beginning to its end")
        headings = "start", "process", *stages, "peak MB"
        print_table(headings, [_start_row(each, stages) for each in starts], right=range(1, len(headings)))

    def _write(self) -> None:
        if self._arguments.trace:
            write_file(self._arguments.trace, self._timeline.text())
        if self._arguments.result_file_path:
            write_file(self._arguments.result_file_path, benchmark_result(self._facts))
        if self._arguments.result_json:
            write_file(self._arguments.result_json, json.dumps(self._facts, indent=2) + "\n")


def _start_row(start: Start, stages: Sequence[str]) -> tuple[str, ...]:
    seconds = [start.process, *(start.seconds.get(stage, 0.0) for stage in stages)]
    return start.kind, *(f"{1e3 * duration:.1f}" for duration in seconds), f"{start.peak_bytes / MEGABYTE:.1f}"


def _plain(node: Node) -> dict[str, Any]:
    return {"type": node.kind, "name": node.name, "us": MICRO * node.seconds, "operators": list(node.operators)}


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{1 if value >= 100 else 2}f}"
