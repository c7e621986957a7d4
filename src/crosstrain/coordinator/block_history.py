"""What the events alone say of every block, for audits (G1)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from crosstrain.domain.block import TRANSITIONS, BlockState
from crosstrain.domain.events import EventKind
from crosstrain.storage.prepared import Row

STATES = list(BlockState)
BLOCK_EVENTS = frozenset(kind.value for kind in TRANSITIONS)
"""Those that move blocks."""


class BlockHistory:
    """State and holder of every block, from the events alone: 9 bytes a block."""

    def __init__(self, blocks: int) -> None:
        self._blocks = blocks
        self._epochs: dict[int, tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]] = {}

    def apply(self, event: Row) -> Iterator[str]:
        """Follows an event; a sentence for each thing that the event says and the ones before do not allow."""
        states, tokens = self._epoch(event["epoch"])
        kind = EventKind(event["kind"])
        source, target = TRANSITIONS[kind]
        part = slice(event["start"], event["stop"])
        where = f"event {event['seq']}: positions {event['start']} .. {event['stop']} of epoch {event['epoch']}"
        if (states[part] != STATES.index(source)).any():
            yield f"{where} were {kind}, but not all were {source}"
        if source.owned and (tokens[part] != event["token"]).any():
            yield f"{where} were {kind} by lease {event['token']}, which did not hold all of them"
        states[part] = STATES.index(target)
        tokens[part] = event["token"] if target.owned else -1

    def compare(self, epoch: int, start: int, stop: int, state: BlockState, token: int | None) -> Iterator[str]:
        """A sentence if a row of the ledger is not what the events made of its blocks."""
        states, tokens = self._epoch(epoch)
        same = (states[start:stop] == STATES.index(state)).all() and (tokens[start:stop] == (token or -1)).all()
        if not same:
            yield f"the ledger has positions {start} .. {stop} of epoch {epoch} {state} (lease {token}), their history not"

    def _epoch(self, epoch: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        if epoch not in self._epochs:
            self._epochs[epoch] = np.zeros(self._blocks, np.uint8), np.full(self._blocks, -1, np.int64)
        return self._epochs[epoch]
