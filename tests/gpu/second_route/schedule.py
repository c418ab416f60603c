"""Runs the threads of a grid one after another, each of them to where it waits for others."""

from __future__ import annotations

import numpy as np
from numba import njit

from tests.gpu.second_route import row
from tests.gpu.second_route.native import call
from tests.gpu.second_route.row import WARP

PROBLEMS = ("", "lanes of a warp wait at different places", "some threads never come to a barrier")
DONE, APART, STUCK = range(3)


@njit(nogil=True)
def run_grid(functions, arguments, grid, threads, cluster, nbytes, orders):
    """Runs a kernel; the number of its problem.

    Args:
        functions: the addresses of those that start, resume and destroy a coroutine.
        arguments: the address of the arguments, 8 bytes each.
        threads: of a block; whole warps.
        cluster: neighbouring blocks along z that run together.
        nbytes: shared memory of a block.
        orders: in which order clusters, warps of a cluster, and lanes of a warp run.
    """
    start, resume, destroy = functions
    clusters, warps, lanes = orders
    layer, problem = grid[0] * grid[1], DONE
    rows, memory = np.zeros((cluster * threads, row.WORDS), np.uint32), np.empty(cluster * nbytes, np.uint8)
    handles = np.zeros(len(rows), np.int64)
    for number in clusters:
        memory[:] = 0xFF  # NaN: nothing may rely on zeros
        for thread in range(len(rows)):
            own, rank, place = rows[thread], thread // threads, number % layer
            own[:], own[row.SCOPE], own[row.STRIDE], own[row.RANK] = 0, row.OF_WARP, nbytes, rank
            own.view(np.int64)[row.SHARED // 2] = memory.ctypes.data + rank * nbytes
            position = (thread % threads, place % grid[0], place // grid[0], number // layer * cluster + rank)
            for k, value in enumerate((*position, *grid)):
                own[row.REGISTERS + k] = value
        handles[:] = 0
        problem = _run_cluster(start, resume, arguments, rows, handles, threads // WARP, warps, lanes)
        for handle in handles[handles != 0]:
            call(destroy, handle, 0)
        if problem != DONE:
            break
    return problem


@njit
def _run_cluster(start, resume, arguments, rows, handles, warps_of_block, warps, lanes):
    """Runs blocks together, each warp as far as it comes without the others; the number of the problem."""
    while (rows[:, row.SCOPE] != row.FINISHED).any():
        is_stuck = True
        for warp in warps:
            while rows[warp * WARP, row.SCOPE] == row.OF_WARP:
                is_stuck = False
                if not _go_on(start, resume, arguments, rows, handles, warp, lanes):
                    return APART
            scope = rows[warp * WARP, row.SCOPE]
            first = warp // warps_of_block * warps_of_block if scope == row.OF_BLOCK else 0
            last = first + warps_of_block if scope == row.OF_BLOCK else len(warps)
            if scope == row.FINISHED or not (rows[first * WARP : last * WARP : WARP, row.SCOPE] == scope).all():
                continue
            is_stuck = False
            for member in warps:
                if first <= member < last and not _go_on(start, resume, arguments, rows, handles, member, lanes):
                    return APART
        if is_stuck:
            return STUCK
    return DONE


@njit
def _go_on(start, resume, arguments, rows, handles, warp, lanes):
    """Runs a warp to where its lanes wait next; False if they do not all wait at the same place now."""
    own = rows[warp * WARP : warp * WARP + WARP]
    if not (own[:, row.SITE] == own[0, row.SITE]).all():
        return False
    if own[0, row.COLLECTIVE : row.COLLECTIVE + 2].any():
        call(own[0].view(np.int64)[row.COLLECTIVE // 2], own.ctypes.data, 0)
    for thread in warp * WARP + lanes:
        if handles[thread]:
            call(resume, handles[thread], 0)
        else:
            handles[thread] = call(start, rows[thread].ctypes.data, arguments)
    return True
