"""Puts a relay together."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path

from crosstrain.clock import SystemClock
from crosstrain.errors import UsageError
from crosstrain.relay.forward import Forwarder
from crosstrain.relay.moves import MakeBlobs
from crosstrain.relay.relay import Relay
from crosstrain.wire.mailbox import Mailbox, mailbox_of
from crosstrain.wire.transfer import BlobClient


def open_relay(directory: Path, url: str) -> Relay:
    """A relay that newly serves a mailbox.

    Raises:
        UsageError: `url` is no address of a coordinator.
        EnvironmentFault: the mailbox cannot be used.
    """
    if mailbox_of(url) is not None:
        raise UsageError(
            f"{url!r} is a mailbox; a relay needs the coordinator's own address.", "give --url https://..."
        )
    mailbox = Mailbox(directory)
    forwarder, make_blobs = open_forwarding(url)
    me = f"{os.getpid()}-{secrets.token_hex(4)}"
    return Relay(mailbox, forwarder, make_blobs, SystemClock(), me, socket.gethostname())


def open_forwarding(url: str) -> tuple[Forwarder, MakeBlobs]:
    """What passes requests on to the coordinator, and what makes clients for blobs.

    Raises:
        UsageError: `url` is no address of a coordinator.
    """
    clock, jitter = SystemClock(), secrets.SystemRandom().random
    return Forwarder(url), lambda wait: BlobClient(url, clock, jitter, wait)
