"""The compiled entry of a whole graph: threads claim chunks of one step after another.

Each step has a claim word (run id << 32 | next chunk) and a counter of unfinished chunks, on separate cache lines. A
thread claims chunks by compare-exchange until none is left, then waits until all are done. A late thread sees another
run id and leaves. The calling thread can finish every step alone, so a busy machine loses only the help of workers.
A waiting thread spins for a while, then sleeps in a futex by a direct system call: the code needs no library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jitdelegate.targets.cpu.kernel import Job, Step
from jitdelegate.targets.cpu.stamps import Stamps
from jitdelegate.targets.cpu.vector_ir import BOOL, INDEX, POINTER, Function, Module, Value

ENTRY_PARAMETERS = (
    ("arena", POINTER),
    ("weights", POINTER),
    ("io", POINTER),
    ("sync", POINTER),
    ("scratch", POINTER),
)
WORD = 8
LINE = 64
SPINS = 1000
"""Pauses before a thread sleeps: a few dozen microseconds, longer than most steps take to end."""
RUN, SLEEPERS, STOPPED, FIRST_STEP = 0, 4, LINE, 2 * LINE
"""Offsets in the sync memory: run id, count of workers asleep between runs, stop flag; then two cache lines a step."""
FUTEX, WAIT_PRIVATE, WAKE_PRIVATE, EVERYONE = 202, 128, 129, 0x7FFFFFFF
I32 = "i32"


def sync_bytes(steps: int) -> int:
    """Size of the sync memory for a program of `steps` steps."""
    return FIRST_STEP + 2 * LINE * max(steps, 1)


def write_entries(module: Module, steps: Sequence[Step], *, has_threads: bool, stamps: Stamps | None = None) -> None:
    """Adds `run`, `work` and `stop` to the module, which `runtime.cpu.library.Code` describes. Without threads, `work`
    and `stop` do nothing. With `stamps`, runs write time stamps, and the entry `clock` is added.

    If no step has more than one chunk, workers would only cost time: such a graph runs on the calling thread alone.
    """
    _write_dispatch(module, steps)
    if stamps:
        stamps.write_clock(module)
    if not has_threads or all(sum(job.chunks for job in step.jobs) == 1 for step in steps):
        _write_alone(module, steps, stamps)
        return
    chunks = module.constant("chunk_counts", [sum(job.chunks for job in step.jobs) for step in steps] or [0])
    _write_wake_and_sleep(module)
    _write_claim(module)
    _write_pass(module, chunks, len(steps), stamps)
    _write_run(module, len(steps), stamps)
    _write_help(module)
    _write_work(module, lambda f, arguments: f.call("help", *arguments))
    _write_stop(module)


def _write_dispatch(module: Module, steps: Sequence[Step]) -> None:
    """`void dispatch(arena, weights, io, chunk, scratch, step)`: runs one chunk of one step."""
    parameters = [("arena", POINTER), ("weights", POINTER), ("io", POINTER), ("chunk", INDEX), ("scratch", POINTER)]
    f = module.function("dispatch", [*parameters, ("step", INDEX)])
    *arguments, step = f.parameters
    labels = [f"step{i}" for i in range(len(steps))]
    cases = " ".join(f"i64 {i}, label %{label}" for i, label in enumerate(labels))
    f.do(f"switch {step}, label %end [{cases}]")
    for label, body in zip(labels, steps, strict=True):
        f.start_block(label)
        _call_jobs(f, body.jobs, arguments)
    f.start_block("end")
    f.finish()


def _call_jobs(f: Function, jobs: Sequence[Job], arguments: list[Value]) -> None:
    """Calls the job to which the chunk belongs, with the chunk's number within the job."""
    arena, weights, io, chunk, scratch = arguments
    for job in jobs[:-1]:
        inside, after = f.new_label("job"), f.new_label("next")
        f.branch(f.compare("ult", chunk, job.chunks), inside, after)
        f.start_block(inside)
        f.call(job.function, arena, weights, io, chunk, scratch)
        f.jump("end")
        f.start_block(after)
        chunk = chunk - job.chunks
    f.call(jobs[-1].function, arena, weights, io, chunk, scratch)
    f.jump("end")


def _write_alone(module: Module, steps: Sequence[Step], stamps: Stamps | None) -> None:
    f = module.function("run", ENTRY_PARAMETERS, exported=True)
    arena, weights, io, sync, scratch = f.parameters
    run = _count_run(f, sync) if stamps else f.index(0)
    if stamps:
        stamps.begin(f, sync, run)
    for number, step in enumerate(steps):

        def body(chunk: Value, number: int = number) -> None:
            f.call("dispatch", arena, weights, io, chunk, scratch, f.index(number))

        f.loop(sum(job.chunks for job in step.jobs), body)
        if stamps:
            stamps.end(f, sync, run, f.index(number))
    f.finish()
    module.function("stop", ENTRY_PARAMETERS, exported=True).finish()
    _write_work(module, lambda f, arguments: None)


