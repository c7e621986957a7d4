"""The way from a program to the coordinator, picked by the address: directly or through a forward proxy, or a mailbox."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from crosstrain.clock import Clock
from crosstrain.wire.blobs import Blobs
from crosstrain.wire.client import ControlClient
from crosstrain.wire.mailbox import Mailbox, mailbox_of
from crosstrain.wire.sender import MailboxBlobs, MailboxTransport
from crosstrain.wire.transfer import BlobClient


@dataclass(frozen=True, slots=True)
class Way:
    """Makes clients for an address: of a coordinator, or of a mailbox in which a relay looks.

    Attributes:
        url: `https://...`, several of them, or `mailbox:DIR`.
        name: of whoever sends, for the mailbox.
        jitter, wait: as for `ControlClient`.
    """

    url: str | Sequence[str]
    name: str
    clock: Clock
    jitter: Callable[[], float]
    wait: Callable[[float], bool]

    def control(self) -> ControlClient:
        """A client for control messages, with a connection or a letter box of its own.

        Raises:
            UsageError: this is no address.
            EnvironmentFault: the mailbox cannot be used.
        """
        mailbox = mailbox_of(self.url)
        transport = None if mailbox is None else MailboxTransport(Mailbox(mailbox), self._sender("control"), self.clock)
        return ControlClient(self.url, self.clock, self.jitter, self.wait, transport)

    def blobs(self) -> Blobs:
        """A client for weights, apart from control messages. Raises as `control` does."""
        mailbox = mailbox_of(self.url)
        if mailbox is None:
            return BlobClient(self.url, self.clock, self.jitter, self.wait)
        return MailboxBlobs(Mailbox(mailbox), self._sender("blobs"), self.clock, self.wait)

    def _sender(self, role: str) -> str:
        # Unlike any other: two processes that wrote letters into one box would withdraw each other's.
        return f"{self.name}-{role}-{secrets.token_hex(4)}"
