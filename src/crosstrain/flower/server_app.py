"""The ServerApp: one process that carries letters between the nodes of a federation and the coordinator."""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

from flwr.serverapp import ServerApp

from crosstrain.clock import SystemClock, pause
from crosstrain.flower.app_directory import RunSettings, check_release, installed_release
from crosstrain.flower.carrier import Carrier, await_coordinator
from crosstrain.flower.grid import GridExchange
from crosstrain.flower.office import Office
from crosstrain.relay.opening import open_forwarding
from crosstrain.wire.mailbox import Mailbox


def carry(grid: Any, context: Any) -> None:
    """Carries until the training is over and its sites left. It keeps nothing: a run that was lost is started again.

    Raises:
        UsageError: flwr is of a release that was not tried, or a setting of the run is not what it should be.
        Unreachable: the coordinator did not answer at the start.
    """
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    check_release(installed_release())
    settings = RunSettings.of(context.run_config)
    with tempfile.TemporaryDirectory(prefix="crosstrain-flower-") as directory:
        clock = SystemClock()
        forwarder, make_blobs = open_forwarding(settings.coordinator)
        office = Office(
            Mailbox(Path(directory) / "mirror"),
            forwarder,
            make_blobs,
            clock,
            inline=settings.weights == "inline",
            batch_bytes=settings.batch_mib << 20,
            linger_s=settings.linger_s,
        )
        try:
            await_coordinator(office, settings.connect_s)
            carrier = Carrier(GridExchange(grid), office, settings.stay_s)
            while not carrier.over:
                due = clock.perf() + carrier.step()
                pause(due - clock.perf())
        finally:
            office.close()


app = ServerApp()
app.main()(carry)
