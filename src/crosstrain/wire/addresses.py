"""Where the coordinator may be: one address, or those of a coordinator and its standbys."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import httpx

from crosstrain import __version__
from crosstrain.domain import timeouts
from crosstrain.errors import UsageError
from crosstrain.wire.mailbox import SCHEME

USER_AGENT = f"crosstrain/{__version__}"
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
        self._urls = several(urls)
        self._clients = [_open(url, path, transport) for url in self._urls]
        self._turns = Turns(len(self._urls))

    def __str__(self) -> str:
        return " or ".join(self._urls)

    @property
    def http(self) -> httpx.Client:
        """The one to use now."""
        return self._clients[self._turns.at]

    def answered(self) -> None:
        """The attempt succeeded."""
        self._turns.answered()

    def turn(self) -> bool:
        """The attempt failed. Returns whether it is time for a pause."""
        return self._turns.failed(self._turns.at)

    def close(self) -> None:
        for client in self._clients:
            client.close()


class Turns:
    """Whose turn it is, of several addresses; for several threads.

    Attributes:
        at: index of the one to use now.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._failed = 0
        self.at = 0

    def answered(self) -> None:
        with self._lock:
            self._failed = 0

    def failed(self, at: int) -> bool:
        """An attempt at that address failed. Returns whether all failed since the last success or the last such answer, so
        that it is time for a pause."""
        with self._lock:
            if at != self.at:
                return False  # another thread saw it first
            self.at = (self.at + 1) % self._count
            self._failed = (self._failed + 1) % self._count
            return self._failed == 0


def several(urls: str | Sequence[str]) -> list[str]:
    """The addresses that are given as one text or as several; at least one, which may be empty."""
    given = urls.split(",") if isinstance(urls, str) else urls
    return [url.strip().rstrip("/") for url in given] or [""]


def require_address(url: str) -> httpx.URL:
    """The address, parsed.

    Raises:
        UsageError: it is none.
    """
    try:
        address = httpx.URL(url)
        found = _fault_of(address)
    except (httpx.InvalidURL, UnicodeError) as error:  # UnicodeError: of a name that no name service can hold
        found = str(error)
    if found:
        raise UsageError(
            f"{url!r} is not the address of a coordinator: {found.rstrip('.')}.",
            "correct --url, or `site.url` in RUN.toml; for example https://coordinator.example.org:8470",
        )
    return address


def _fault_of(address: httpx.URL) -> str:
    """What is wrong with an address that can be parsed; empty if nothing is."""
    if address.scheme not in ("http", "https") or not address.host:
        return "no http:// or https:// with a host"
    if "%20" in address.host:
        return "a space in the host"
    if address.port is not None and not 0 < address.port < 1 << 16:
        return f"a port of 1 to 65535 expected, found {address.port}"
    return "paths are put behind it, so it cannot have a ? or #" if address.query or address.fragment else ""


def _open(url: str, path: str, transport: httpx.BaseTransport | None) -> httpx.Client:
    address = "http://mailbox" if url.startswith(SCHEME) and transport else url
    require_address(address)
    return httpx.Client(
        base_url=address + path, timeout=TIMEOUT, headers={"user-agent": USER_AGENT}, transport=transport
    )
