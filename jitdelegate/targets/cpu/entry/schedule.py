"""The compiled entry of a whole graph: threads claim chunks of one step after another.

A step has a claim word (run id << 32 | chunks claimed) per range of its chunks, and a word that counts chunks done.
Each thread has a range of its own, so that it reads in the next step what it wrote in this one; then it helps with the
other ranges. Claims are compare-exchanges. A late thread sees the id of another run and leaves. The calling thread can
finish every step alone, so a busy machine loses only the help of workers. A small step is the calling thread's.
No word is reset between runs: a claim word of an earlier run counts as untouched, and chunks done are counted on.
Whether a run calls workers at all is decided by `team.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from jitdelegate.runtime.memory import LEARNT, TEAM
from jitdelegate.targets.cpu.code.kernel import RANGES, Job, Step
from jitdelegate.targets.cpu.code.vector_ir import BOOL, INDEX, POINTER, Function, Module, Value
from jitdelegate.targets.cpu.entry import team
from jitdelegate.targets.cpu.entry.architecture import Architecture
from jitdelegate.targets.cpu.entry.futex import I32, add_atomic, load_atomic, store_atomic, write_wait_and_wake
from jitdelegate.targets.cpu.entry.stamps import Stamps
from jitdelegate.targets.cpu.entry.step_table import WORD, StepTable, address_of

ENTRY_PARAMETERS = (
    ("arena", POINTER),
    ("weights", POINTER),
    ("io", POINTER),
    ("sync", POINTER),
    ("scratch", POINTER),
)
LINE = 64
RUN, SLEEPERS, STOPPED = 0, 4, LINE
"""Offsets in the sync memory: id of the last run with workers, count of workers asleep between runs, stop flag. `TEAM`
lies beside the flag."""
RUNS, REACHED = 2 * LINE, 2 * LINE + WORD
"""Offsets of words that the calling thread alone writes: number of runs of profiled code, and the step that a run with
workers has reached. What `team` remembers is in the line behind them, at `LEARNT`."""
FIRST_STEP, STEP = 4 * LINE, (RANGES + 1) * LINE
"""Offset of the steps' words, and bytes of a step: a cache line per claim word, one for the count of chunks done."""

PIECE_WORDS = 5
"""Numbers of a piece of a step in the table: end, shift, start of the row, panels, width of a half or 0."""
Number = Value | int
SHARED, AWAITED, FLAGS = 1, 2, 2
"""Flags of a step, and their number: threads share it; it is the calling thread's, and others wait for it."""


def sync_bytes(steps: int) -> int:
    """Size of the sync memory for a program of `steps` steps, of which threads share some, or that is profiled. Others
    need none, by which sessions know that they need no workers."""
    return FIRST_STEP + STEP * max(steps, 1)


def shared_steps(steps: Sequence[Step], *, has_threads: bool) -> list[int]:
    """Numbers of the steps that threads share. If none is large enough, workers would only cost time, and the graph
    runs on the calling thread."""
    return [number for number, step in enumerate(steps) if step.is_shared] if has_threads else []


def write_entries(
    module: Module,
    steps: Sequence[Step],
    *,
    architecture: Architecture,
    has_threads: bool,
    stamps: Stamps | None = None,
    status: int | None = None,
) -> None:
    """Adds `run`, `work` and `stop` to the module, which `runtime.memory.Code` describes. Without a team, `work`
    and `stop` do nothing. With `stamps`, runs write time stamps, and
    the entry `clock` is added. `status` is the offset in the arena of the status word of runs that may be refused.
    """
    shared = shared_steps(steps, has_threads=has_threads)
    table = None if stamps else StepTable.of(steps)
    if table:
        table.write_call(module)
    _write_alone(module, steps, stamps, table)
    if stamps:
        stamps.write_clock(module)
    if shared:
        _write_dispatch(module, steps, table)
        write_wait_and_wake(module, architecture)
        _write_claim(module)
        _write_await(module)
        _write_share(module, stamps)
        _write_pass(module, steps, shared[-1], stamps)
        team.write_learn(module)
        _write_help(module)
    _write_infer(module, architecture, stamps, has_team=bool(shared))
    _write_run(module, architecture, status)
    _write_work(module, architecture, has_team=bool(shared))
    _write_stop(module, has_team=bool(shared))


