"""Which documents are duplicates and which are held out, from a table of digests and lengths alone.

A document is held out if the first 8 bytes of its digest are below `fraction` of their range: the choice depends on its
content, not on where it stands or what stands beside it, and copies of a document always go the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from crosstrain.domain.plural import counted
from crosstrain.errors import UsageError

TRAIN, HELDOUT, DROPPED, CUT = range(4)
"""CUT: the beginning goes to train, the end is held out."""

Table = npt.NDArray[np.void]
Rule = Literal["documents", "tail-of-one-document", "none"]


@dataclass(frozen=True, slots=True)
class Assignment:
    """Where every document of the table goes.

    Attributes:
        destinations: one of TRAIN, HELDOUT, DROPPED, CUT per row.
        tail_tokens: of a CUT document, how many of its last tokens are held out.
        duplicates: rows that equal an earlier one.
    """

    destinations: npt.NDArray[np.int8]
    rule: Rule
    tail_tokens: int
    duplicates: int


@dataclass(frozen=True, slots=True)
class _Unique:
    """Different documents in the order of their digests; `cost` counts all kept copies and an end of text after each."""

    high: npt.NDArray[np.uint64]
    tokens: npt.NDArray[np.int64]
    copies: npt.NDArray[np.int64]

    @property
    def cost(self) -> npt.NDArray[np.int64]:
        cost: npt.NDArray[np.int64] = self.copies * (self.tokens + 1)
        return cost


def assign(table: Table, fraction: float, keep_duplicates: bool, seq_len: int) -> Assignment:
    """Decides for every row (columns high, low, tokens).

    Raises:
        UsageError: fewer tokens than a window in each split takes.
    """
    order = np.lexsort((table["low"], table["high"]))
    ranked = table[order]
    first = np.ones(len(order), bool)
    first[1:] = (ranked["high"][1:] != ranked["high"][:-1]) | (ranked["low"][1:] != ranked["low"][:-1])
    sizes = np.diff(np.append(np.flatnonzero(first), len(order)))
    unique = _Unique(
        ranked["high"][first],
        ranked["tokens"][first].astype(np.int64),
        sizes if keep_duplicates else np.ones_like(sizes),
    )
    chosen, rule, tail = _choose(unique, fraction, seq_len)
    spread = np.repeat(chosen, sizes)
    if not keep_duplicates:
        spread[~first] = DROPPED
    destinations = np.empty(len(order), np.int8)
    destinations[order] = spread
    return Assignment(destinations, rule, tail, int(len(order) - len(sizes)))


def _choose(unique: _Unique, fraction: float, seq_len: int) -> tuple[npt.NDArray[np.int8], Rule, int]:
    chosen = np.full(len(unique.tokens), TRAIN, np.int8)
    total = int(unique.cost.sum()) - 1
    if fraction == 0.0:
        _require(total, seq_len + 1, "one window", seq_len)
        return chosen, "none", 0
    _require(total, 2 * (seq_len + 1), "a window to train on and one to hold out", seq_len)
    if _hold_out_documents(unique, fraction, seq_len, chosen):
        return chosen, "documents", 0
    chosen[:] = TRAIN
    longest = int(np.argmax(unique.tokens))
    copies = int(unique.copies[longest])
    room = min(int(unique.tokens[longest]) - 1, (total - seq_len - 1) // copies)
    if room < seq_len + 1:
        raise UsageError(
            f"The text is too short to hold documents out: found {counted(total, 'token')} "
            f"in {counted(len(chosen), 'different document')} "
            f"of at most {unique.tokens[longest]}, and no choice of them leaves {seq_len + 1} on both sides.",
            "give more text, a smaller --seq-len, or --heldout 0",
        )
    chosen[longest] = CUT
    return chosen, "tail-of-one-document", min(max(round(fraction * total), seq_len + 1), room)


def _hold_out_documents(unique: _Unique, fraction: float, seq_len: int, chosen: npt.NDArray[np.int8]) -> bool:
    """Marks documents in the order of their digests: those below the fraction, then more until a window is full.

    A document is passed over if the rest would not fill a window. Returns whether both splits have one.
    """
    cost = unique.cost
    below = int(np.searchsorted(unique.high, np.uint64(int(fraction * 2**64))))
    window = seq_len + 2
    held, left = 0, int(cost.sum())
    for index in range(len(cost)):
        if index >= below and held >= window:
            break
        if left - cost[index] >= window:
            chosen[index] = HELDOUT
            held += int(cost[index])
            left -= int(cost[index])
    return held >= window


def _require(found: int, needed: int, what: str, seq_len: int) -> None:
    if found < needed:
        raise UsageError(
            f"The text is too short: found {counted(max(found, 0), 'token')}, "
            f"and {needed} are needed for {what} at seq_len {seq_len}.",
            "give more text, a smaller --seq-len, or --heldout 0",
        )


def runs(destinations: npt.NDArray[np.int8]) -> list[tuple[int, int, int]]:
    """(first row, end, destination) of rows that go the same way; a CUT row stays alone."""
    if not len(destinations):
        return []
    change: npt.NDArray[Any] = (np.diff(destinations) != 0) | (destinations[1:] == CUT)
    starts = [0, *(np.flatnonzero(change) + 1).tolist()]
    ends = [*starts[1:], len(destinations)]
    return [(start, end, int(destinations[start])) for start, end in zip(starts, ends, strict=True)]
