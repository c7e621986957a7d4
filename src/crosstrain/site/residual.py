"""Error feedback: what a quantised delta left out goes into the next one (1-bit SGD, Seide et al. 2014; arXiv 1901.09847).

    sent_t = Q(delta_t + r_t);   r_t+1 = delta_t + r_t - sent_t;   r_0 = 0

So all that a site sent differs from all that it learnt by the last residual alone, at most half a step. The residual is a file in
the site's directory, bfloat16 in the shapes of the model. When it counts is the spool's business (`spool.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from crosstrain.errors import IntegrityError
from crosstrain.outer.encoding import Delta, Float32, widen
from crosstrain.storage.weights_file import WeightsFile, WeightsWriter
from crosstrain.storage.weights_header import Entry

log = logging.getLogger(__name__)


class Residual:
    """Reads the residual of the last delta and writes that of the next, a chunk at a time, in the order of the model.

    Args:
        before: the file of the last one; None, or one that is damaged or of another model, is a residual of zero.
        after: where the next one appears when the context ends without an error.
    """

    def __init__(self, before: Path | None, after: Path, model: Iterable[Entry]) -> None:
        entries = [Entry(entry.name, "BF16", entry.shape) for entry in model]
        self._writer = WeightsWriter(after, entries)
        self._before = before and _readable(before, entries)
        self._filled = 0  # elements of the tensor being written
        self._name = ""

    def add(self, name: str, delta: Float32) -> Float32:
        """The next elements of a tensor's delta, with what the last delta left out of them."""
        if name != self._name:
            self._name, self._filled = name, 0
        if self._before:
            before = self._before.array(name).reshape(-1)[self._filled : self._filled + delta.size]
            delta = delta + before.astype(np.float32)
        self._filled += delta.size
        return delta

    def keep(self, name: str, wanted: Float32, sent: Delta) -> None:
        """Keeps what `sent` leaves out of `wanted`, the newest elements that `add` gave."""
        value = np.empty_like(wanted)
        widen(sent, value)
        with np.errstate(invalid="ignore"):  # of a delta that is not finite, which is refused
            self._writer.append(name, wanted - value)

    def __enter__(self) -> Self:
        self._writer.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before:
            self._before.close()
        self._writer.__exit__(kind, error, trace)


def _readable(path: Path, entries: list[Entry]) -> WeightsFile | None:
    try:
        file = WeightsFile(path)
    except IntegrityError as error:
        log.warning("what the last delta left out is lost: %s", error.message)
        return None
    if list(file.entries) != entries:
        log.warning("what the last delta left out is lost: %s is of another model", path)
        file.close()
        return None
    return file
