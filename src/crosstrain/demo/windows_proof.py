"""The proof that every window in the model was trained there exactly once, from what the trainers' ranks wrote themselves.

The audit compares what the coordinator was told; this compares the ledger with what was fed to the models. It needs the
ranks' logs (`site.record_windows`), so it works where all sites' directories are at hand.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from crosstrain.domain.block import BlockState, Corpus
from crosstrain.domain.events import EventKind
from crosstrain.domain.ids import Token
from crosstrain.domain.lease import LeaseState
from crosstrain.domain.phase import window_numbers
from crosstrain.errors import EnvironmentFault
from crosstrain.site.order import BlockOrder
from crosstrain.site.window_log import trained_windows
from crosstrain.storage import lease_store, ledger_store, run_store
from crosstrain.storage.database import Database

NAMED = 8
"""Windows that a sentence names."""
LOGS = "windows-*.log"

Spans = tuple[tuple[int, int, int], ...]
"""(epoch, start, stop) of positions in an epoch's order."""


@dataclass(frozen=True, slots=True)
class MergedLease:
    """A contribution that is in the model, and the blocks that count as trained by it."""

    token: Token
    site: str
    spans: Spans


@dataclass(frozen=True, slots=True)
class WindowsProof:
    """What was compared.

    Attributes:
        merged: windows that the ledger has as merged, over all epochs.
        lost: of them, those that no merged contribution was trained on.
        duplicated: windows in the model more often than the ledger says.
    """

    merged: int
    lost: int
    duplicated: int
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not (self.lost or self.duplicated or self.problems)


def prove(
    order: BlockOrder, merged: Sequence[MergedLease], ledger: Spans, trained: Mapping[Token, Sequence[int]]
) -> WindowsProof:
    """Compares the merged contributions one by one with what was trained for them, and all of them with the ledger.

    Args:
        ledger: everything that is merged, in any epoch.
        trained: by lease, the windows behind the weights that were contributed, as often as they were trained.
    """
    problems: list[str] = []
    in_model: dict[int, Counter[int]] = defaultdict(Counter)
    for lease in merged:
        fed = Counter(trained.get(lease.token, ()))
        leased = Counter(_windows(order, lease.spans))
        if fed != leased:
            problems.append(_difference(lease, fed - leased, leased - fed))
        # A lease is of one epoch; the windows of an epoch are distinct, so they tell it.
        in_model[lease.spans[0][0] if lease.spans else -1].update(fed)
    committed: dict[int, Counter[int]] = defaultdict(Counter)
    for span in ledger:
        committed[span[0]].update(_windows(order, (span,)))
    epochs = in_model.keys() | committed.keys()
    lost = sum((committed[epoch] - in_model[epoch]).total() for epoch in epochs)
    duplicated = sum((in_model[epoch] - committed[epoch]).total() for epoch in epochs)
    total = sum(windows.total() for windows in committed.values())
    return WindowsProof(total, lost, duplicated, tuple(problems))


def prove_run(database: Database, sites: Iterable[Path]) -> WindowsProof:
    """Proves a run that has ended or stands still.

    Args:
        sites: the directories of all its sites.

    Raises:
        EnvironmentFault: the database holds no run, or a log cannot be read.
        IntegrityError: a log holds something else.
    """
    with database.read() as connection:
        run = run_store.load(connection)
        if run is None:
            raise EnvironmentFault("The database holds no run.", "start a coordinator first")
        leases = lease_store.all_leases(connection)
        events = run_store.events(connection)
        spans = ledger_store.all_spans(connection)
    identity = json.loads(run["corpus"])
    order = BlockOrder(Corpus(identity["windows"], identity["block_windows"]), identity["seed"])
    contributed: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for event in events:
        if event["kind"] == EventKind.CONTRIBUTED.value:
            contributed[event["token"]].append((event["epoch"], event["start"], event["stop"]))
    merged = [
        MergedLease(Token(row["token"]), row["site"], tuple(contributed[row["token"]]))
        for row in leases
        if row["state"] == LeaseState.MERGED.value
    ]
    ledger = tuple((span.epoch, span.start, span.stop) for span in spans if span.state is BlockState.MERGED)
    return prove(order, merged, ledger, read_logs(sites))


def read_logs(sites: Iterable[Path]) -> dict[Token, tuple[int, ...]]:
    """By lease, what all ranks of its site trained for it.

    Raises:
        EnvironmentFault: a log cannot be read.
        IntegrityError: a log holds something else.
    """
    trained: dict[Token, tuple[int, ...]] = defaultdict(tuple)
    for path in (path for site in sites for path in sorted(site.glob(LOGS))):
        try:
            with path.open(encoding="ascii", errors="replace") as lines:
                found = trained_windows(lines, str(path))
        except OSError as error:
            raise EnvironmentFault(f"{path} cannot be read: {error.strerror}.", "check its permissions") from error
        for token, windows in found.items():
            trained[token] += windows
    return dict(trained)


def _windows(order: BlockOrder, spans: Spans) -> list[int]:
    return list(window_numbers(order.windows(spans)))


def _difference(lease: MergedLease, surplus: Counter[int], missing: Counter[int]) -> str:
    parts = [
        f"{what} {', '.join(map(str, sorted(windows.elements())[:NAMED]))}{' ...' if windows.total() > NAMED else ''}"
        for what, windows in (("trained and not of its blocks, or twice:", surplus), ("not trained:", missing))
        if windows
    ]
    return f"lease {lease.token} of {lease.site}: windows {'; windows '.join(parts)}"
