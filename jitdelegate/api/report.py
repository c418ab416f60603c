"""Report: where a model runs and why, what the cache did, and how long each stage took."""

from __future__ import annotations

from jitdelegate.base.record import Record
from jitdelegate.engine.executable import named, subgraph_title
from jitdelegate.runtime.cache.store import counts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from jitdelegate.api.kernel_times import KernelTime
    from jitdelegate.engine.executable import Executable
    from jitdelegate.engine.hosted_model import HostedModel
    from jitdelegate.engine.specializations import Specializations
    from jitdelegate.program.program import Operator


class CacheReport(Record):
    """The cache's part in opening one model.

    Attributes:
        outcome: "hit", "miss" (compiled, and stored if possible) or "off".
        reason: one sentence why it was a miss or off, or why the compiler failed; "" for another hit.
        path: the entry's file; "" where nothing is stored.
        write_failure: why a compiled program was not stored; "" if it was.
        counters: event name to count, for this process's cache; misses by their kind.
        remote: the URL of the remote that the program of a hit was fetched from at this start; "" where it was here.
    """

    outcome: str
    reason: str
    path: str
    write_failure: str
    counters: Mapping[str, int | dict[str, int]]
    remote: str = ""

    @property
    def hit(self) -> bool:
        return self.outcome == "hit"

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return self.values()


class SubgraphReport(Record):
    """State of a further subgraph, which a signature or an operator runs.

    Attributes:
        number: the subgraph's index.
        signatures: keys of the signatures that run it.
        target: name of the target that runs it; "" before it is opened, by its first run or `Model.prepare`.
        operators: per operator its index, op, place and reason; empty before it is opened.
        outcome: outcome of the cache, "hit", "miss" or "off"; "" before it is opened.
    """

    number: int
    signatures: tuple[str, ...] = ()
    target: str = ""
    operators: tuple[Operator, ...] = ()
    outcome: str = ""

    @property
    def is_open(self) -> bool:
        return bool(self.target)

    @property
    def delegated(self) -> int:
        """Number of operators that run as compiled code or were folded."""
        return _delegated(self.target, self.operators)

    @property
    def name(self) -> str:
        """`signature 'decode'`, or `subgraph 2` without a signature."""
        return subgraph_title(self.number, self.signatures)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "number": self.number,
            "signatures": list(self.signatures),
            "target": self.target,
            "delegated": self.delegated,
            "operators": [_operator(one) for one in self.operators],
            "outcome": self.outcome,
        }

    def __repr__(self) -> str:
        return f"SubgraphReport({self.name}: {self.summary()})"

    def summary(self) -> str:
        """Where it runs, and how many operators are compiled."""
        if not self.is_open:
            return "not opened before it runs"
        return f"{self.target}, {self.delegated} of {len(self.operators)} operators delegated, cache {self.outcome}"


