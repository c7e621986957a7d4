"""The ClientApp: a process for every message, which pumps the mailbox beside its SuperNode."""

from __future__ import annotations

import logging
import socket
from typing import Any

from flwr.app import Message
from flwr.clientapp import ClientApp

from crosstrain.clock import SystemClock
from crosstrain.errors import CrosstrainError
from crosstrain.flower.papers import Collection, Delivery, read
from crosstrain.flower.pump import Pump, open_mailbox
from crosstrain.flower.records import pack, unpack

log = logging.getLogger(__name__)


def pump(message: Any, context: Any) -> Any:
    """Serves one message. What is wrong here is told to the ServerApp, which otherwise hears of an exception only."""
    try:
        mailbox = open_mailbox(str(context.node_config.get("mailbox", "")))
        text, data = unpack(message.content)
        collection, parts = Pump(mailbox, SystemClock(), socket.gethostname()).serve(read(text, Delivery), data)
    except (CrosstrainError, OSError) as error:
        log.error("%s", error)
        collection, parts = Collection(trouble=str(error)), b""
    return Message(pack(collection, parts), reply_to=message)


app = ClientApp()
app.query("pump")(pump)