def _write_dispatch(module: Module, steps: Sequence[Step], table: StepTable | None) -> None:
    """`void dispatch(arena, weights, io, chunk, scratch, step)`: runs one chunk of one step."""
    parameters = [("arena", POINTER), ("weights", POINTER), ("io", POINTER), ("chunk", INDEX), ("scratch", POINTER)]
    f = module.function("dispatch", [*parameters, ("step", INDEX)])
    *arguments, step = f.parameters
    if table:
        _call_by_table(f, table, arguments, step)
        return
    labels = [f"step{i}" for i in range(len(steps))]
    cases = " ".join(f"i64 {i}, label %{label}" for i, label in enumerate(labels))
    f.do(f"switch {step}, label %end [{cases}]")
    for label, body in zip(labels, steps, strict=True):
        f.start_block(label)
        _call_jobs(f, body.jobs, arguments)
    f.start_block("end")
    f.finish()


@dataclass(frozen=True)
class _Piece:
    """Chunks of one job that follow each other in a step.

    Attributes:
        job: the number of the job in its step.
        end: chunks of the step up to the end of the piece.
        shift: added to a chunk of the step, its number within the job.
    """

    job: int
    end: int
    shift: int


def _pieces(jobs: Sequence[Job]) -> list[_Piece]:
    """The chunks of several jobs take turns, by parts of each job: so the first range of a step has the first part of
    every job, and a thread always has the same part of an image."""
    pieces, end = list[_Piece](), 0
    ends = [part / RANGES for part in range(RANGES + 1)] if len(jobs) > 1 else [0, 1]
    for low, high in pairwise(ends):
        for number, job in enumerate(jobs):
            first, last = int(low * job.chunks), int(high * job.chunks)
            if first < last:
                pieces.append(_Piece(number, end + last - first, first - end))
                end += last - first
    return pieces


def _call_jobs(f: Function, jobs: Sequence[Job], arguments: list[Value]) -> None:
    """Calls the job to which the chunk belongs, with the chunk's number within the job."""
    *spaces, chunk, scratch = arguments
    pieces, calls = _pieces(jobs), [f.new_label("call") for _ in jobs]
    shifts: list[list[str]] = [[] for _ in jobs]

    def find(low: int, high: int) -> None:
        """Jumps to the call of one of the pieces from `low` to `high` - 1: grouped layers have a thousand."""
        if high - low == 1:
            shifts[pieces[low].job].append(f"[{pieces[low].shift}, %{f.label}]")
            f.jump(calls[pieces[low].job])
            return
        middle = (low + high) // 2
        before, after = f.new_label("before"), f.new_label("after")
        f.branch(f.compare("ult", chunk, pieces[middle - 1].end), before, after)
        f.start_block(before)
        find(low, middle)
        f.start_block(after)
        find(middle, high)

    find(0, len(pieces))
    for job, call, found in zip(jobs, calls, shifts, strict=True):
        if found:  # a job of an empty part has no piece
            f.start_block(call)
            shift = f.emit(INDEX, f"phi i64 {', '.join(found)}")
            _call_job(f, job, spaces, _by_halves(job, chunk + shift), scratch)
            f.jump("end")


def _by_halves(job: Job, chunk: Value) -> Value:
    """The chunk in the order of threads: of each image all panels of the first half of its pixels, then all panels of
    the second. A thread alone goes panel by panel, which stay in its cache."""
    if job.parts % 2 or job.panels == 1:
        return chunk
    width = job.parts // 2
    return _in_halves(chunk, job.panels, job.parts, width, job.panels * width, job.panels * job.parts)


