"""Tries the ways to a coordinator: short requests only, and nothing that changes the run."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import httpx
from pydantic import ValidationError

from crosstrain.clock import Clock, pause
from crosstrain.doctor.observations import Answer, Bodies, Connect, Ranged, Resolved, StoreSeen
from crosstrain.domain import timeouts
from crosstrain.wire.direct import base_of
from crosstrain.wire.messages import PROTOCOL, Problem, Received

MIB = 1 << 20
SIZES = (1 << 18, MIB, 4 * MIB, 16 * MIB)
"""Bodies that are tried: from the smallest part of an upload to the largest."""
SAMPLE_BYTES = 8 * MIB
ANY_DIGEST = "0" * 64


def resolve(url: str) -> Resolved:
    """What the name service says of the host in `url`."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    found = [Resolved(host, error=f"no answer within {timeouts.NAME_S:g} s")]

    def ask() -> None:
        try:
            entries = socket.getaddrinfo(host, parts.port or 443, type=socket.SOCK_STREAM)
            found.append(Resolved(host, tuple(dict.fromkeys(str(entry[4][0]) for entry in entries))))
        except (OSError, UnicodeError) as error:
            found.append(Resolved(host, error=getattr(error, "strerror", "") or str(error)))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(timeouts.NAME_S)
    return found[-1]


class Probe:
    """One way: directly, or through a proxy.

    Args:
        proxy: address of the proxy, None for the direct way.
    """

    def __init__(self, url: str, proxy: str | None, clock: Clock) -> None:
        self.url = url.rstrip("/")
        self._proxy = proxy
        self._clock = clock
        limit = httpx.Timeout(timeouts.REQUEST_S, connect=timeouts.CONNECT_S)
        # The environment's certificates count, its proxies do not: each way is tried by itself.
        verify = httpx.create_ssl_context()
        self._http = httpx.Client(proxy=proxy, trust_env=False, verify=verify, timeout=limit)

    def close(self) -> None:
        self._http.close()

    def status(self, silent_s: float) -> Answer:
        """Asks twice, so that the second time measures one round trip, and once more after a silence.

        Args:
            silent_s: how long the connection is left alone; 0 leaves that out.
        """
        seen = Answer(without_credentials(self.url), without_credentials(self._proxy or ""))
        try:
            self._http.get(f"{self.url}/v1/status")
            began, sent = self._clock.now(), self._clock.perf()
            response = self._http.get(f"{self.url}/v1/status")
            seconds = self._clock.perf() - sent
            seen = _read(replace(seen, seconds=seconds), response, began + 500 * seconds, self._clock.now() / 1000)
            if silent_s > 0:
                held = self._stays(silent_s)
                seen = replace(seen, held=held, silent_s=silent_s)
        except httpx.HTTPError as error:
            seen = replace(seen, error=_words(error))
        return seen

    def _stays(self, silent_s: float) -> bool | None:
        """Whether the connection survives a silence: told by its local port."""
        before = self._http.get(f"{self.url}/v1/status")
        if before.headers.get("connection", "").lower() == "close":
            return None
        pause(silent_s)
        after = self._http.get(f"{self.url}/v1/status")
        return _local_port(before) == _local_port(after)

    def bodies(self) -> Bodies:
        """Sends registrations of growing size that no coordinator takes, because they are no JSON."""
        seen = Bodies()
        for size in SIZES:
            body = b"x" * size
            sent = self._clock.perf()
            try:
                response = self._http.post(
                    f"{self.url}/v1/sessions", content=body, headers={"content-type": "application/json"}
                )
            except httpx.HTTPError as error:
                return replace(seen, refused=size, why=_words(error))
            seconds = self._clock.perf() - sent
            if response.status_code != 422:
                return replace(seen, refused=size, why=f"HTTP {response.status_code} {response.reason_phrase}")
            seen = Bodies(largest=size, rate=size / max(1e-4, seconds))
            if seconds > timeouts.MEASURED_S:
                break
        return seen

    def ranged(self, digest: str | None) -> Ranged:
        """Fetches the first bytes of a blob."""
        if digest is None:
            return Ranged()
        sent, length = self._clock.perf(), 0
        headers = {"range": f"bytes=0-{SAMPLE_BYTES - 1}", "accept-encoding": "identity"}
        try:
            with self._http.stream("GET", f"{self.url}/v1/blobs/{digest}", headers=headers) as response:
                for chunk in response.iter_raw():
                    length += len(chunk)
                    if length >= SAMPLE_BYTES or self._clock.perf() - sent > timeouts.MEASURED_S:
                        break
                rate = length / max(1e-4, self._clock.perf() - sent)
                told = response.headers.get("content-range", "")
                return Ranged(response.status_code, told, length, rate)
        except httpx.HTTPError as error:
            return Ranged(error=_words(error))

    def store(self, digest: str | None) -> StoreSeen | None:
        """Fetches a byte of a blob from where the coordinator says; None if its blobs are in no object store."""
        try:
            answer = self._http.get(f"{self.url}/v1/blobs/{digest or ANY_DIGEST}/received")
            held = Received.model_validate_json(answer.content)
        except (httpx.HTTPError, ValidationError):
            return None
        if held.address is None:
            return None if held.direct_from is None else StoreSeen()
        url = base_of(held.address)
        try:
            return StoreSeen(url, self._http.get(held.address, headers={"range": "bytes=0-0"}).status_code)
        except httpx.HTTPError as error:
            return StoreSeen(url, error=_words(error))

    def connect(self) -> Connect:
        """Asks the proxy for a tunnel to the coordinator's port, and makes no use of it."""
        proxy, target = urlsplit(self._proxy or ""), urlsplit(self.url)
        name = without_credentials(self._proxy or "")
        port = target.port or (443 if target.scheme == "https" else 80)
        line = http.client.HTTPConnection(proxy.hostname or "", proxy.port or 80, timeout=timeouts.CONNECT_S)
        headers = {}
        if proxy.username:
            request = httpx.Request("GET", self.url)
            next(httpx.BasicAuth(proxy.username, proxy.password or "").auth_flow(request))
            headers["proxy-authorization"] = request.headers["authorization"]
        try:
            line.set_tunnel(target.hostname or "", port, headers)
            line.connect()
        except OSError as error:
            refused = str(error).startswith("Tunnel connection failed")
            return Connect(name, False if refused else None, str(error).partition(": ")[2] or str(error))
        except http.client.HTTPException as error:
            return Connect(name, None, str(error) or type(error).__name__)
        finally:
            line.close()
        return Connect(name, True)


