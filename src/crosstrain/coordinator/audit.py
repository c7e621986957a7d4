"""The audit: does the database, by itself and against the object store, tell one consistent story? (G1, G2, G4)

It reads what the coordinator wrote and recomputes what it can: every block's state from its history, every contribution's
windows from the run's seed, every site's totals from the events, every blob's digest, and on request every generation
from its parent and contributions, bit for bit.
"""

from __future__ import annotations

import json
from array import array
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, RowMapping

from crosstrain.config import WireSection
from crosstrain.coordinator import publisher
from crosstrain.coordinator.block_history import BLOCK_EVENTS, BlockHistory
from crosstrain.coordinator.publisher import Recipe
from crosstrain.coordinator.replay import replay_problems
from crosstrain.domain.block import BlockState, Corpus
from crosstrain.domain.events import EventKind
from crosstrain.domain.generation import GenerationRecord, chain_problem
from crosstrain.domain.ids import Digest
from crosstrain.domain.lease import LeaseState
from crosstrain.domain.ledger import Span, count_blocks, partition_problem
from crosstrain.domain.permutation import epoch_order
from crosstrain.domain.phase import digest_windows, sum_windows, window_numbers
from crosstrain.domain.plural import counted
from crosstrain.errors import CrosstrainError
from crosstrain.outer.outer_optimizer import OuterHyperparameters
from crosstrain.storage import lease_store, ledger_store, retention_store, run_store, site_store
from crosstrain.storage.database import Database
from crosstrain.storage.object_store import ObjectStore
from crosstrain.storage.prepared import Row

UNREADABLE = (ArithmeticError, AssertionError, LookupError, TypeError, ValueError)
"""What rows raise that no coordinator wrote."""


@dataclass(frozen=True, slots=True)
class Audit:
    """What was looked at and what is wrong with it.

    Attributes:
        replayed: generations that were recomputed.
        removed: blobs that the run names and that retention removed.
        not_replayable: generations that could not be recomputed because of that.
    """

    problems: tuple[str, ...]
    generations: int
    contributions: int
    events: int
    replayed: int
    counts: dict[BlockState, int]
    blocks: int
    removed: int = 0
    not_replayable: int = 0

    @property
    def ok(self) -> bool:
        return not self.problems


def audit(database: Database, objects: ObjectStore, replay: bool = False, scratch: Path | None = None) -> Audit:
    """Checks a run, live or ended. Nothing is changed.

    Args:
        replay: whether every generation is recomputed.
        scratch: directory with room for the files of one generation, by default the system's for temporary files.
    """
    with database.read() as connection:
        run = run_store.load(connection)
        if run is None:
            return Audit(("the database holds no run",), 0, 0, 0, 0, dict.fromkeys(BlockState, 0), 0)
        try:
            story = _Story(connection, run, objects)
        except UNREADABLE as error:
            return Audit((f"the rows cannot be read: {error}",), 0, 0, 0, 0, dict.fromkeys(BlockState, 0), 0)
        problems = [
            *_readable("the ledger", story.block_problems()),
            *_readable("the leases", story.lease_problems()),
            *_readable("the generations", story.chain_problems()),
            *_readable("the contributions", story.contribution_problems()),
            *_readable("the sites", story.site_problems()),
            *_readable("the blobs", _blob_problems(story, objects)),
        ]
        replayed, lost = 0, story.not_replayable()
        if replay:
            recipes = ((record, story.recipe(record)) for record in story.chain[1:] if record.number not in lost)
            found = list(_readable("the recipes", replay_problems(recipes, story.gone, objects, scratch)))
            problems += [problem for problem in found if problem]
            replayed = len(found)
        return Audit(
            tuple(problems),
            len(story.chain),
            len(story.contributions),
            len(story.events),
            replayed,
            ledger_store.counts(connection),
            story.corpus.blocks * (int(run["epoch"]) + 1),
            len(story.gone & story.named().keys()),
            len(lost) if replay else 0,
        )


def _readable(what: str, problems: Iterator[str]) -> Iterator[str]:
    """The problems found, and as one more that the rows cannot be followed to their end."""
    try:
        yield from problems
    except UNREADABLE as error:
        yield f"{what} cannot be followed: {type(error).__name__} {error}"