class Report(Record):
    """State of one model when the report was made; `print` shows a table.

    Attributes:
        target: name of the target that runs the model.
        features: instruction set or GPU architecture of the compiled code; "" on LiteRT.
        device: the GPU's name; "" elsewhere.
        threads: threads that share one inference.
        kernels: number of compiled kernels in the program.
        kernel_times: one `KernelTime` per kernel of the main program, if the option `profile` is set.
        launches: number of kernel launches of one inference on a GPU.
        operators: per operator of the main subgraph, its index, op, place, reason and, if quantized, execution.
        subgraphs: the further subgraphs that run, those of further signatures included.
        cache: the cache's part.
        seconds: stage name to seconds, in the order in which the stages ran.
        notes: sentences about the model as a whole (why not CUDA, why LiteRT, what it was compiled without).
        failure: why the compiler failed as a whole, which leaves the model on LiteRT; "" if it did not.
        ignored_options: names of the given options that change nothing on the target that was chosen.
    """

    target: str
    features: str
    threads: int
    kernels: int
    operators: tuple[Operator, ...]
    cache: CacheReport
    seconds: dict[str, float]
    notes: tuple[str, ...]
    device: str = ""
    launches: int = 0
    subgraphs: tuple[SubgraphReport, ...] = ()
    kernel_times: tuple[KernelTime, ...] = ()
    ignored_options: tuple[str, ...] = ()
    failure: str = ""

    @property
    def fully_delegated(self) -> bool:
        """Whether no operator of the main subgraph or of another open subgraph runs on LiteRT."""
        whole = all(one.target != "litert" and one.delegated == len(one.operators) for one in self.subgraphs)
        return whole and self.delegated == len(self.operators) and self.target != "litert"

    @property
    def delegated(self) -> int:
        """Number of operators of the main subgraph that run as compiled code or were folded."""
        return _delegated(self.target, self.operators)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data, ready for json."""
        return {
            "target": self.target,
            "features": self.features,
            "device": self.device,
            "threads": self.threads,
            "kernels": self.kernels,
            "kernel_times": [one.to_dict() for one in self.kernel_times],
            "launches": self.launches,
            "fully_delegated": self.fully_delegated,
            "delegated": self.delegated,
            "operators": [_operator(one) for one in self.operators],
            "subgraphs": [one.to_dict() for one in self.subgraphs],
            "cache": self.cache.to_dict(),
            "seconds": dict(self.seconds),
            "notes": list(self.notes),
            "ignored_options": list(self.ignored_options),
            "failure": self.failure,
        }

    def __repr__(self) -> str:
        delegated = f"{self.delegated} of {len(self.operators)} operators delegated"
        return f"Report({self.target}, {delegated}, cache {self.cache.outcome})"

    def __str__(self) -> str:
        from jitdelegate.engine.decisions import operator_lines  # not before: few reports are printed
        from jitdelegate.runtime.profile import kernel_lines

        stages = [f"{name:<12}{value:>10.6f}" for name, value in self.seconds.items()]
        own = [*_lines(self._facts()), *_lines([("seconds", stages)]), *operator_lines(self.operators)]
        further = [line for one in self._partial() for line in (one.name, *operator_lines(one.operators))]
        return "\n".join([*own, *further, *_lines([("kernels", kernel_lines(self._kernel_rows()))])])

    def _repr_html_(self) -> str:
        """What a notebook shows: what `print` shows, as tables."""
        from jitdelegate.base.html_tables import html_table  # not before: only notebooks ask for it
        from jitdelegate.engine.decisions import operator_rows

        stages = ", ".join(f"{name} {1e3 * seconds:.1f} ms" for name, seconds in self.seconds.items())
        facts = [(heading, "\n".join(told)) for heading, told in [*self._facts(), ("start", [stages])]]
        places = ("", "where", "what, and why there")
        tables = [html_table("Report", facts), html_table("Operators", operator_rows(self.operators), places)]
        tables += [html_table(one.name, operator_rows(one.operators), places) for one in self._partial()]
        if self.kernel_times:
            tables.append(html_table("Kernels", self._kernel_rows(), ("time", "share", "form", "operators")))
        return "\n".join(tables)

    def _partial(self) -> list[SubgraphReport]:
        return [one for one in self.subgraphs if one.delegated < len(one.operators)]

    def _facts(self) -> list[tuple[str, Sequence[str]]]:
        """Headings, each with what there is to tell about it."""
        remote = f"from {self.cache.remote}" if self.cache.remote else ""
        told = (self.cache.outcome, remote, self.cache.reason, self.cache.write_failure, self.cache.path)
        cache = ", ".join(dict.fromkeys(part for part in told if part))  # one sentence may be both reasons
        ignored = f"the option{'s' if len(self.ignored_options) > 1 else ''} {', '.join(self.ignored_options)}"
        facts: list[tuple[str, Sequence[str]]] = [
            ("target", [self._where()]),
            ("operators", [f"{self.delegated} of {len(self.operators)} delegated"]),
            ("cache", [cache]),
            ("further", [f"{one.name}: {one.summary()}" for one in self.subgraphs]),
            ("ignored", [ignored] if self.ignored_options else []),
            *(("note", [note]) for note in self.notes),
        ]
        return [(heading, told) for heading, told in facts if told]

    def _where(self) -> str:
        where = " ".join(part for part in (self.target, self.features) if part)
        if self.device:
            return f"{where}, {self.device}, {self.launches} launches of {self.kernels} kernels"
        return f"{where}, {self.threads} thread{'s' if self.threads != 1 else ''}, {self.kernels} kernels"

    def _kernel_rows(self) -> list[tuple[str, str, str, str]]:
        from jitdelegate.runtime.profile import kernel_rows  # not before: few models are profiled

        ops = {one.index: f"{one.index} {one.op}" for one in self.operators}
        return kernel_rows(
            (one.seconds, one.form, ", ".join(ops[index] for index in one.operators)) for one in self.kernel_times
        )


def _lines(facts: Iterable[tuple[str, Sequence[str]]]) -> list[str]:
    """Each heading before the first line of what is told about it."""
    return [f"{'' if n else heading:<11}{line}" for heading, told in facts for n, line in enumerate(told)]


def model_report(specializations: Specializations, executable: Executable) -> Report:
    """Report on one program of a model's first subgraph, with notes on the others."""
    further = [_sentence(one) for one in specializations.further]
    return _report(executable, further, _signed_subgraphs(specializations))