def without_credentials(url: str) -> str:
    """The address for people to see."""
    scheme, found, rest = url.partition("://")
    if not found:
        return url
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def _read(seen: Answer, response: httpx.Response, middle_ms: float, now_s: float) -> Answer:
    seen = replace(seen, status=response.status_code, certificate_s=_certificate_s(response, now_s))
    document: Any = None
    try:
        document = json.loads(response.content)
    except ValueError:
        return seen
    if not isinstance(document, dict):
        return seen
    if response.is_success and isinstance(document.get("run"), str) and isinstance(document.get("now"), int):
        protocol = document.get("protocol", PROTOCOL)
        return replace(
            seen,
            coordinator=True,
            run=document["run"],
            version=str(document.get("version", "")),
            protocol=protocol if isinstance(protocol, int) else None,
            ahead_ms=document["now"] - middle_ms,
            weights=document.get("weights"),
        )
    try:
        return replace(seen, problem=Problem.model_validate(document).detail) if "kind" in document else seen
    except ValidationError:  # other services know a "kind" too
        return seen


def _certificate_s(response: httpx.Response, now_s: float) -> float | None:
    stream = response.extensions.get("network_stream")
    secure = stream.get_extra_info("ssl_object") if stream else None
    certificate = secure.getpeercert() if secure else None
    return ssl.cert_time_to_seconds(certificate["notAfter"]) - now_s if certificate else None


def _local_port(response: httpx.Response) -> object:
    stream = response.extensions.get("network_stream")
    return stream.get_extra_info("client_addr") if stream else None


def _words(error: httpx.HTTPError) -> str:
    name = type(error).__name__
    return f"{name}: {error}" if str(error) else name
