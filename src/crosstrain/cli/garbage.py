"""`crosstrain gc`: which blobs a run does not need, and their removal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crosstrain.assembly import RunFiles
    from crosstrain.clock import Clock
    from crosstrain.coordinator.garbage import Collection
    from crosstrain.domain.ids import Instant
    from crosstrain.domain.retention import Mark

MEGA = 1e6


def gc(
    run: Annotated[Path, typer.Argument(metavar="RUN.toml", help="The run file, on the coordinator's machine.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what is not needed; change nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Remove blobs that the run does not need. A coordinator that serves the run does that by itself."""
    from crosstrain.assembly import open_run
    from crosstrain.clock import SystemClock
    from crosstrain.coordinator.garbage import grace_of

    files, clock = open_run(run), SystemClock()
    found = collect(files, clock, dry_run=dry_run)
    now, grace_ms = clock.now(), grace_of(files.config.coordinator)
    if as_json:
        removed, waiting = ([_document(mark) for mark in marks] for marks in (found.removed, found.waiting))
        typer.echo(json.dumps({"dry_run": dry_run, "removed": removed, "waiting": waiting}))
        return
    for mark in found.removed:
        typer.echo(f"{'due' if dry_run else 'removed'}: {_line(mark)}")
    for mark in found.waiting:
        typer.echo(f"in {_left(mark, grace_ms, now)} min: {_line(mark)}")
    typer.echo(
        f"{len(found.removed)} {'due' if dry_run else 'removed'} ({_megabytes(found.removed)}), "
        f"{len(found.waiting)} not needed and still kept ({_megabytes(found.waiting)})"
    )


def collect(files: RunFiles, clock: Clock, *, dry_run: bool) -> Collection:
    """Removes blobs that are not needed, with the run taken over for that moment; or says which they are.

    Raises:
        UsageError: there is no run, or a coordinator serves it, which removes them itself; or `coordinator.dir` is of another
            run.
    """
    from crosstrain.assembly import open_database, open_stored_run
    from crosstrain.coordinator import garbage
    from crosstrain.coordinator.garbage import Collection
    from crosstrain.coordinator.standby import Watch
    from crosstrain.errors import UsageError
    from crosstrain.storage.directory_owner import require_own

    retention = garbage.retention_of(files.config.coordinator)
    database, objects = open_stored_run(files)
    try:
        if dry_run:
            found = garbage.look(database, objects, retention, clock.now())
            return Collection(found.due, (*found.waiting, *found.fresh))
    finally:
        database.close()
    database, lock = open_database(files)
    try:
        claim = Watch(database, lock, clock, files.config.coordinator.takeover_s).look()
        if claim is None:
            raise UsageError(
                "A coordinator serves this run, and removes by itself what is not needed.",
                "see its log, or use --dry-run; new settings count when it is started again",
            )
        with database.read() as connection:
            require_own(files.coordinator_dir, connection)
        database.take_over(claim)
        return garbage.collect(database, objects, retention, clock.now())
    finally:
        lock.close()
        database.close()


def _document(mark: Mark) -> dict[str, Any]:
    return {**mark.stored._asdict(), "reason": mark.reason, "since": mark.since}


def _line(mark: Mark) -> str:
    return f"{mark.stored.digest[:12]}, {mark.stored.size / MEGA:,.1f} MB: {mark.reason}"


def _left(mark: Mark, grace_ms: int, now: Instant) -> int:
    return max(0, -((now - mark.since - grace_ms) // 60_000))


def _megabytes(marks: Sequence[Mark]) -> str:
    return f"{sum(mark.stored.size for mark in marks) / MEGA:,.1f} MB"
