"""A directory of blobs that are elsewhere too: what was not used for the longest time makes room for what is."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping

from crosstrain.domain.ids import Digest
from crosstrain.errors import EnvironmentFault
from crosstrain.storage.object_store import LocalObjectStore

log = logging.getLogger(__name__)

KEPT = 16
"""Blobs used last that stay whatever the limit: somebody may be about to open one."""


class BoundedDirectory:
    """Keeps what lies in a directory below a limit; for several threads.

    Args:
        limit: bytes that finished blobs may take there.
        is_elsewhere: whether a blob may go from here. It may ask a service, and is asked about those alone that are to go.
    """

    def __init__(self, local: LocalObjectStore, limit: int, is_elsewhere: Callable[[Digest], bool]) -> None:
        self._local, self._limit, self._is_elsewhere = local, limit, is_elsewhere
        self._used: OrderedDict[Digest, None] = OrderedDict()
        self._lock, self._tidying = threading.Lock(), threading.Lock()

    def use(self, digest: Digest) -> None:
        """Notes a use of a blob, and makes room unless somebody is just doing that."""
        with self._lock:
            self._used[digest] = None
            self._used.move_to_end(digest)
        if self._tidying.acquire(blocking=False):
            try:
                self._make_room()
            except EnvironmentFault as error:  # no reason to refuse a blob that is here
                log.warning("%s keeps more than its limit: %s", self._local.directory, error)
            finally:
                self._tidying.release()

    def forget(self, digest: Digest) -> None:
        """The blob was removed."""
        with self._lock:
            self._used.pop(digest, None)

    def _make_room(self) -> None:
        there = {blob.digest: blob.size for blob in self._local.stored() if blob.whole}
        taken = sum(there.values())
        for digest in self._order(there):
            if taken <= self._limit:
                break
            if self._is_elsewhere(digest) and self._is_old(digest):
                self._local.delete(digest)
                self.forget(digest)
                taken -= there[digest]

    def _order(self, there: Mapping[Digest, int]) -> list[Digest]:
        """Those that may go, the longest unused first; what is not there any more is forgotten."""
        with self._lock:
            for digest in [digest for digest in self._used if digest not in there][:-KEPT]:
                del self._used[digest]
            recent = set(list(self._used)[-KEPT:])
            order = [*(there.keys() - self._used.keys()), *self._used]
        return [digest for digest in order if digest in there and digest not in recent]

    def _is_old(self, digest: Digest) -> bool:
        """Whether it is still none of those used last: asking took a while."""
        with self._lock:
            return digest not in list(self._used)[-KEPT:]