def hosted_report(model: HostedModel) -> Report:
    """Report on a model in LiteRT's own interpreter."""
    main, *others = model.executables()
    return _report(main, list(map(_sentence, model.further)), [_subgraph_report(executable) for executable in others])


def _report(executable: Executable, notes: Sequence[str], subgraphs: Sequence[SubgraphReport]) -> Report:
    program, source = executable.program, executable.source
    device = executable.device.name if executable.target == executable.device.target.name else ""
    ignored = executable.device.target.ignored(source.options)
    return Report(
        target=executable.target,
        features=program.features,
        device=device,
        threads=1 if device else source.threads,
        kernels=len(program.kernels),
        launches=sum(kernel.chunks for kernel in program.kernels) if device else 0,
        operators=tuple(executable.operators),
        cache=_cache_report(executable),
        seconds=dict(executable.seconds),
        notes=(*executable.notes, *filter(None, [executable.session.note if executable.session else ""]), *notes),
        subgraphs=tuple(subgraphs),
        kernel_times=_kernel_times(executable),
        ignored_options=tuple(name for name in source.options.changed if name in ignored),
        failure=executable.failure,
    )


def _kernel_times(executable: Executable) -> tuple[KernelTime, ...]:
    if not executable.source.options.profile:
        return ()
    from jitdelegate.api.kernel_times import kernel_times  # not before: few models are profiled

    return tuple(kernel_times(executable))


def _cache_report(executable: Executable) -> CacheReport:
    lookup = executable.lookup
    return CacheReport(
        outcome=executable.outcome,
        reason=executable.damage or lookup.reason,
        path="" if lookup.write_failure else lookup.path or "",
        write_failure=lookup.write_failure,
        counters={
            name: dict(count) if isinstance(count, dict) else count
            for name, count in ((name, getattr(counts, name)) for name in counts.__slots__)
        },
        remote=lookup.remote,
    )


def _subgraph_report(executable: Executable) -> SubgraphReport:
    return SubgraphReport(
        number=executable.subgraph,
        signatures=tuple(executable.signatures),
        target=executable.target,
        operators=tuple(executable.operators),
        outcome=executable.outcome,
    )


def _signed_subgraphs(specializations: Specializations) -> list[SubgraphReport]:
    """Reports on the subgraphs of further signatures."""
    entered: dict[int, list[str]] = {}
    for signature in specializations.main.program.signatures:
        entered.setdefault(signature.graph, []).append(signature.key)
    known = specializations.open_subgraphs
    return [
        _subgraph_report(known[number]) if number in known else SubgraphReport(number=number, signatures=tuple(keys))
        for number, keys in sorted(entered.items())
        if number
    ]


def _sentence(executable: Executable) -> str:
    """Sentences about a program for other shapes or values: which, where it runs, and what it costs."""
    parts = [f"subgraph {executable.subgraph}"] if executable.subgraph else []
    parts += [named(executable.resized)] if executable.resized else []
    parts += [f"input {position} being {list(numbers)}" for position, numbers in executable.values]
    if executable.target == "litert":
        return f"{', '.join(parts)}: LiteRT, {executable.reason}"
    cost = f"It took {sum(executable.seconds.values()):.3f} s and has {executable.own_bytes / 1e6:.2f} MB of its own."
    return f"{', '.join(parts)}: {executable.target}, cache {executable.outcome}. {cost}"


def _delegated(target: str, operators: Sequence[Operator]) -> int:
    return 0 if target == "litert" else sum(operator.place != "litert" for operator in operators)


def _operator(one: Operator) -> dict[str, Any]:
    return {name: getattr(one, name) for name in ("index", "op", "place", "reason", "execution")}
