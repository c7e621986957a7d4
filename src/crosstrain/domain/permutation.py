"""The order of blocks within an epoch, fixed for ever.

Durstenfeld's shuffle (CACM 7(7), 1964, algorithm 235) of 0 .. M-1, drawing j uniformly from 0 .. i for i = M-1 .. 1. The
integers come from SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) seeded with mix(mix(seed) + epoch + 1); a draw below n
takes the next 64-bit value r with r < 2^64 - (2^64 mod n), modulo n, so that it is exactly uniform. Golden values are
in tests/domain/test_permutation.py: a change here would silently train other data.
"""

from __future__ import annotations

from array import array

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


def _mix(value: int) -> int:
    value = (value + _GAMMA) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def epoch_order(blocks: int, seed: int, epoch: int) -> array[int]:
    """Block number at every position of an epoch.

    Args:
        blocks: M, the number of blocks of the corpus.
        seed: the run's seed, 0 <= seed < 2^63.
        epoch: 0 for the first pass.

    Returns:
        Unsigned 32- or 64-bit integers, length M; 4 M bytes below 2^32 blocks. Only sites hold it: the coordinator's
        ledger speaks of positions.
    """
    order = array("I" if blocks < 2**32 else "Q", range(blocks))
    state = _mix(_mix(seed & _MASK) + epoch + 1)
    for i in range(blocks - 1, 0, -1):
        bound = i + 1
        limit = _MASK - ((_MASK + 1) % bound)
        while True:
            state = (state + _GAMMA) & _MASK
            draw = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
            draw = ((draw ^ (draw >> 27)) * 0x94D049BB133111EB) & _MASK
            draw ^= draw >> 31
            if draw <= limit:
                break
        j = draw % bound
        order[i], order[j] = order[j], order[i]
    return order