class _Story:
    """Everything that was written, read once."""

    def __init__(self, connection: Connection, run: Row, objects: ObjectStore) -> None:
        self.spec = json.loads(run["spec"])
        identity = json.loads(run["corpus"])
        self.corpus = Corpus(identity["windows"], identity["block_windows"])
        self.seed = int(identity["seed"])
        self.chain = run_store.generations(connection)
        self.events = run_store.events(connection)
        self.contributions = lease_store.all_contributions(connection)
        self.leases = {row["token"]: row for row in lease_store.all_leases(connection)}
        self.sites = site_store.sites(connection)
        self.spans = ledger_store.all_spans(connection)
        self.epochs = int(run["epoch"]) + 1
        self.gone = {digest for digest in retention_store.removed(connection) if not objects.has(digest)}
        self._orders: dict[int, array[int]] = {}

    def block_problems(self) -> Iterator[str]:
        """Replays every block's history and compares its end with the ledger's rows (G1)."""
        by_epoch = defaultdict(list)
        for span in self.spans:
            by_epoch[span.epoch].append(span)
        for epoch in sorted({*range(self.epochs), *by_epoch}):
            problem = partition_problem(by_epoch[epoch], self.corpus.blocks)
            if problem or epoch >= self.epochs:
                yield problem or f"epoch {epoch} has blocks, but the run is in epoch {self.epochs - 1}"
        for number, event in enumerate(self.events, start=1):
            if event["seq"] != number:
                yield f"event {number} is missing, found {event['seq']}"
                break
        history = BlockHistory(self.corpus.blocks)
        for event in self.events:
            if event["kind"] in BLOCK_EVENTS:
                yield from history.apply(event)
        for span in self.spans:
            yield from history.compare(span.epoch, span.start, span.stop, span.state, span.token)

    def lease_problems(self) -> Iterator[str]:
        """What every lease holds, against what its state lets it hold (G3)."""
        held: dict[int | None, list[Span]] = defaultdict(list)
        for span in self.spans:
            held[span.token].append(span)
        granted = {event["token"] for event in self.events if event["kind"] == EventKind.GRANTED.value}
        for token in sorted({*granted, *(token for token in held if token is not None)} ^ self.leases.keys()):
            yield f"lease {token} is {'not granted in any event' if token in self.leases else 'in no row of its own'}"
        for token, row in self.leases.items():
            states = {span.state.value for span in held[token]}
            expected = {LeaseState.LIVE.value: {"leased"}, LeaseState.CONTRIBUTED.value: {"contributed"}}
            if states != expected.get(row["state"], set()):
                yield f"lease {token} is {row['state']}, but holds {' and '.join(sorted(states)) or 'no'} blocks"
            elif row["state"] == LeaseState.LIVE.value and count_blocks(held[token]) != row["blocks"]:
                yield f"lease {token} of {counted(row['blocks'], 'block')} holds {count_blocks(held[token])}"

    def chain_problems(self) -> Iterator[str]:
        """Numbers, parents, steps and tokens of the generations (G4), and one merge per contribution (G2)."""
        problem = chain_problem(self.chain)
        if problem:
            yield problem
        merged = self._merged()
        for record in self.chain[1:]:
            rows = [row for row in merged if row["generation"] == record.parent]
            parent = self.chain[record.number - 1]
            if len(rows) != record.contributions:
                yield f"generation {record.number} counts {counted(record.contributions, 'contribution')}, {len(rows)} are merged"
            tokens = sum(row["tokens"] for row in rows)
            if parent.tokens + tokens != record.tokens:
                yield (
                    f"generation {record.number} has {counted(record.tokens, 'token')}, "
                    f"its contributions make {parent.tokens + tokens}"
                )
            steps = max((row["steps"] for row in rows), default=0)
            if parent.global_step + steps != record.global_step:
                yield f"generation {record.number} is at step {record.global_step}, expected {parent.global_step + steps}"
        last = self.chain[-1].number if self.chain else -1
        for row in merged:
            if row["generation"] >= last or not row["accepted"]:
                yield f"lease {row['token']} is merged, but no generation follows its base {row['generation']}"

    def contribution_problems(self) -> Iterator[str]:
        """Windows trained against windows that the lease's blocks have, recomputed from the seed."""
        spans = defaultdict(list)
        for event in self.events:
            if event["kind"] == EventKind.CONTRIBUTED.value:
                spans[event["token"]].append((event["epoch"], event["start"], event["stop"]))
        for row in self.contributions:
            if not row["accepted"]:
                continue
            windows = [window for span in spans[row["token"]] for window in self._windows(*span)]
            expected = digest_windows(len(windows), sum_windows(windows))
            if expected != row["windows_digest"]:
                yield (
                    f"lease {row['token']} of {row['site']}: the windows trained ({row['windows_digest']}) "
                    f"are not those of its blocks ({expected})"
                )

    def site_problems(self) -> Iterator[str]:
        """Per-site totals against the events."""
        totals: dict[tuple[str, str], int] = defaultdict(int)
        for event in self.events:
            if event["kind"] in BLOCK_EVENTS:
                totals[event["site"], event["kind"]] += event["stop"] - event["start"]
        lost = (EventKind.EXPIRED, EventKind.RELEASED, EventKind.REFUSED, EventKind.DROPPED)
        leases = list(self.leases.values())
        unknown = {row["site"] for row in leases} - {row["name"] for row in self.sites}
        if unknown:
            yield f"there are leases of unknown sites: {', '.join(sorted(unknown))}"
        for row in self.sites:
            expected = {
                "granted_blocks": totals[row["name"], EventKind.GRANTED.value],
                "merged_blocks": totals[row["name"], EventKind.MERGED.value],
                "lost_blocks": sum(totals[row["name"], kind.value] for kind in lost),
                "shed_blocks": totals[row["name"], EventKind.SHED.value],
                "grants": sum(lease["site"] == row["name"] for lease in leases),
                "ttl_expiries": sum((lease["site"], lease["state"]) == (row["name"], "expired") for lease in leases),
                "tokens": sum(merged["tokens"] for merged in self._merged() if merged["site"] == row["name"]),
            }
            for name, amount in expected.items():
                if row[name] != amount:
                    yield f"site {row['name']} counts {row[name]} {name}, its history has {amount}"

    def named(self) -> dict[Digest, str]:
        """Whose the blobs are that the run consists of."""
        named = {
            digest: f"generation {r.number}"
            for r in self.chain
            for digest in (r.weights, r.packed, r.master, r.momentum)
            if digest
        }
        return named | {
            Digest(row["delta"]): f"the contribution of lease {row['token']}"
            for row in self.contributions
            if row["accepted"]
        }

    def recipe(self, record: GenerationRecord) -> Recipe:
        """What a generation after the first was made from."""
        rows = [row for row in self.contributions if row["generation"] == record.parent and row["accepted"]]
        assert record.eta is not None and record.beta is not None
        wire = WireSection.model_validate(self.spec["wire"])
        hyper = OuterHyperparameters(record.eta, record.beta)
        return publisher.recipe_of(self.chain[record.number - 1], rows, hyper, wire)

    def not_replayable(self) -> frozenset[int]:
        """Generations of which retention removed what they were made from."""
        if not self.gone:
            return frozenset()
        recipes = {record.number: self.recipe(record) for record in self.chain[1:]}
        return frozenset(
            number
            for number, recipe in recipes.items()
            if not self.gone.isdisjoint({recipe.parent.master, recipe.parent.momentum, *recipe.deltas})
        )

    def _merged(self) -> list[RowMapping]:
        """The contributions whose lease is merged."""
        merged = {token for token, row in self.leases.items() if row["state"] == LeaseState.MERGED.value}
        return [row for row in self.contributions if row["token"] in merged]

    def _windows(self, epoch: int, start: int, stop: int) -> Iterator[int]:
        if epoch not in self._orders:
            self._orders = {epoch: epoch_order(self.corpus.blocks, self.seed, epoch)}
        order = self._orders[epoch]
        return window_numbers(self.corpus.block(order[position]) for position in range(start, stop))


def _blob_problems(story: _Story, objects: ObjectStore) -> Iterator[str]:
    """Every blob that the story names is there with its digest, unless retention removed it."""
    for digest, owner in story.named().items():
        if digest in story.gone:
            continue
        try:
            objects.verify(digest)
        except CrosstrainError as error:
            yield f"blob {digest[:12]} of {owner}: {error.message}"
