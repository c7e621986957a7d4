"""`crosstrain coordinator`."""

from __future__ import annotations

import logging
import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

log = logging.getLogger(__name__)

RunFile = Annotated[Path, typer.Argument(metavar="RUN.toml", help="The run file.")]


def coordinator(
    run: RunFile,
    host: Annotated[str | None, typer.Option(help="Address to listen on, instead of `coordinator.host`.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port, instead of `coordinator.port`; 0 takes a free one.")
    ] = None,
) -> None:
    """Serve a run: ledger, rounds, generations, blobs. Killed at any moment, it goes on where it was.

    A second one on the same database waits as a standby, and takes over when the first dies.
    """
    from crosstrain.assembly import open_coordinator, open_run
    from crosstrain.coordinator.http_server import HttpServer

    files = open_run(run)
    parts = open_coordinator(files, host, port)
    process = parts.process
    server = HttpServer(process)
    address, bound = parts.listener.getsockname()[:2]
    log.info("coordinator of run %s at http://%s:%d", files.config.run.name, address, bound)
    failures: list[Exception] = []

    def work() -> None:
        try:
            process.run()
        except Exception as error:  # noqa: BLE001 - handed to the main thread, which raises it
            failures.append(error)
        server.stop()

    thread = threading.Thread(target=work, name="loop")
    thread.start()
    try:
        ended_by = server.run(parts.listener)
    finally:
        process.stop()
        thread.join()
        process.close()
    if failures:
        raise failures[0]
    if ended_by is not None:
        signal.raise_signal(ended_by)
