"""`crosstrain site`."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from crosstrain.cli.amounts import seconds
from crosstrain.domain.ids import Instant
from crosstrain.domain.timeouts import FIRST_CONTACT_S
from crosstrain.errors import Unreachable, UsageError

log = logging.getLogger(__name__)

END_TIME_VARIABLES = ("CROSSTRAIN_END_TIME", "SLURM_JOB_END_TIME")
"""Environment variables with the job's end in seconds since 1970, the first one set counts."""


def site(
    run: Annotated[Path, typer.Argument(metavar="RUN.toml", help="The run file, the same as the coordinator's.")],
    name: Annotated[str, typer.Option(help="This site's name in the run.")],
    url: Annotated[str | None, typer.Option(help="Address of the coordinator, instead of `site.url`.")] = None,
    ends_in: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            callback=seconds,
            help="Until the job's end; default: from $CROSSTRAIN_END_TIME, $SLURM_JOB_END_TIME.",
        ),
    ] = None,
    connect: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", callback=seconds, help="How long to try to reach the coordinator at the start."
        ),
    ] = FIRST_CONTACT_S,
    accumulate: Annotated[
        int | None,
        typer.Option(min=1, max=2**20, help="Forward passes per optimiser step, instead of `site.accumulate`."),
    ] = None,
) -> None:
    """Train as one site of a run, from inside a batch job. SIGTERM and SIGUSR1 drain: the work done is contributed."""
    from crosstrain.assembly import open_run, open_site
    from crosstrain.clock import SystemClock, pause

    now = SystemClock().now()
    ends_at = Instant(now + round(1000 * ends_in)) if ends_in is not None else _end_from_environment()
    files = open_run(run)
    if (note := files.config.without_section(name)) is not None:
        log.warning("%s", note)
    parts = open_site(files, name, url, ends_at, connect, accumulate=accumulate)
    agent = parts.agent

    def drain(number: int, _frame: FrameType | None) -> None:
        if agent.stop_reason or not agent.registered:
            # Asked twice, or with nothing to lose yet: stop waiting for the network too.
            parts.stopping.set()
        agent.stop_reason = f"asked to by {signal.Signals(number).name}"

    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
        signal.signal(number, drain)
    try:
        while True:
            rest = agent.step()
            if rest.over:
                break
            pause(rest.seconds, parts.stopping)
    except Unreachable:
        if agent.registered or not agent.stop_reason:
            raise
        log.info("leaving before the coordinator was reached: %s", agent.stop_reason)
    finally:
        agent.leave(agent.parting)
        parts.close()


def _end_from_environment() -> Instant | None:
    for variable in END_TIME_VARIABLES:
        text = os.environ.get(variable)
        if text:
            if not text.isdecimal():
                raise UsageError(
                    f"{variable} is {text!r}, expected seconds since 1970.", "unset it, or give --ends-in SECONDS"
                )
            return Instant(1000 * int(text))
    return None
