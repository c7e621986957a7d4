"""What is known of which blobs are in a bucket, so that the service is asked once about each.

An answer may be old when it arrives: a blob that was put or removed meanwhile would be taken for lost, or for there, from then
on. So an answer counts only if nothing was learnt or forgotten of that blob since it was asked for.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from crosstrain.domain.ids import Digest

KNOWN = 10_000
"""Blobs that are remembered, about 3 MB: anybody may ask for any digest. Of others the service is asked again."""

Find = Callable[[], int | None]
"""Bytes of a blob, None if it is not there."""


class Sizes:
    """Bytes of blobs, None of those that are not there; for several threads, which ask side by side."""

    def __init__(self, ask: Callable[[Digest], int | None], most: int = KNOWN) -> None:
        self._ask, self._most = ask, most
        self._lock = threading.Lock()
        self._known: OrderedDict[Digest, int | None] = OrderedDict()
        self._asking: dict[Digest, set[object]] = {}

    def size(self, digest: Digest) -> int | None:
        """As known, or as the service says; what asking raises passes through."""
        with self._lock:
            if digest in self._known:
                self._known.move_to_end(digest)
                return self._known[digest]
        return self.learn(digest, lambda: self._ask(digest))

    def known(self, digest: Digest) -> int | None:
        """As known, without asking anybody; None also if nothing is."""
        with self._lock:
            return self._known.get(digest)

    def present(self) -> set[Digest]:
        """Blobs that are known to be there."""
        with self._lock:
            return {digest for digest, size in self._known.items() if size is not None}

    def learn(self, digest: Digest, find: Find) -> int | None:
        """What `find` says or does, remembered unless the blob was forgotten meanwhile, or put by somebody else."""
        mine = object()
        with self._lock:
            self._asking.setdefault(digest, set()).add(mine)
        try:
            found = find()
        except BaseException:
            self._end(digest, mine)
            raise
        with self._lock:
            if mine in self._asking.get(digest, ()):
                self._keep(digest, found)
        self._end(digest, mine)
        return found

    def forget(self, digest: Digest) -> None:
        """Takes back what is known, and every answer that is on its way."""
        with self._lock:
            self._known.pop(digest, None)
            self._asking.pop(digest, None)

    def _keep(self, digest: Digest, size: int | None) -> None:
        self._known[digest] = size
        self._known.move_to_end(digest)
        if size is not None:
            del self._asking[digest]  # of those who ask, some may still hear that it is not there
        if len(self._known) > self._most:
            self._known.popitem(last=False)

    def _end(self, digest: Digest, mine: object) -> None:
        with self._lock:
            others = self._asking.get(digest)
            if others is not None:
                others.discard(mine)
                if not others:
                    del self._asking[digest]
