"""The words of a thread: the first ones are parameters and results of pieces of PTX."""

WARP, WORDS = 32, 64
SCOPE, SITE, COLLECTIVE = 32, 33, 34
"""For whom the thread waits, and where; the address of the function that the warp's lanes call together there."""
SHARED, STRIDE, RANK = 36, 38, 39
"""The address of its shared memory, the bytes from there to that of the cluster's next block, and the number of its own
block in the cluster."""
REGISTERS = 40
SPECIAL = ("tid.x", "ctaid.x", "ctaid.y", "ctaid.z", "nctaid.x", "nctaid.y", "nctaid.z")
"""Special registers, from `REGISTERS` on."""
FINISHED, OF_WARP, OF_BLOCK, OF_CLUSTER = range(4)
"""Scopes of a wait."""
