"""The lines of LiteRT's benchmark_model, in its words, for scripts that read them."""

from __future__ import annotations

import argparse

from jitdelegate.base.tables import print_line
from jitdelegate.commands.measurement import own_process
from jitdelegate.commands.measurement.statistics import MICRO, Statistics
from jitdelegate.commands.measurement.timing import Length

PARAMETERS = {
    "num_runs": "Min num runs",
    "min_secs": "Min runs duration (seconds)",
    "max_secs": "Max runs duration (seconds)",
    "run_delay": "Inter-run delay (seconds)",
    "run_frequency": "Number of prorated runs per second",
    "num_threads": "Num threads",
    "benchmark_name": "Benchmark name",
    "warmup_runs": "Min warmup runs",
    "warmup_min_secs": "Min warmup runs duration (seconds)",
    "dry_run": "Run w/o invoking kernels",
    "report_peak_memory_footprint": "Report the peak memory footprint",
    "graph": "Graph",
    "signature_to_run_for": "Signature to run",
    "input_layer": "Input layers",
    "input_layer_shape": "Input shapes",
    "input_layer_value_range": "Input value ranges",
    "input_layer_value_files": "Input value files",
    "allow_fp16": "Allow fp16",
    "require_full_delegation": "Require full delegation",
    "enable_op_profiling": "Enable op profiling",
    "op_profiling_output_mode": "Op profiling output mode.",
    "op_profiling_output_file": "Op profiling output file.",
    "result_file_path": "File path to save the benchmark result in binary proto format",
    "first_delegate_node_index": "Index of the first node that could be delegated",
    "last_delegate_node_index": "Index of the last node that could be delegated",
    "max_delegated_partitions": "Max number of delegated partitions",
    "min_nodes_per_partition": "Min nodes per partition",
    "delegate_serialize_dir": "Directory for delegate serialization",
    "delegate_serialize_token": "Model-specific token/key for delegate serialization.",
    "use_gpu": "Use gpu",
    "gpu_precision_loss_allowed": "Allow lower precision in gpu",
    "gpu_backend": "GPU backend",
}
ALWAYS = ("graph", "signature_to_run_for")
APPROXIMATE = (
    "Note: as the benchmark tool itself affects memory footprint, the following is only APPROXIMATE to the actual "
    "memory footprint of the model at runtime. Take the information at your discretion."
)


def print_parameters(arguments: argparse.Namespace, usual: argparse.Namespace) -> None:
    """The values of the flags: those that were given, with --verbose all."""
    print_line("STARTING!")
    print_line(f"Log parameter values verbosely: [{int(bool(arguments.verbose))}]")
    for name, words in PARAMETERS.items():
        value = getattr(arguments, name)
        if arguments.verbose or name in ALWAYS or value != getattr(usual, name):
            print_line(f"{words}: [{_shown(value)}]")


def _shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def delegate_line(name: str, operators: int, delegated: int, partitions: int) -> str:
    """How much of the graph the delegate takes.

    Args:
        operators, delegated: how many operators there are, and how many are compiled.
        partitions: of compiled operators.
    """
    if not delegated or not partitions:
        return f"Though {name} delegate is explicitly applied, the model graph will not be executed by the delegate."
    applied = f"Explicitly applied {name} delegate, and the model graph will be"
    if delegated == operators:
        return f"{applied} completely executed by the delegate."
    return f"{applied} partially executed by the delegate w/ {partitions} delegate kernels."


def session_lines(nbytes: int, seconds: float) -> list[str]:
    """The model's size and the time to make it ready."""
    return [f"The input model file size (MB): {nbytes / 1e6:g}", f"Initialized session in {1e3 * seconds:g}ms."]


def running_line(length: Length) -> str:
    return (
        f"Running benchmark for at least {length.runs} iterations and at least {length.seconds:g} seconds but "
        f"terminate if exceeding {length.most_seconds:g} seconds."
    )


def timings_line(init: float, warm_up: Statistics, runs: Statistics) -> str:
    """Init and first inference in whole microseconds."""
    return (
        f"Inference timings in us: Init: {int(MICRO * init)}, First inference: {warm_up.whole.first:.0f}, "
        f"Warmup (avg): {warm_up.whole.average:g}, Inference (avg): {runs.whole.average:g}"
    )


def memory_lines(init: int, overall: int, *, peak: bool) -> list[str]:
    """What the process's memory grew by, in bytes.

    Args:
        peak: also the most that it had. The operating system keeps this figure; nothing is monitored.
    """
    mega = own_process.MEGABYTE
    lines = [
        APPROXIMATE,
        f"Memory footprint delta from the start of the tool (MB): init={init / mega:g} overall={overall / mega:g}",
    ]
    if peak:
        lines.append(f"Overall peak memory footprint (MB) via periodic monitoring: {own_process.peak_bytes() / mega:g}")
        if found := own_process.resident_bytes():
            resident, shared = (each // mega for each in found)
            lines += [
                "Memory status at the end of exeution:",
                f"- VmRSS              : {resident} MB",
                f"+ RssAnnon           : {resident - shared} MB",
                f"+ RssFile + RssShmem : {shared} MB",
            ]
    return lines
