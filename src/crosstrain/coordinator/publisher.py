"""Merging a closed round and publishing the generation: weights first, then one transaction (G2).

A crash anywhere before the transaction leaves only blobs that nothing refers to, and the same merge runs again: its result
is a function of the parent generation and of the contributions in the order in which they came, which their rows record.
"""

from __future__ import annotations

import logging
import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection, RowMapping

from crosstrain.config import WireSection
from crosstrain.coordinator.service import Service
from crosstrain.domain.block import BlockState
from crosstrain.domain.events import EventKind
from crosstrain.domain.generation import GenerationRecord, is_finished
from crosstrain.domain.ids import Digest, Generation, Instant, SessionId, SiteName, Token
from crosstrain.domain.lease import LeaseState
from crosstrain.domain.ledger import count_blocks, move, open_epoch
from crosstrain.domain.plural import counted
from crosstrain.errors import IntegrityError
from crosstrain.outer.encoding import Array, Delta
from crosstrain.outer.outer_optimizer import OuterHyperparameters
from crosstrain.outer.presets import hyperparameters
from crosstrain.outer.weighted_merge import Merged, Workspace, merge_tensor, weigh
from crosstrain.storage import lease_store, ledger_store, run_store, site_store
from crosstrain.storage.byte_planes import pack
from crosstrain.storage.delta_file import ELEMENT_BYTES
from crosstrain.storage.deltas import Deltas
from crosstrain.storage.object_store import LOST, ObjectStore
from crosstrain.storage.weights_file import DType, Entry, WeightsFile, WeightsWriter

log = logging.getLogger(__name__)

