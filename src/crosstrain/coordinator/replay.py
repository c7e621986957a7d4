"""Makes generations again from what they were made from, and compares them bit for bit (G4)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path

from crosstrain.coordinator import publisher
from crosstrain.coordinator.publisher import Recipe
from crosstrain.domain.generation import GenerationRecord
from crosstrain.domain.ids import Digest
from crosstrain.errors import CrosstrainError, IntegrityError
from crosstrain.storage.byte_planes import PackedFile
from crosstrain.storage.deltas import Deltas
from crosstrain.storage.object_store import ObjectStore


def replay_problems(
    recipes: Iterable[tuple[GenerationRecord, Recipe]],
    gone: AbstractSet[Digest],
    objects: ObjectStore,
    scratch: Path | None,
) -> Iterator[str]:
    """Recomputes generations; yields one sentence for each, empty if it came out bit-identical.

    Args:
        gone: blobs that were removed on purpose.
        scratch: as of `audit`.
    """
    for record, recipe in recipes:
        with tempfile.TemporaryDirectory(dir=scratch) as work:
            try:
                deltas = Deltas(objects, recipe.wire.delta, recipe.wire.compress, Path(work) / "deltas")
                made = publisher.merge(objects, deltas, recipe, Path(work), durable=False)
            except CrosstrainError as error:
                yield f"generation {record.number} cannot be recomputed: {error.message}"
                continue
        stored = {"weights": record.weights, "master": record.master, "momentum": record.momentum}
        differing = [name for name, file in made.items() if file.digest != stored[name]]
        if record.packed is not None and record.packed not in gone and not _holds(objects, record, scratch):
            differing.append("packed weights")
        yield f"generation {record.number} recomputed differs in {', '.join(differing)}" if differing else ""


def _holds(objects: ObjectStore, record: GenerationRecord, scratch: Path | None) -> bool:
    """Whether a generation's packed weights are its weights. They are unpacked, not made again: another release of zstd packs to
    other bytes."""
    assert record.packed is not None
    try:
        with (
            PackedFile(objects.path(record.packed), objects.size(record.weights)) as file,
            tempfile.TemporaryDirectory(dir=scratch) as work,
        ):
            file.unpack(Path(work) / "weights", durable=False)
            return file.digest == record.weights
    except IntegrityError:
        return False
