"""Which way a site should take, and what to write into RUN.toml. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from crosstrain.doctor.judge_network import SMALL_BODY, usable
from crosstrain.doctor.observations import Answer, Bodies, Box, Ranged
from crosstrain.doctor.superlink import SuperLinkSeen


@dataclass(frozen=True, slots=True)
class Seen:
    """One way with what was measured on it."""

    answer: Answer
    bodies: Bodies = field(default_factory=Bodies)
    ranged: Ranged = field(default_factory=Ranged)

    @property
    def good(self) -> bool:
        """Whether requests, uploads and downloads pass."""
        broken = self.ranged.status not in (None, 206)
        return usable(self.answer) and self.bodies.largest >= SMALL_BODY and not broken

    @property
    def rate(self) -> float | None:
        """Bytes per second of the slower direction."""
        rates = [rate for rate in (self.bodies.rate, self.ranged.rate) if rate]
        return min(rates, default=None)


@dataclass(frozen=True, slots=True)
class Choice:
    """A way that works.

    Attributes:
        way: direct, proxy, relay or flower.
        reason: why this one.
        lines: for RUN.toml.
        shell: lines for the job's script.
    """

    way: str
    reason: str
    lines: tuple[str, ...]
    shell: tuple[str, ...] = ()


def choose(ways: Sequence[Seen], box: Box | None, link: SuperLinkSeen | None = None) -> Choice | None:
    """The first that works of: directly, through the proxy, through a relay, through Flower; None if none does."""
    for seen in sorted(ways, key=lambda way: bool(way.answer.proxy)):
        if not seen.good:
            continue
        url = seen.answer.url
        lines = ("[site]", f"url = {json.dumps(url)}")
        variable = "HTTPS_PROXY" if url.startswith("https:") else "HTTP_PROXY"
        if seen.answer.proxy:
            reason = "not directly, but through the proxy of the environment"
            return Choice("proxy", reason, lines, (f"export {variable}={seen.answer.proxy}",))
        bypass = any(way.answer.proxy for way in ways)
        shell = (f"export NO_PROXY={urlsplit(url).hostname}",) if bypass else ()
        reason = (
            "without the proxy of the environment, which is one machine less" if bypass else "nothing is in between"
        )
        return Choice("direct", reason, lines, shell)
    if box is not None and not box.error and box.pulse is not None and not box.pulse.ended and box.moved:
        lines = ("[site]", f"url = {json.dumps('mailbox:' + box.directory)}")
        return Choice("relay", f"no way of its own, but the relay on {box.pulse.host}", lines)
    if link is not None and link.protocol and (box is None or not box.error):
        return _by_flower(link, box.directory if box is not None else "/path/to/mailbox")
    return None


def _by_flower(link: SuperLinkSeen, directory: str) -> Choice:
    insecure = "" if link.secure else " --insecure"
    config = f"--node-config 'mailbox={json.dumps(directory)}'"
    return Choice(
        "flower",
        f"no way of its own, but the SuperLink at {link.address}",
        ("[site]", f"url = {json.dumps('mailbox:' + directory)}"),
        (f"flower-supernode{insecure} --superlink {link.address} {config} &",),
    )