def _in_halves(chunk: Value, panels: Number, parts: Number, width: Number, of_half: Number, of_image: Number) -> Value:
    """The chunk, where a panel has `parts` chunks in an image, `width` in a half, and all panels have `of_image` and
    `of_half`."""
    image, rest = chunk // of_image, chunk % of_image
    half, index = rest // of_half, rest % of_half
    return (image * panels + index // width) * parts + half * width + index % width


def _call_by_table(f: Function, table: StepTable, arguments: list[Value], step: Value) -> None:
    """The same for all steps: looks the piece up, which are few in a step."""
    words, firsts = list[int](), list[int]()
    for body, starts in zip(table.steps, table.starts, strict=True):
        firsts.append(WORD * len(words))
        for piece in _pieces(body.jobs):
            job = body.jobs[piece.job]
            halves = (1, 0) if job.parts % 2 or job.panels == 1 else (job.panels, job.parts // 2)
            words += [piece.end, piece.shift, starts[piece.job], *halves]
    *spaces, chunk, scratch = arguments
    pieces, first = (
        Value(f, POINTER, f.module.constant(f"step_{name}", numbers))
        for name, numbers in (("pieces", words), ("firsts", firsts))
    )
    begin = pieces + f.load(INDEX, first + step * WORD, WORD)
    found = Value(f, POINTER, "%piece")
    f.enter("look")
    f.do(f"%piece = phi ptr [{begin.text}, %entry], [%following, %next]")
    f.branch(f.compare("ult", chunk, f.load(INDEX, found, WORD)), "found", "next")
    f.start_block("next")
    f.do(f"%following = getelementptr i8, {found}, i64 {PIECE_WORDS * WORD}")
    f.jump("look")
    f.start_block("found")
    shift, start, panels, width = (f.load(INDEX, found + place * WORD, WORD) for place in range(1, PIECE_WORDS))
    own, row, of_half = chunk + shift, table.row(f, start), panels * width
    f.branch(f.compare("eq", width, 0), "whole", "halves")
    f.start_block("whole")
    f.call("call", *spaces, own, scratch, row)
    f.jump("end")
    f.start_block("halves")
    f.call("call", *spaces, _in_halves(own, panels, width * 2, width, of_half, of_half * 2), scratch, row)
    f.enter("end")
    f.finish()


def _call_job(f: Function, job: Job, spaces: Sequence[Value], chunk: Value, scratch: Value) -> None:
    f.call(job.function, chunk, scratch, *(address_of(f, address, *spaces) for address in job.addresses))


def _write_alone(module: Module, steps: Sequence[Step], stamps: Stamps | None, table: StepTable | None) -> None:
    """`alone(entry parameters)`: all chunks of all steps, on the calling thread."""
    f = module.function("alone", ENTRY_PARAMETERS)
    arena, weights, io, sync, scratch = f.parameters
    if table:
        _run_table(f, table, (arena, weights, io), scratch)
        return
    for number, step in enumerate(steps):
        for job in step.jobs:

            def body(chunk: Value, job: Job = job) -> None:
                _call_job(f, job, (arena, weights, io), chunk, scratch)

            f.loop(job.chunks, body)
        if stamps:
            stamps.end(f, sync, f.load(INDEX, sync + RUNS), f.index(number))
    f.finish()


def _run_table(f: Function, table: StepTable, spaces: Sequence[Value], scratch: Value) -> None:
    """Calls all jobs in order."""
    pairs = [
        (job, start)
        for step, starts in zip(table.steps, table.starts, strict=True)
        for job, start in zip(step.jobs, starts, strict=True)
    ]
    jobs = Value(
        f, POINTER, f.module.constant("step_jobs", [word for job, start in pairs for word in (start, job.chunks)])
    )

    def body(number: Value) -> None:
        own = jobs + number * (2 * WORD)
        row, chunks = table.row(f, f.load(INDEX, own, WORD)), f.load(INDEX, own + WORD, WORD)
        f.loop(chunks, lambda chunk: f.call("call", *spaces, chunk, scratch, row))

    f.loop(len(pairs), body)
    f.finish()


def _write_claim(module: Module) -> None:
    """`i64 claim(word, run, count)`: the number of the chunk that the thread has claimed, from 0 to `count` - 1; -1 if
    none is left, or if the run is over."""
    f = Function(module, "claim", [("word", POINTER), ("run", INDEX), ("count", INDEX)], exported=False, result=INDEX)
    word, run, count = f.parameters
    base = run << 32
    f.enter("again")
    seen = load_atomic(f, INDEX, word)
    is_earlier = f.compare("slt", seen - base, 0)  # run ids wrap around
    now = f.select(is_earlier, base, seen)
    chunk = now - base
    f.branch(f.compare("ult", chunk, count), "take", "none")
    f.start_block("none")
    f.do("ret i64 -1")
    f.start_block("take")
    pair = f.emit("{ i64, i1 }", f"cmpxchg {word}, {seen}, {now + 1} seq_cst seq_cst")
    f.branch(f.emit(BOOL, f"extractvalue {pair}, 1"), "got", "again")
    f.start_block("got")
    f.do(f"ret {chunk}")
    f.close()


def _write_await(module: Module) -> None:
    """`void await(done, count)`: returns once the word `done` has reached `count`; both wrap around."""
    f = module.function("await", [("done", POINTER), ("count", I32)])
    done, count = f.parameters
    f.enter("again")
    seen = load_atomic(f, I32, done)
    f.branch(f.compare("slt", f.arithmetic("sub", seen, count), 0), "wait", "over")
    f.start_block("wait")
    f.call("wait", done, done + 4, f.cast("zext", seen, INDEX))
    f.jump("again")
    f.start_block("over")
    f.finish()


def _write_share(module: Module, stamps: Stamps | None) -> None:
    """`void share(entry parameters, number, run, first, count, word, done, all)`: claims and runs chunks of a range.

    The range is `count` chunks of step `number` from `first` on, and `all` is what `done` holds when the step is over.
    """
    own = [(name, INDEX) for name in ("number", "run", "first", "count")]
    f = module.function("share", [*ENTRY_PARAMETERS, *own, ("word", POINTER), ("done", POINTER), ("all", I32)])
    arena, weights, io, sync, scratch, number, run, first, count, word, done, all_ = f.parameters
    f.enter("next")
    chunk = f.emit(INDEX, f"call i64 @claim({word}, {run}, {count})")
    f.branch(f.compare("sge", chunk, 0), "work", "ended")
    f.start_block("work")
    f.call("dispatch", arena, weights, io, first + chunk, scratch, number)
    if stamps:
        stamps.end(f, sync, f.load(INDEX, sync + RUNS), number)
    f.branch(f.compare("eq", add_atomic(f, done, 1), all_), "last", "next")
    f.start_block("last")
    _wake_sleepers(f, done, done + 4)
    f.jump("next")
    f.start_block("ended")
    f.finish()


def _wake_sleepers(f: Function, word: Value, sleepers: Value) -> None:
    f.when(f.compare("ne", load_atomic(f, I32, sleepers), 0), lambda: f.call("wake", word))


def _write_pass(module: Module, steps: Sequence[Step], last: int, stamps: Stamps | None) -> None:
    """`void pass(entry parameters, run, thread)`: takes part in the steps of one run, in order, from the step on that
    the calling thread, thread 0, has reached. Workers leave after step `last`, the last that threads share."""
    is_followed = [*(step.is_shared for step in steps[1:]), False]
    table = module.constant("step_words", [_step_word(*pair) for pair in zip(steps, is_followed, strict=True)])
    f = module.function("pass", [*ENTRY_PARAMETERS, ("run", INDEX), ("thread", INDEX)])
    arena, weights, io, sync, scratch, run, thread = f.parameters
    threads = f.cast("zext", f.load(I32, sync + TEAM), INDEX)
    ranges = f.intrinsic("umin", INDEX, threads, f.index(RANGES))
    own = thread % ranges
    is_caller = f.compare("eq", thread, 0)
    begin = load_atomic(f, INDEX, sync + REACHED)
    f.enter("step")
    number, following = Value(f, INDEX, "%number"), Value(f, INDEX, "%following")
    f.do(f"%number = phi i64 [{begin.text}, %entry], [%following, %next]")
    words = sync + (number * STEP + FIRST_STEP)
    done = words + RANGES * LINE
    word = f.load(INDEX, Value(f, POINTER, table) + number * WORD, WORD)
    count = word >> FLAGS
    all_ = f.cast("trunc", run * count, I32)
    is_awaited = f.compare("ne", word & AWAITED, 0)
    f.branch(f.compare("ne", word & SHARED, 0), "shared", "single")

    f.start_block("single")
    f.branch(is_caller, "mine", "callers")
    f.start_block("mine")
    f.loop(count, lambda chunk: f.call("dispatch", arena, weights, io, chunk, scratch, number))
    if stamps:
        stamps.end(f, sync, f.load(INDEX, sync + RUNS), number)
    f.branch(is_awaited, "tell", "next")
    f.start_block("tell")
    store_atomic(f, all_, done)
    _wake_sleepers(f, done, done + 4)
    f.jump("next")
    f.start_block("callers")
    f.branch(is_awaited, "rest", "next")

    f.start_block("shared")
    f.when(is_caller, lambda: store_atomic(f, number, sync + REACHED))

    def range_(turn: Value) -> None:
        range_number = (own + turn) % ranges
        first = range_number * count // ranges
        size = (range_number + 1) * count // ranges - first
        f.call("share", *f.parameters[:5], number, run, first, size, words + range_number * LINE, done, all_)

    f.loop(ranges, range_)
    f.branch(is_caller, "rest", "help_ends")
    f.start_block("help_ends")
    f.branch(f.compare("eq", number, last), "over", "rest")
    f.start_block("rest")
    f.call("await", done, all_)
    f.enter("next")
    f.do("%following = add i64 %number, 1")
    f.branch(f.compare("ult", following, len(steps)), "step", "over")
    f.start_block("over")
    f.finish()


def _step_word(step: Step, is_followed: bool) -> int:
    """What `pass` has to know of a step; `is_followed` tells whether threads share the next step."""
    return step.chunks << FLAGS | (SHARED if step.is_shared else AWAITED if is_followed else 0)


def _write_run(module: Module, own: Architecture, status: int | None) -> None:
    """`i64 run(entry parameters)`: one inference; leaves the calling thread's way to treat denormals as it was. The
    result is the status word, 0 at first."""
    f = Function(module, "run", ENTRY_PARAMETERS, exported=True, result=INDEX)
    word = None if status is None else f.parameters[0] + status
    if word:
        f.store(f.index(0), word)
    before = own.flush_denormals(f)
    f.call("infer", *f.parameters)
    if before:
        own.restore_denormals(f, before)
    f.do(f"ret {f.load(INDEX, word) if word else f.index(0)}")
    f.close()


def _write_infer(module: Module, own: Architecture, stamps: Stamps | None, *, has_team: bool) -> None:
    """`infer(entry parameters)`: one inference, by the calling thread alone or with the workers."""
    f = module.function("infer", ENTRY_PARAMETERS)
    sync = f.parameters[3]
    if stamps:
        runs = f.load(INDEX, sync + RUNS) + 1
        f.store(runs, sync + RUNS)
        stamps.begin(f, sync, runs)
    if has_team:
        f.branch(f.compare("ugt", f.load(I32, sync + TEAM), 1), "team", "solo")
        f.start_block("team")
        begin = own.now(f)
        f.branch(team.is_alone(f, sync + LEARNT), "without", "with")
        f.start_block("without")
        f.call("alone", *f.parameters)
        f.jump("ran")
        f.start_block("with")
        run = f.arithmetic("add", f.load(I32, sync + RUN), 1)
        store_atomic(f, f.index(0), sync + REACHED)
        store_atomic(f, run, sync + RUN)
        _wake_sleepers(f, sync + RUN, sync + SLEEPERS)
        f.call("pass", *f.parameters, f.cast("zext", run, INDEX), f.index(0))
        f.enter("ran")
        f.call("learn", sync + LEARNT, own.now(f) - begin)
        f.do("ret void")
        f.start_block("solo")
    f.call("alone", *f.parameters)
    f.finish()


def _write_work(module: Module, own: Architecture, *, has_team: bool) -> None:
    """`void *work(void *arguments)`: the routine for pthread_create; `arguments` points to those of other entries,
    followed by the thread's number."""
    f = Function(module, "work", [("arguments", POINTER)], exported=True, result=POINTER)
    (given,) = f.parameters
    if has_team:
        own.flush_denormals(f)
        pointers = [f.load(POINTER, given + number * WORD, WORD) for number in range(len(ENTRY_PARAMETERS))]
        f.call("help", *pointers, f.load(INDEX, given + len(pointers) * WORD, WORD))
    f.do("ret ptr null")
    f.close()


def _write_help(module: Module) -> None:
    """`help(entry parameters, thread)`: joins each run until the stop flag is set."""
    f = module.function("help", [*ENTRY_PARAMETERS, ("thread", INDEX)])
    sync, thread = f.parameters[3], f.parameters[5]
    f.enter("idle")
    f.do("%seen = phi i64 [0, %entry], [%run, %join]")
    f.call("wait", sync + RUN, sync + SLEEPERS, Value(f, INDEX, "%seen"))
    current = load_atomic(f, I32, sync + RUN)
    stopped = load_atomic(f, I32, sync + STOPPED)
    f.branch(f.compare("ne", stopped, 0), "leave", "join")
    f.start_block("join")
    f.do(f"%run = zext {current} to i64")
    f.call("pass", *f.parameters[:5], Value(f, INDEX, "%run"), thread)
    f.jump("idle")
    f.start_block("leave")
    f.finish()


def _write_stop(module: Module, *, has_team: bool) -> None:
    """`stop`: sets the flag, then changes the run id so that every worker checks the flag."""
    f = module.function("stop", ENTRY_PARAMETERS, exported=True)
    sync = f.parameters[3]
    if has_team:
        store_atomic(f, f.literal(I32, 1), sync + STOPPED)
        add_atomic(f, sync + RUN, 1)
        f.call("wake", sync + RUN)
    f.finish()