def _count_run(f: Function, sync: Value) -> Value:
    """Counts the run that begins and returns its number; `_write_run` counts runs likewise."""
    run = f.arithmetic("add", f.load(I32, sync + RUN), 1)
    f.store(run, sync + RUN)
    return f.cast("zext", run, INDEX)


# atomics and system calls


def _load_acquire(f: Function, type_: str, pointer: Value) -> Value:
    return f.emit(type_, f"load atomic {type_}, {pointer} seq_cst, align {8 if type_ == INDEX else 4}")


def _store_release(f: Function, value: Value, pointer: Value) -> None:
    f.do(f"store atomic {value}, {pointer} seq_cst, align {8 if value.type == INDEX else 4}")


def _add_atomic(f: Function, pointer: Value, amount: int) -> Value:
    """Adds to a 32-bit counter; returns the new value."""
    old = f.emit(I32, f"atomicrmw add {pointer}, i32 {amount} seq_cst")
    return f.arithmetic("add", old, amount)


def _pause(f: Function) -> None:
    f.do('call void asm sideeffect "pause", ""()')


def _write_wake_and_sleep(module: Module) -> None:
    """`wake(word)` wakes all sleepers on a word; `sleep(word, value)` sleeps while the word holds the value."""
    f = module.function("wake", [("word", POINTER)])
    registers = "={rax},{rax},{rdi},{rsi},{rdx},~{rcx},~{r11},~{memory}"
    f.do(
        f'call i64 asm sideeffect "syscall", "{registers}"(i64 {FUTEX}, ptr %word, i64 {WAKE_PRIVATE}, i64 {EVERYONE})'
    )
    f.finish()
    f = module.function("sleep", [("word", POINTER), ("value", INDEX)])
    registers = "={rax},{rax},{rdi},{rsi},{rdx},~{r10},~{rcx},~{r11},~{flags},~{memory}"
    f.do(
        f'call i64 asm sideeffect "xorq %r10, %r10; syscall", "{registers}"'
        f"(i64 {FUTEX}, ptr %word, i64 {WAIT_PRIVATE}, i64 %value)"
    )
    f.finish()
    _write_wait(module)


def _write_wait(module: Module) -> None:
    """`wait(word, sleepers, value)` returns once the 32-bit word is no longer `value`: spins, then sleeps."""
    f = module.function("wait", [("word", POINTER), ("sleepers", POINTER), ("value", INDEX)])
    word, sleepers, value = f.parameters
    wanted = f.cast("trunc", value, I32)
    spin, pause, doze, check, fall_asleep, woken, done = (
        f.new_label(label) for label in ("spin", "pause", "doze", "check", "asleep", "woken", "done")
    )
    f.jump(spin)
    f.start_block(spin)
    count = Value(f, INDEX, f.name_value())
    more = Value(f, INDEX, f.name_value())
    f.do(f"{count.text} = phi i64 [0, %entry], [{more.text}, %{pause}]")
    f.branch(f.compare("ne", _load_acquire(f, I32, word), wanted), done, pause)
    f.start_block(pause)
    _pause(f)
    f.do(f"{more.text} = add i64 {count.text}, 1")
    f.branch(f.compare("ult", more, SPINS), spin, doze)
    f.start_block(doze)
    _add_atomic(f, sleepers, 1)
    f.jump(check)
    f.start_block(check)
    f.branch(f.compare("ne", _load_acquire(f, I32, word), wanted), woken, fall_asleep)
    f.start_block(fall_asleep)
    f.call("sleep", word, value)
    f.jump(check)
    f.start_block(woken)
    _add_atomic(f, sleepers, -1)
    f.jump(done)
    f.start_block(done)
    f.finish()


def _write_claim(module: Module) -> None:
    """`i64 claim(word, run, chunks)`: the number of the chunk that the thread has claimed, -1 if none is left, -2 if
    the run is over."""
    f = Function(module, "claim", [("word", POINTER), ("run", INDEX), ("chunks", INDEX)], exported=False, result=INDEX)
    word, run, chunks = f.parameters
    base = f.emit(INDEX, f"shl {run}, 32")
    f.jump("again")
    f.start_block("again")
    seen = _load_acquire(f, INDEX, word)
    chunk = seen - base
    f.branch(f.compare("ult", chunk, 1 << 32), "ours", "stale")
    f.start_block("stale")
    f.do("ret i64 -2")
    f.start_block("ours")
    f.branch(f.compare("ult", chunk, chunks), "take", "none")
    f.start_block("none")
    f.do("ret i64 -1")
    f.start_block("take")
    following = seen + 1
    pair = f.emit("{ i64, i1 }", f"cmpxchg {word}, {seen}, {following} seq_cst seq_cst")
    taken = f.emit(BOOL, f"extractvalue {pair}, 1")
    f.branch(taken, "got", "again")
    f.start_block("got")
    f.do(f"ret {chunk}")
    f.close()


