"""Which blobs a run still needs, and what becomes of the others: noted first, removed after a time of grace.

The grace is counted from when the coordinator first saw that a blob is not needed, by its own clock: an upload that is about
to be contributed, files of a merge before its transaction and a slow download are all over before it ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from crosstrain.domain.generation import GenerationRecord
from crosstrain.domain.ids import Digest, Generation, Instant


@dataclass(frozen=True, slots=True)
class Retention:
    """What is kept for people.

    Attributes:
        newest: so many of the newest generations; 0 keeps all.
        every: and every generation whose number is a multiple of this; 0 keeps none but the newest.
        inspection_ms: how long a refused delta is kept after it came.
        grace_ms: how long anything that is not needed stays.
    """

    newest: int
    every: int
    inspection_ms: int
    grace_ms: int

    def keeps(self, number: int, last: int) -> bool:
        return not self.newest or number > last - self.newest or (self.every > 0 and number % self.every == 0)


class DeltaUse(NamedTuple):
    """A contribution's delta."""

    digest: Digest
    generation: Generation
    accepted: bool
    received_at: Instant


@dataclass(frozen=True, slots=True)
class Uses:
    """Everything that refers to blobs, at one moment.

    Attributes:
        chain: all generations.
        deltas: of all contributions, refused ones too.
        bases: generations that live leases start from.
        downloads: weights that sites are fetching right now.
        unknown_downloads: whether sites fetch weights of which it is not known whose they are.
    """

    chain: Sequence[GenerationRecord]
    deltas: Collection[DeltaUse] = ()
    bases: frozenset[Generation] = frozenset()
    downloads: frozenset[Digest] = frozenset()
    unknown_downloads: bool = False


class Stored(NamedTuple):
    """What the object store has under one digest.

    Attributes:
        size: bytes; of an upload those that came.
        whole: False for an upload on its way.
    """

    digest: Digest
    size: int
    whole: bool


class Mark(NamedTuple):
    """A stored blob that is not needed.

    Attributes:
        since: when that was first seen of just these bytes.
    """

    stored: Stored
    reason: str
    since: Instant


@dataclass(frozen=True, slots=True)
class Sorting:
    """What to do with what is stored.

    Attributes:
        fresh: to be noted as not needed from now on.
        over: notes that do not hold any more: it is needed, gone, or changed.
        waiting: noted before and still in their grace.
        due: to be removed.
    """

    fresh: tuple[Mark, ...]
    over: tuple[Digest, ...]
    waiting: tuple[Mark, ...]
    due: tuple[Mark, ...]


UNNAMED = "nothing refers to it"
UPLOAD = "its upload stands still"


def sort_out(
    stored: Iterable[Stored], marks: Mapping[Digest, Mark], uses: Uses, retention: Retention, now: Instant
) -> Sorting:
    """Decides on every stored blob. An upload that moves begins its grace anew."""
    needed, reasons = _needed(uses, retention, now), _reasons(uses, retention)
    fresh: list[Mark] = []
    waiting: list[Mark] = []
    due: list[Mark] = []
    seen: set[Digest] = set()
    for blob in stored:
        if blob.digest in needed:
            continue
        reason = reasons.get(blob.digest, UNNAMED if blob.whole else UPLOAD)
        mark = marks.get(blob.digest)
        if mark is None or mark.stored != blob:
            fresh.append(Mark(blob, reason, now))
            continue
        seen.add(blob.digest)
        (due if mark.since + retention.grace_ms <= now else waiting).append(mark._replace(reason=reason))
    return Sorting(tuple(fresh), tuple(marks.keys() - seen), tuple(waiting), tuple(due))


def _needed(uses: Uses, retention: Retention, now: Instant) -> set[Digest]:
    last = uses.chain[-1].number if uses.chain else Generation(-1)
    kept = {record.number for record in uses.chain if retention.keeps(record.number, last)} | uses.bases
    needed = {digest for record in uses.chain if record.number in kept for digest in _files(record)}
    needed |= {
        use.digest
        for use in uses.deltas
        if (use.generation in kept if use.accepted else now < use.received_at + retention.inspection_ms)
    }
    if uses.unknown_downloads:
        needed |= {record.download for record in uses.chain}
    return needed | uses.downloads


def _reasons(uses: Uses, retention: Retention) -> dict[Digest, str]:
    """Why a blob that something refers to may be removed all the same."""
    kept = f"the newest {retention.newest} are kept" + (
        f", and every multiple of {retention.every}" if retention.every else ""
    )
    reasons = {
        use.digest: f"its base, generation {use.generation}, is gone: {kept}"
        if use.accepted
        else "it was refused, and the time to inspect it is over"
        for use in uses.deltas
    }
    return reasons | {
        digest: f"it is of generation {record.number}: {kept}" for record in uses.chain for digest in _files(record)
    }


def _files(record: GenerationRecord) -> Iterator[Digest]:
    files = (record.weights, record.packed, record.master, record.momentum)
    yield from (digest for digest in files if digest is not None)
