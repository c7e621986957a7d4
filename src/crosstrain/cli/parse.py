"""`crosstrain parse`: what crosstrain reads in one output of a batch system, for bug reports and tests."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crosstrain.errors import UsageError

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

LARGEST = 64 << 20
"""Bytes of one output; more is no output of one command."""


def parse(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="What printed it, such as testonly, squeue or pbs_qstat_f.")
    ],
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="The output; absent or -: standard input.")
    ] = None,
    exit_code: Annotated[int, typer.Option(metavar="N", help="How the command ended.")] = 0,
    stderr: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Its standard error, if it was kept apart.")
    ] = None,
    columns: Annotated[
        str, typer.Option(metavar="FORMAT", help="The format it was asked for with, where no header says it.")
    ] = "",
    zone: Annotated[
        str | None, typer.Option("--tz", metavar="ZONE", help="Zone of its times, such as Europe/Helsinki.")
    ] = None,
    now: Annotated[
        str | None, typer.Option(metavar="TIME", help="When it was printed, local time; for forms such as 12:05.")
    ] = None,
) -> None:
    """Print the reading of one output as JSON. Exit code 0 whatever the reading, 2 if the input cannot be read at all."""
    from crosstrain.batch.printed import Output
    from crosstrain.cli.parse_documents import Context
    from crosstrain.cli.parse_kinds import KINDS

    name = {known.lower(): known for known in KINDS}.get(kind.replace("-", "_").lower())
    if name is None:
        raise UsageError(f"There is no kind of output {kind!r}.", f"one of {', '.join(KINDS)}")
    output = Output(_read(file), "" if stderr is None else _read(stderr), exit_code)
    context = Context(_zone(zone), _moment(now, zone), columns)
    document = {"kind": name, "exit_code": exit_code, **KINDS[name](output, context)}
    typer.echo(json.dumps(document, ensure_ascii=False))


def _read(path: Path | None) -> str:
    try:
        if path is None or str(path) == "-":
            data = sys.stdin.buffer.read(LARGEST + 1)
        else:
            with path.open("rb") as file:
                data = file.read(LARGEST + 1)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}.", "give the file with the command's output"
        ) from error
    if len(data) > LARGEST:
        raise UsageError(f"{path} is larger than {LARGEST >> 20} MiB.", "give the output of one command")
    return data.decode("utf-8", "replace")


def _zone(name: str | None) -> ZoneInfo | None:
    from zoneinfo import ZoneInfo

    try:
        return None if name is None else ZoneInfo(name)
    except (LookupError, ValueError, OSError) as error:
        raise UsageError(f"There is no time zone {name!r}.", "a name such as Europe/Helsinki or UTC") from error


def _moment(text: str | None, zone: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            moment = moment.astimezone(_zone(zone)).replace(tzinfo=None)
    except ValueError as error:
        raise UsageError(f"{text!r} is no time.", "ISO 8601, such as 2026-11-29T12:00:00") from error
    return moment
