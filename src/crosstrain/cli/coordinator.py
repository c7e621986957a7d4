"""`crosstrain coordinator`."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Annotated

import typer

log = logging.getLogger(__name__)

RunFile = Annotated[Path, typer.Argument(metavar="RUN.toml", help="The run file.")]


def coordinator(
    run: RunFile,
    host: Annotated[str | None, typer.Option(help="Address to listen on, instead of `coordinator.host`.")] = None,
    port: Annotated[int | None, typer.Option(help="Port, instead of `coordinator.port`; 0 takes a free one.")] = None,
) -> None:
    """Serve a run: ledger, rounds, generations, blobs. Killed at any moment, it goes on where it was."""
    import uvicorn

    from crosstrain.assembly import open_coordinator, open_run

    parts = open_coordinator(open_run(run), host, port)
    config = uvicorn.Config(parts.app, log_config=None, access_log=False, timeout_keep_alive=75)
    server = uvicorn.Server(config)
    address, bound = parts.listener.getsockname()[:2]
    log.info("coordinator of run %s at http://%s:%d", parts.service.config.run.name, address, bound)

    def work() -> None:
        try:
            parts.loop.run()
        except Exception as error:  # noqa: BLE001 - handed to the main thread, which raises it
            parts.loop.failure = error
        server.should_exit = True

    thread = threading.Thread(target=work, name="loop")
    thread.start()
    try:
        server.run(sockets=[parts.listener])
    finally:
        parts.loop.stop()
        thread.join()
        parts.service.database.close()
    if parts.loop.failure is not None:
        raise parts.loop.failure
