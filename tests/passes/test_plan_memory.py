"""Memory planning: what is alive together lies apart, what is not shares memory."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jitdelegate.targets.planning.buffer_plan import Life, plan_memory

LIVES = st.lists(
    st.builds(
        lambda size, first, length: Life(size, first, first + length),
        st.integers(0, 5000),
        st.integers(0, 12),
        st.integers(0, 5),
    ),
    max_size=24,
)

BUSY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""On a busy machine, any of the draws may wait a second for its turn."""


@BUSY
@given(LIVES)
def test_blocks_that_are_alive_together_do_not_overlap(lives: list[Life]) -> None:
    size, offsets = plan_memory(dict(enumerate(lives)), align=64)
    blocks = [(life, offsets[number]) for number, life in enumerate(lives)]
    for number, (life, offset) in enumerate(blocks):
        assert offset % 64 == 0
        assert offset + life.size <= size
        for other, start in blocks[:number]:
            if other.first <= life.last and life.first <= other.last and other.size and life.size:
                assert offset + life.size <= start or start + other.size <= offset


def test_a_chain_needs_the_two_largest_neighbours_only() -> None:
    sizes = [640, 1280, 64, 1280, 640]
    lives = {step: Life(size, step, step + 1) for step, size in enumerate(sizes)}
    assert plan_memory(lives)[0] == 640 + 1280


def test_nothing_needs_nothing() -> None:
    assert plan_memory({}) == (0, {})
