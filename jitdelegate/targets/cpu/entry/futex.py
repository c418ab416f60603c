"""Atomic memory operations, and waiting for a word to change: a thread spins for a while, then sleeps in a futex by a
direct system call, so that the code needs no library."""

from __future__ import annotations

from jitdelegate.targets.cpu.code.vector_ir import INDEX, POINTER, Function, Module, Value
from jitdelegate.targets.cpu.entry.architecture import Architecture

I32 = "i32"
SPINS = 1000
"""Pauses before a thread sleeps: a few dozen microseconds, longer than most steps take to end."""
WAIT_PRIVATE, WAKE_PRIVATE, EVERYONE = 128, 129, 0x7FFFFFFF


def load_atomic(f: Function, type_: str, pointer: Value) -> Value:
    return f.emit(type_, f"load atomic {type_}, {pointer} seq_cst, align {8 if type_ == INDEX else 4}")


def store_atomic(f: Function, value: Value, pointer: Value) -> None:
    f.do(f"store atomic {value}, {pointer} seq_cst, align {8 if value.type == INDEX else 4}")


def add_atomic(f: Function, pointer: Value, amount: int) -> Value:
    """Adds to a 32-bit counter; returns the new value."""
    old = f.emit(I32, f"atomicrmw add {pointer}, i32 {amount} seq_cst")
    return f.arithmetic("add", old, amount)


def write_wait_and_wake(module: Module, own: Architecture) -> None:
    """`wake(word)` wakes all sleepers on a word; `sleep(word, value)` sleeps while the word holds the value;
    `wait(word, sleepers, value)` returns once the 32-bit word is no longer `value`."""
    f = module.function("wake", [("word", POINTER)])
    own.wake(f, WAKE_PRIVATE, EVERYONE)
    f.finish()
    f = module.function("sleep", [("word", POINTER), ("value", INDEX)])
    own.sleep(f, WAIT_PRIVATE)
    f.finish()
    _write_wait(module, own)


def _write_wait(module: Module, own: Architecture) -> None:
    f = module.function("wait", [("word", POINTER), ("sleepers", POINTER), ("value", INDEX)])
    word, sleepers, value = f.parameters
    wanted = f.cast("trunc", value, I32)
    spin, pause, doze, check, fall_asleep, woken, done = (
        f.new_label(label) for label in ("spin", "pause", "doze", "check", "asleep", "woken", "done")
    )
    f.enter(spin)
    count = Value(f, INDEX, f.name_value())
    more = Value(f, INDEX, f.name_value())
    f.do(f"{count.text} = phi i64 [0, %entry], [{more.text}, %{pause}]")
    f.branch(f.compare("ne", load_atomic(f, I32, word), wanted), done, pause)
    f.start_block(pause)
    own.pause(f)
    f.do(f"{more.text} = add i64 {count.text}, 1")
    f.branch(f.compare("ult", more, SPINS), spin, doze)
    f.start_block(doze)
    add_atomic(f, sleepers, 1)
    f.enter(check)
    f.branch(f.compare("ne", load_atomic(f, I32, word), wanted), woken, fall_asleep)
    f.start_block(fall_asleep)
    f.call("sleep", word, value)
    f.jump(check)
    f.start_block(woken)
    add_atomic(f, sleepers, -1)
    f.enter(done)
    f.finish()
