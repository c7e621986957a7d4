"""`crosstrain relay`."""

from __future__ import annotations

import logging
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from crosstrain.cli.amounts import between

log = logging.getLogger(__name__)

LONGEST_H = 10_000.0


def relay(
    mailbox: Annotated[Path, typer.Option(metavar="DIR", help="Directory that both nodes see; made if missing.")],
    url: Annotated[str, typer.Option(help="Address of the coordinator; several separated by commas.")],
    hours: Annotated[
        float | None,
        typer.Option(
            "--for", metavar="HOURS", callback=between(0.0, LONGEST_H), help="Leave after so long; default: stay."
        ),
    ] = None,
) -> None:
    """Carry the messages and weights of sites without network: run it on a login or transfer node, and start the sites with
    `--url mailbox:DIR`. It may be killed and started again at any moment, and later than the sites."""
    from crosstrain.clock import SystemClock, pause
    from crosstrain.relay.opening import open_relay

    opened = open_relay(mailbox.absolute(), url)
    stopping = threading.Event()

    def stop(number: int, _frame: FrameType | None) -> None:
        log.info("leaving: asked to by %s", signal.Signals(number).name)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    clock = SystemClock()
    ends_at = None if hours is None else clock.perf() + 3600 * hours
    log.info("relay of the mailbox %s to %s", mailbox.absolute(), url.rpartition("@")[2])
    try:
        while not stopping.is_set() and (ends_at is None or clock.perf() < ends_at):
            pause(opened.step(), stopping)
    finally:
        opened.leave()
