"""Where the coordinator may be: one address, or those of a coordinator and its standbys."""

from __future__ import annotations

from collections.abc import Sequence

import httpx

from crosstrain import __version__
from crosstrain.domain import timeouts
from crosstrain.errors import UsageError
from crosstrain.wire.mailbox import SCHEME

TIMEOUT = httpx.Timeout(timeouts.REQUEST_S, connect=timeouts.CONNECT_S)


class Addresses:
    """Clients for what lies below `path` at each address. One is used until an attempt at it fails; then it is the next
    one's turn.

    Args:
        urls: one address, several separated by commas, or a sequence of them.
        transport: another way to the servers, for tests.

    Raises:
        UsageError: one of them is no address. Retrying could not change that.
    """

    def __init__(self, urls: str | Sequence[str], path: str, transport: httpx.BaseTransport | None) -> None:
        given = urls.split(",") if isinstance(urls, str) else urls
        self._urls = [url.strip().rstrip("/") for url in given] or [""]
        self._clients = [_open(url, path, transport) for url in self._urls]
        self._at = 0
        self._failed = 0

    def __str__(self) -> str:
        return " or ".join(self._urls)

    @property
    def http(self) -> httpx.Client:
        """The one to use now."""
        return self._clients[self._at]

    def answered(self) -> None:
        """The attempt succeeded."""
        self._failed = 0

    def turn(self) -> bool:
        """The attempt failed. Returns whether all addresses failed since the last success or the last such answer, so that
        it is time for a pause."""
        self._at = (self._at + 1) % len(self._clients)
        self._failed = (self._failed + 1) % len(self._clients)
        return self._failed == 0

    def close(self) -> None:
        for client in self._clients:
            client.close()


def _open(url: str, path: str, transport: httpx.BaseTransport | None) -> httpx.Client:
    try:
        address = httpx.URL(("http://mailbox" if url.startswith(SCHEME) and transport else url) + path)
        found = "" if address.scheme in ("http", "https") and address.host else "no http:// or https:// with a host"
    except httpx.InvalidURL as error:
        found = str(error)
    if found:
        raise UsageError(
            f"{url!r} is not the address of a coordinator: {found}.",
            "set `site.url` in RUN.toml, for example https://coordinator.example.org:8470",
        )
    # Blobs are compressed by no one: a Content-Length of compressed bytes would say nothing about ranges.
    headers = {"user-agent": f"crosstrain/{__version__}", "accept-encoding": "identity"}
    return httpx.Client(base_url=address, timeout=TIMEOUT, headers=headers, transport=transport)
