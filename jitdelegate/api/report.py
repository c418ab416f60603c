"""Report: where a model runs and why, what the cache did, and how long each stage took."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from jitdelegate.program.program import Operator


class CacheReport:
    """What the cache did for one model.

    Attributes:
        outcome: "hit", "miss" (compiled, and stored if the place allows it) or "off".
        reason: one sentence; why it was a miss or off, "" for a hit.
        path: the entry's file, "" where nothing is stored.
        write_failure: why a compiled program was not kept, "" if it was.
        counters: events of this process's cache, by name; misses by their kind.
    """

    __slots__ = ("counters", "outcome", "path", "reason", "write_failure")

    def __init__(
        self, *, outcome: str, reason: str, path: str, write_failure: str, counters: Mapping[str, int | dict[str, int]]
    ) -> None:
        self.outcome = outcome
        self.reason = reason
        self.path = path
        self.write_failure = write_failure
        self.counters = {name: dict(count) if isinstance(count, dict) else count for name, count in counters.items()}

    @property
    def hit(self) -> bool:
        return self.outcome == "hit"

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return {name: getattr(self, name) for name in ("outcome", "reason", "path", "write_failure", "counters")}


class SubgraphReport:
    """What is known of a further subgraph, one that a signature or an operator enters.

    Attributes:
        number: of the subgraph.
        signatures: keys of the signatures that enter it.
        target: "cuda", "cpu" or "litert", where it runs; "" before it is opened, which its first run or
            `Model.prepare` does.
        operators: per operator its index, op, place and reason; empty before it is opened.
        outcome: what the cache did, "hit", "miss" or "off"; "" before it is opened.
    """

    __slots__ = ("number", "operators", "outcome", "signatures", "target")

    def __init__(
        self,
        *,
        number: int,
        signatures: Sequence[str] = (),
        target: str = "",
        operators: Sequence[Operator] = (),
        outcome: str = "",
    ) -> None:
        self.number = number
        self.signatures = tuple(signatures)
        self.target = target
        self.operators = tuple(operators)
        self.outcome = outcome

    @property
    def is_open(self) -> bool:
        return bool(self.target)

    @property
    def delegated(self) -> int:
        """How many operators run as compiled code or were evaluated while compiling."""
        return _delegated(self.target, self.operators)

    @property
    def name(self) -> str:
        """`signature 'decode'`, or `subgraph 2` for one that no signature enters."""
        return ", ".join(f"signature {key!r}" for key in self.signatures) or f"subgraph {self.number}"

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
        return f"SubgraphReport({self.name}: {self.told()})"

    def told(self) -> str:
        """Where it runs and how much of it is compiled."""
        if not self.is_open:
            return "not opened before it runs"
        return f"{self.target}, {self.delegated} of {len(self.operators)} operators delegated, cache {self.outcome}"


class KernelTime:
    """Time of one kernel.

    Attributes:
        name: unique in its partition.
        form: the kind of kernel.
        operators: indices of the operators that it computes; empty for copies at the model's borders.
        seconds: in one inference, on a GPU by all its launches; the median of the last runs, None before the first.
    """

    __slots__ = ("form", "name", "operators", "seconds")

    def __init__(self, *, name: str, form: str, operators: Sequence[int], seconds: float | None) -> None:
        self.name = name
        self.form = form
        self.operators = tuple(operators)
        self.seconds = seconds

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return {"name": self.name, "form": self.form, "operators": list(self.operators), "seconds": self.seconds}

    def __repr__(self) -> str:
        return f"KernelTime({self.name!r}, {self.form}, operators={list(self.operators)}, seconds={self.seconds})"


class Report:
    """One model's state at the moment it was asked for; `print` gives a table.

    Attributes:
        target: "cuda", "cpu" or "litert", where the model runs.
        features: the instruction set or GPU architecture that the code was compiled for, "" on LiteRT.
        device: the GPU's name, "" elsewhere.
        threads: threads that share one inference.
        kernels: compiled kernels in the program.
        kernel_times: one `KernelTime` per kernel of the main program, where the option `profile` is set.
        launches: kernels that one inference launches on a GPU.
        operators: per operator of the main subgraph its index, op, place and reason.
        subgraphs: the further subgraphs that run, among them those of further signatures.
        cache: what the cache did.
        seconds: stage name to seconds, in the order in which the stages ran.
        notes: sentences about the model as a whole (why not CUDA, why LiteRT).
    """

    __slots__ = (
        "cache",
        "device",
        "features",
        "kernel_times",
        "kernels",
        "launches",
        "notes",
        "operators",
        "seconds",
        "subgraphs",
        "target",
        "threads",
    )

    def __init__(
        self,
        *,
        target: str,
        features: str,
        threads: int,
        kernels: int,
        operators: Sequence[Operator],
        cache: CacheReport,
        seconds: Mapping[str, float],
        notes: Sequence[str],
        device: str = "",
        launches: int = 0,
        subgraphs: Sequence[SubgraphReport] = (),
        kernel_times: Sequence[KernelTime] = (),
    ) -> None:
        self.target = target
        self.features = features
        self.device = device
        self.launches = launches
        self.threads = threads
        self.kernels = kernels
        self.kernel_times = tuple(kernel_times)
        self.operators = tuple(operators)
        self.subgraphs = tuple(subgraphs)
        self.cache = cache
        self.seconds = dict(seconds)
        self.notes = tuple(notes)

    @property
    def fully_delegated(self) -> bool:
        """Whether no operator is left to LiteRT, of the main subgraph and of those that are open beside it."""
        whole = all(one.target != "litert" and one.delegated == len(one.operators) for one in self.subgraphs)
        return whole and self.delegated == len(self.operators) and self.target != "litert"

    @property
    def delegated(self) -> int:
        """How many operators of the main subgraph run as compiled code or were evaluated while compiling."""
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
        }

    def __repr__(self) -> str:
        delegated = f"{self.delegated} of {len(self.operators)} operators delegated"
        return f"Report({self.target}, {delegated}, cache {self.cache.outcome})"

    def __str__(self) -> str:
        further = [line for one in self.subgraphs for line in _further_places(one)]
        return "\n".join([*self._summary(), *self._stages(), *_places(self.operators), *further, *self._kernel_lines()])

    def _summary(self) -> list[str]:
        told = (self.cache.outcome, self.cache.reason, self.cache.write_failure, self.cache.path)
        cache = ", ".join(dict.fromkeys(part for part in told if part))  # one sentence may be both reasons
        lines = [
            f"target     {self._where()}",
            f"operators  {self.delegated} of {len(self.operators)} delegated",
            f"cache      {cache}",
        ]
        lines += [f"{'further' if not place else '':<11}{one.name}: {one.told()}"
                  for place, one in enumerate(self.subgraphs)]  # fmt: skip
        return lines + [f"note       {note}" for note in self.notes]

    def _where(self) -> str:
        place = " ".join(part for part in (self.target, self.features) if part)
        if self.target == "cuda":
            return f"{place}, {self.device}, {self.launches} launches of {self.kernels} kernels"
        return f"{place}, {self.threads} thread{'s' if self.threads != 1 else ''}, {self.kernels} kernels"

    def _stages(self) -> list[str]:
        return [f"{'seconds' if not place else '':<10} {name:<12}{value:>10.6f}"
                for place, (name, value) in enumerate(self.seconds.items())]  # fmt: skip

    def _kernel_lines(self) -> list[str]:
        from jitdelegate.runtime.profile import kernel_lines  # not before: few models are profiled

        ops = {one.index: f"{one.index} {one.op}" for one in self.operators}
        lines = kernel_lines(
            (one.seconds, one.form, ", ".join(ops[index] for index in one.operators)) for one in self.kernel_times
        )
        return [f"{'kernels' if not place else '':<10} {line}" for place, line in enumerate(lines)]


def _delegated(target: str, operators: Sequence[Operator]) -> int:
    return 0 if target == "litert" else sum(operator.place != "litert" for operator in operators)


def _operator(one: Operator) -> dict[str, Any]:
    return {"index": one.index, "op": one.op, "place": one.place, "reason": one.reason}


def _further_places(subgraph: SubgraphReport) -> list[str]:
    """The operators of a subgraph of which some are left to LiteRT."""
    if subgraph.delegated == len(subgraph.operators):
        return []
    return [subgraph.name, *_places(subgraph.operators)]


def _places(operators: Sequence[Operator]) -> list[str]:
    """One line per run of operators that share place and reason, so that a large model stays readable."""
    lines: list[str] = []
    for group in _groups(operators):
        first, last = group[0], group[-1]
        span = str(first.index) if first is last else f"{first.index}-{last.index}"
        ops = ", ".join(dict.fromkeys(operator.op for operator in group))
        reason = first.reason.removeprefix(f"{ops}: ")
        lines.append(f"{span:>10} {first.place:<8}{ops}" + (f": {reason}" if reason else ""))
    return lines


def _groups(operators: Sequence[Operator]) -> list[list[Operator]]:
    groups: list[list[Operator]] = []
    for operator in operators:
        last = groups[-1][-1] if groups else None
        if last is not None and (last.place, last.reason) == (operator.place, operator.reason):
            groups[-1].append(operator)
        else:
            groups.append([operator])
    return groups