def _write_pass(module: Module, chunks: str, steps: int, stamps: Stamps | None) -> None:
    """`void pass(arena, weights, io, sync, scratch, run)`: helps with every step of one run, in order.

    A step has two cache lines: one with the claim word; one with the 32-bit counter of unfinished chunks, which ends at
    0, and the number of threads asleep on it.
    """
    f = module.function("pass", [*ENTRY_PARAMETERS, ("run", INDEX)])
    arena, weights, io, sync, scratch, run = f.parameters
    f.jump("step")
    f.start_block("step")
    number = Value(f, INDEX, "%number")
    f.do("%number = phi i64 [0, %entry], [%following, %finished]")
    claim_word = sync + (number * (2 * LINE) + FIRST_STEP)
    left = claim_word + LINE
    count = f.load(INDEX, Value(f, POINTER, chunks) + number * 8, 8)
    f.jump("next")
    f.start_block("next")
    chunk = f.emit(INDEX, f"call i64 @claim({claim_word}, {run}, {count})")
    f.branch(f.compare("sge", chunk, 0), "work", "ended")
    f.start_block("work")
    f.call("dispatch", arena, weights, io, chunk, scratch, number)
    if stamps:
        stamps.end(f, sync, run, number)
    remaining = _add_atomic(f, left, -1)
    f.branch(f.compare("eq", remaining, 0), "last", "next")
    f.start_block("last")
    f.branch(f.compare("ne", _load_acquire(f, I32, left + 4), 0), "wake_others", "next")
    f.start_block("wake_others")
    f.call("wake", left)
    f.jump("next")
    f.start_block("ended")
    f.branch(f.compare("eq", chunk, -2), "over", "wait_for_rest")
    f.start_block("wait_for_rest")
    value = _load_acquire(f, I32, left)
    f.branch(f.compare("eq", value, 0), "finished", "still_running")
    f.start_block("still_running")
    f.call("wait", left, left + 4, f.cast("zext", value, INDEX))
    f.jump("wait_for_rest")
    f.start_block("finished")
    f.do("%following = add i64 %number, 1")
    f.branch(f.compare("ult", Value(f, INDEX, "%following"), steps), "step", "over")
    f.start_block("over")
    f.finish()


def _write_run(module: Module, steps: int, stamps: Stamps | None) -> None:
    """`run`: opens a new run id for every step, wakes the workers and takes part."""
    f = module.function("run", ENTRY_PARAMETERS, exported=True)
    sync = f.parameters[3]
    if steps:
        old = f.load(I32, sync + RUN)
        run32 = f.arithmetic("add", old, 1)
        run = f.cast("zext", run32, INDEX)
        base = f.emit(INDEX, f"shl {run}, 32")
        chunks = Value(f, POINTER, "@chunk_counts")

        def reset(number: Value) -> None:
            claim_word = sync + (number * (2 * LINE) + FIRST_STEP)
            count = f.cast("trunc", f.load(INDEX, chunks + number * 8, 8), I32)
            _store_release(f, count, claim_word + LINE)
            _store_release(f, base, claim_word)

        f.loop(steps, reset)
        if stamps:
            stamps.begin(f, sync, run)
        _store_release(f, run32, sync + RUN)
        f.when(f.compare("ne", _load_acquire(f, I32, sync + SLEEPERS), 0), lambda: f.call("wake", sync + RUN))
        f.call("pass", *f.parameters, run)
    f.finish()


def _write_work(module: Module, life: Callable[[Function, list[Value]], None]) -> None:
    """`void *work(void *arguments)`: the routine for pthread_create; `arguments` points to those of other entries."""
    f = Function(module, "work", [("arguments", POINTER)], exported=True, result=POINTER)
    (given,) = f.parameters
    life(f, [f.load(POINTER, given + number * WORD, WORD) for number in range(len(ENTRY_PARAMETERS))])
    f.do("ret ptr null")
    f.close()


def _write_help(module: Module) -> None:
    """`help`: joins each run until the stop flag is set."""
    f = module.function("help", ENTRY_PARAMETERS)
    sync = f.parameters[3]
    f.jump("idle")
    f.start_block("idle")
    f.do("%seen = phi i64 [0, %entry], [%run, %join]")
    seen = Value(f, INDEX, "%seen")
    f.call("wait", sync + RUN, sync + SLEEPERS, seen)
    current = _load_acquire(f, I32, sync + RUN)
    stopped = _load_acquire(f, I32, sync + STOPPED)
    f.branch(f.compare("ne", stopped, 0), "leave", "join")
    f.start_block("join")
    f.do(f"%run = zext {current} to i64")
    f.call("pass", *f.parameters, Value(f, INDEX, "%run"))
    f.jump("idle")
    f.start_block("leave")
    f.finish()


def _write_stop(module: Module) -> None:
    """`stop`: sets the flag, then changes the run id so that every worker checks the flag."""
    f = module.function("stop", ENTRY_PARAMETERS, exported=True)
    sync = f.parameters[3]
    _store_release(f, f.literal(I32, 1), sync + STOPPED)
    _add_atomic(f, sync + RUN, 1)
    f.call("wake", sync + RUN)
    f.finish()