_CHUNK = 1 << 19  # elements; 1 << 18 took 10 % longer, 1 << 20 no less
_KEPT = 3  # chunks: one is made while two are written; 15 MiB
_WORTH = 1 << 16  # elements that are worth handing to threads
_RELEASED = 1 << 21  # elements; 28 MiB of pages with three bf16 deltas, and at most a chunk more


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that a generation is a function of (G4).

    Attributes:
        deltas: in the order in which they came.
        tokens: weight of each delta.
        wire: types of the deltas and of the file that sites download.
    """

    parent: GenerationRecord
    deltas: tuple[Digest, ...]
    tokens: tuple[int, ...]
    hyper: OuterHyperparameters
    wire: WireSection


def recipe_of(
    parent: GenerationRecord, rows: Sequence[RowMapping], hyper: OuterHyperparameters, wire: WireSection
) -> Recipe:
    """The recipe of the generation after `parent` from the stored contributions.

    They are added up in the order in which they came, so that a sum can be begun before the last one is there.
    """
    ordered = sorted(rows, key=lambda row: (int(row["received_at"]), int(row["token"])))
    return Recipe(
        parent,
        tuple(Digest(row["delta"]) for row in ordered),
        tuple(row["tokens"] for row in ordered),
        hyper,
        wire,
    )


class Made(NamedTuple):
    """A finished file of a generation."""

    path: Path
    digest: Digest


def merge(objects: ObjectStore, deltas: Deltas, recipe: Recipe, work: Path, *, durable: bool = True) -> dict[str, Made]:
    """Makes the files of a generation in `work`: `master`, `momentum`, and `weights` unless that is the master.

    Memory is one workspace and the pages of `_RELEASED` elements, whatever the model's size and the number of deltas.

    Args:
        durable: as of `WeightsWriter`.
    """
    work.mkdir(parents=True, exist_ok=True)
    names = ("master", "momentum") if recipe.wire.weights == "fp32" else ("master", "momentum", "weights")
    paths = {name: work / f"{name}.safetensors" for name in names}
    with ExitStack() as stack:
        inputs = stack.enter_context(_Inputs(objects, deltas, recipe))
        weighting, workspace, since = weigh(recipe.tokens), Workspace(_CHUNK, kept=_KEPT), 0
        out = stack.enter_context(_Outputs(paths, inputs.master, durable, workspace.kept - 1))
        for entry in inputs.master.entries:
            weights, momentum, changes = inputs.tensors(entry.name)
            for part in merge_tensor(weights, momentum, changes, weighting, recipe.hyper, workspace):
                out.append(entry.name, part)
                since += part.weights.size
                if since >= _RELEASED:
                    inputs.release()
                    since = 0
        out.settle()
    return {name: Made(path, out.digest(name)) for name, path in paths.items()}


class _Inputs(ExitStack):
    """The mapped files that a generation is made from."""

    def __init__(self, objects: ObjectStore, deltas: Deltas, recipe: Recipe) -> None:
        super().__init__()
        parent = recipe.parent
        with ExitStack() as opened:  # closes those before one that cannot be opened
            self.master = opened.enter_context(WeightsFile(objects.path(parent.master)))
            self._momentum = parent.momentum and opened.enter_context(WeightsFile(objects.path(parent.momentum)))
            self._deltas = [opened.enter_context(deltas.open(delta, self.master.entries)) for delta in recipe.deltas]
            self.push(opened.pop_all())

    def tensors(self, name: str) -> tuple[Array, Array | None, list[Delta]]:
        """Weights, momentum and deltas of one tensor."""
        momentum = self._momentum.array(name) if self._momentum else None
        return self.master.array(name), momentum, [delta.tensor(name) for delta in self._deltas]

    def release(self) -> None:
        """Takes what was read so far out of resident memory."""
        for file in (self.master, self._momentum, *self._deltas):
            if file:
                file.release()


class _Outputs(ExitStack):
    """The files of the new generation, each written and hashed by a thread of its own, which costs several times what the
    arithmetic does: while some chunks are on their way into the files the next one is made.

    Args:
        most: chunks that may be on their way at a time.
    """

    def __init__(self, paths: Mapping[str, Path], master: WeightsFile, durable: bool, most: int) -> None:
        super().__init__()
        self._most = most
        self._running: deque[list[Future[None]]] = deque()
        with ExitStack() as opened:  # closes those before one that cannot be opened
            self._writers = {
                name: opened.enter_context(
                    WeightsWriter(
                        path, _entries(master, "BF16" if name == "weights" else "F32"), hashed=True, durable=durable
                    )
                )
                for name, path in paths.items()
            }
            self._threads = {name: opened.enter_context(ThreadPoolExecutor(1, f"merge-{name}")) for name in paths}
            self.push(opened.pop_all())

    def append(self, name: str, part: Merged) -> None:
        """Has the next elements of a tensor written. `part` must stay as it is until `most` more were appended."""
        values = {"master": part.weights, "momentum": part.momentum, "weights": part.wire}
        if part.weights.size < _WORTH and not self._running:  # else it would come before what is on its way
            for file, writer in self._writers.items():
                writer.append(name, values[file])
            return
        self._running.append(
            [self._threads[file].submit(writer.append, name, values[file]) for file, writer in self._writers.items()]
        )
        self.settle(self._most)

    def settle(self, most: int = 0) -> None:
        """Waits until at most so many chunks are on their way. Raises what a thread raised."""
        while len(self._running) > most:
            for each in self._running.popleft():
                each.result()

    def digest(self, name: str) -> Digest:
        """Of a finished file."""
        return self._writers[name].digest


def _entries(file: WeightsFile, dtype: DType) -> list[Entry]:
    return [Entry(entry.name, dtype, entry.shape) for entry in file.entries]


def publish_initial(service: Service, weights: Digest, now: Instant) -> GenerationRecord:
    """Publishes generation 0 from the float32 weights that the first site made. Publishing it again changes nothing."""
    wire = weights if service.config.wire.weights == "fp32" else rounded(service.objects, weights, service.work)
    packed = _packed(service, service.objects.path(wire))
    record = GenerationRecord(
        Generation(0), None, wire, weights, None, 0, 0, None, None, contributions=0, published_at=now, packed=packed
    )
    with service.database.write() as connection:
        known = run_store.newest_generation(connection)
        if known is not None:
            return known
        for digest in (record.weights, record.download, record.master):
            if not service.objects.knows(digest):  # in the transaction: what nothing refers to may be removed
                raise IntegrityError(f"Expected blob {digest}, found that it was just removed.", "send it again")
        run_store.add_generation(connection, record)
        run_store.open_round(connection, record.number, now)
        text = f"generation 0 from seed {service.config.run.seed}"
        run_store.log(connection, EventKind.PUBLISHED, text, now, generation=record.number)
    return record


def publish(service: Service, parent: GenerationRecord, rows: Sequence[RowMapping], now: Instant) -> GenerationRecord:
    """Merges the accepted contributions of a closed round and publishes the next generation."""
    hyper = hyperparameters(service.outer, parent.global_step, service.config.total_steps, len(rows))
    recipe = recipe_of(parent, rows, hyper, service.config.wire)
    made = merge(service.objects, service.deltas, recipe, service.work)
    packed = _packed(service, made.get("weights", made["master"]).path)
    files = {name: service.objects.adopt(*file) for name, file in made.items()}
    record = GenerationRecord(
        number=Generation(parent.number + 1),
        parent=parent.number,
        weights=files.get("weights", files["master"]),
        master=files["master"],
        momentum=files["momentum"],
        global_step=parent.global_step + max(row["steps"] for row in rows),
        tokens=parent.tokens + sum(row["tokens"] for row in rows),
        eta=hyper.eta,
        beta=hyper.beta,
        contributions=len(rows),
        published_at=now,
        packed=packed,
    )
    with service.database.write() as connection:
        newest = run_store.newest_generation(connection)
        if newest is None or newest.number != parent.number:
            raise IntegrityError(
                f"Generation {parent.number} was to be followed, but {newest and newest.number} is the newest.",
                "this is a bug: nothing was written",
            )
        run_store.add_generation(connection, record)
        run_store.round_published(connection, parent.number, now)
        for row in rows:
            _commit_blocks(connection, row, record, now)
        text = f"generation {record.number} from {counted(len(rows), 'contribution')}, eta {hyper.eta:g}, beta {hyper.beta:.3g}"
        run_store.log(connection, EventKind.PUBLISHED, text, now, generation=record.number)
        _open_next(service, connection, record, now)
    service.deltas.forget_all()
    return record


def _commit_blocks(connection: Connection, row: RowMapping, record: GenerationRecord, now: Instant) -> None:
    """contributed -> merged, in the transaction that publishes the model with their training."""
    token, name = Token(row["token"]), SiteName(row["site"])
    lease = lease_store.find(connection, token)
    assert lease is not None
    held = ledger_store.held(connection, token)
    change = move(held, EventKind.MERGED, ledger_store.neighbours(connection, held, BlockState.MERGED))
    ledger_store.apply(connection, change)
    lease_store.end(connection, lease, LeaseState.MERGED, f"in generation {record.number}", now)
    site_store.add_totals(connection, name, merged_blocks=count_blocks(held), tokens=row["tokens"])
    session = SessionId(row["session"])
    text = f"merged into generation {record.number}"
    run_store.log_change(connection, change, token, name, session, record.number, text, now)


def _open_next(service: Service, connection: Connection, record: GenerationRecord, now: Instant) -> None:
    """Opens the next round, in the next epoch if this one is merged to its last block, or finishes the run."""
    run = run_store.load(connection)
    assert run is not None
    epoch, blocks = int(run["epoch"]), service.corpus.blocks
    whole = ledger_store.counts(connection, epoch)[BlockState.MERGED] == blocks
    settings = service.config.run
    over = is_finished(record.number, settings.rounds, epoch + int(whole), settings.epochs)
    if over:
        run_store.finish(connection, over.reason, now)
        run_store.log(connection, EventKind.FINISHED, over.reason, now, generation=record.number)
        return
    if whole:
        ledger_store.apply(connection, open_epoch(epoch + 1, blocks))
        run_store.set_epoch(connection, epoch + 1)
        run_store.log(connection, EventKind.EPOCH_OPENED, f"epoch {epoch + 1} in a new order", now)
    run_store.open_round(connection, record.number, now)


def _packed(service: Service, weights: Path) -> Digest | None:
    """The blob of packed weights, if that is how they travel."""
    wire = service.config.wire
    if wire.compress == "none":
        return None
    service.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=service.work) as directory:
        path = Path(directory) / "packed"
        pack(weights, path, ELEMENT_BYTES[wire.weights])
        return service.objects.adopt(path)


def make_again(service: Service, record: GenerationRecord) -> None:
    """Makes what sites download of a generation again, if the store lost it: it follows from the float32 weights.

    Raises:
        IntegrityError: those are lost too, or other bytes come of them, as with another release of zstd.
    """
    objects = service.objects
    if not objects.has(record.weights) and record.weights != record.master:
        _require_same(rounded(objects, record.master, service.work), record.weights)
    if record.packed is not None and not objects.has(record.packed):
        _require_same(_packed(service, objects.path(record.weights)), record.packed)


def _require_same(made: Digest | None, lost: Digest) -> None:
    if made != lost:
        raise IntegrityError(f"Blob {lost} is lost, and what was made again of its weights is {made}.", LOST)
    log.warning("blob %s was lost; it was made again", lost[:12])


def rounded(objects: ObjectStore, master: Digest, work: Path) -> Digest:
    """The bf16 file of float32 weights, made in `work`. Memory as for `merge`."""
    work.mkdir(parents=True, exist_ok=True)
    # A directory of its own: the same request may come twice at once.
    with tempfile.TemporaryDirectory(dir=work) as directory:
        path = Path(directory) / "weights.safetensors"
        with (
            WeightsFile(objects.path(master)) as source,
            WeightsWriter(path, _entries(source, "BF16"), hashed=True) as out,
        ):
            for entry in source.entries:
                flat = source.array(entry.name).reshape(-1)
                for begin in range(0, flat.size or 1, _RELEASED):
                    out.append(entry.name, flat[begin : begin + _RELEASED])
                    source.release()
        return objects.adopt(path, out.digest)
