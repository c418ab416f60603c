"""Decides at run time whether workers help: they do while that is faster than the calling thread alone.

Two CPUs may be two cores or two hyperthreads of one, on a virtual machine at one time this and at another that; and
another process may keep a CPU busy. So now and then a few runs try the other way: alone in place of with workers, or
the reverse. Trials are as rare as they are dear, so that all of them take less than a hundredth of the time. Runs that
are suddenly slower than usual bring the next trial forward.

One run of a large network takes as long as hundreds of small ones. So its trials last one run, and the first one waits
until it, too, costs no more than a hundredth where two threads share runs.

Between trials the time of runs counts, not their number. `runtime/cpu/team_past.py` keeps the first five words of what
is remembered, and a new process goes on from there.
"""

from __future__ import annotations

from jitdelegate.targets.cpu.code.vector_ir import BOOL, INDEX, POINTER, Function, Module, Value

WORD = 8
ALONE, IS_TRIAL, AGE, LIMIT, USUAL, SLOW, LAST = (WORD * number for number in range(7))
"""Offsets of what is remembered: whether runs are alone now, whether this is a trial, how many runs it has lasted or
how many ticks have passed since one, how many pass until the next one, the usual ticks of a run, how many runs in a row
were slow; the next word too holds the ticks of earlier runs. All are 0 at first."""
TRIAL = 4
"""Runs of a trial. The first does not count: workers may be asleep and caches hold other data."""
SOONEST, LATEST = 32, 4096
"""Shortest and longest time between two trials, in usual runs."""
FIRST = 8
"""The time before the first trial, in usual runs."""
LONG = 1 << 23
"""Ticks of a run, 2 to 4 ms on x86-64, of which one is enough for a trial, without another one that does not count."""
COST = 128
"""A trial may cost one part in this many of the time until the next."""
BETTER, LONG_BETTER = 32, 8
"""The other way has to be faster by one part in this many to be kept; more where one run decides."""
MANY_SLOW = 4
"""Runs in a row, each half as long again as usual, before a trial is brought forward. Clocks alone vary by a third."""


def is_alone(f: Function, memory: Value) -> Value:
    """Whether the next run is the calling thread's alone."""
    return f.compare("ne", f.load(INDEX, memory + ALONE), 0)


def write_learn(module: Module, *, exported: bool = False) -> None:
    """`void learn(memory, ticks)`: takes note of how long a run took, and changes between both ways to run."""
    f = module.function("learn", [("memory", POINTER), ("ticks", INDEX)], exported=exported)
    memory, ticks = f.parameters
    alone, trial, age, limit, usual, slow, one, two = (f.load(INDEX, memory + WORD * k) for k in range(8))
    median = _median(f, one, two, ticks)
    f.store(two, memory + LAST)
    f.store(ticks, memory + LAST + WORD)
    is_long = f.compare("ugt", median, LONG)
    usual = f.select(f.compare("eq", usual, 0), median, usual)
    is_slow = f.compare("ugt", ticks * 2, usual * 3)
    slow = f.select(is_slow, slow + 1, f.index(0))
    is_trial = f.compare("ne", trial, 0)
    is_first = f.compare("eq", two, 0)  # of the process, which takes as long as several
    passed = f.select(is_first, f.index(0), ticks)
    age = age + f.select(is_trial, f.index(1), passed)
    first = f.select(is_long, f.index(COST), f.index(FIRST)) * median
    limit = f.select(f.compare("eq", limit, 0), first, limit)
    f.store(age, memory + AGE)
    f.store(limit, memory + LIMIT)
    f.store(usual, memory + USUAL)
    f.store(slow, memory + SLOW)
    runs = f.select(is_long, f.index(1), f.index(TRIAL))
    has_limit = f.compare("ne", limit, 0)
    is_over = f.compare("uge", age, f.select(is_trial, runs, limit))
    is_due = f.emit(BOOL, f"and {has_limit}, {is_over.text}")
    surprises = f.select(is_trial, f.index(0), slow)
    is_urgent = f.compare("uge", surprises, MANY_SLOW)
    time = f.select(f.emit(BOOL, f"and {is_trial}, {is_long.text}"), ticks, median)

    def change() -> None:
        """Begins or ends a trial."""
        better = f.select(is_long, f.index(LONG_BETTER), f.index(BETTER))
        wins = f.compare("ult", time * better, usual * (better - 1))
        stays = f.emit(BOOL, f"and {is_trial}, {wins.text}")
        f.store(f.select(stays, alone, alone ^ 1), memory + ALONE)
        f.store(f.cast("zext", f.compare("eq", is_trial, 0), INDEX), memory + IS_TRIAL)
        f.store(f.index(0), memory + AGE)
        f.store(f.index(0), memory + SLOW)
        kept = f.select(f.emit(BOOL, f"xor {is_trial}, {stays.text}"), usual, time)
        f.store(kept, memory + USUAL)
        loss = f.intrinsic("umax", INDEX, time, usual) - f.intrinsic("umin", INDEX, time, usual)
        rare = f.intrinsic("umax", INDEX, loss * runs * COST, kept * SOONEST)
        rare = f.intrinsic("umin", INDEX, rare, kept * LATEST)
        soon = f.select(is_long, f.index(TRIAL), f.index(SOONEST)) * kept
        f.store(f.select(stays, soon, rare), memory + LIMIT)  # a change is soon looked at again

    f.when(f.emit(BOOL, f"or {is_due}, {is_urgent.text}"), change)
    f.finish()


def _median(f: Function, a: Value, b: Value, c: Value) -> Value:
    low, high = f.intrinsic("umin", INDEX, a, b), f.intrinsic("umax", INDEX, a, b)
    return f.intrinsic("umax", INDEX, low, f.intrinsic("umin", INDEX, high, c))
