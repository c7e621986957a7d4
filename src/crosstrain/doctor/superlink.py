"""Whether a SuperLink of Flower is reached from here: by HTTP, as newer releases speak it, or by gRPC, as older ones do.

One request each way that no SuperLink acts on. HTTP takes the environment's proxies as it does for sites; gRPC asks a proxy
for a tunnel, which is named by `grpc_proxy`, `https_proxy` or `http_proxy`, and needs grpcio, which comes with flwr.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from crosstrain.doctor.finding import Finding, Level
from crosstrain.domain import timeouts
from crosstrain.errors import UsageError

FLEET_PATH = "/v1/fleet/pull-messages"
"""Of the HTTP releases: SuperNodes post to it, whoever gets it is told that this is no way to ask (405)."""
FLEET_METHOD = "/flwr.proto.Fleet/Doctor"
"""Of the gRPC releases: calls of this service need a SuperNode's signature, whatever they ask; the method does not exist."""
REFUSED = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED"})
"""What the Fleet API says to whoever signs nothing."""


@dataclass(frozen=True, slots=True)
class SuperLinkSeen:
    """Two requests to an address.

    Attributes:
        address: host and port.
        secure: whether TLS was spoken.
        http_status: of the answer by HTTP, None if there was none.
        http_error: why not.
        grpc_status: name of the status that a gRPC server gave, empty if none did.
        grpc_error: why not; None if gRPC was not tried, for want of grpcio.
    """

    address: str
    secure: bool = True
    http_status: int | None = None
    http_error: str = ""
    grpc_status: str = ""
    grpc_error: str | None = None

    @property
    def protocol(self) -> str:
        """By what SuperNodes can speak to it; empty if nothing is known to pass."""
        if self.http_status == httpx.codes.METHOD_NOT_ALLOWED:
            return "HTTP"
        return "gRPC" if self.grpc_status in REFUSED else ""


def try_superlink(address: str) -> SuperLinkSeen:
    """Asks what listens at HOST:PORT, with TLS, or at http://HOST:PORT, without.

    Raises:
        UsageError: that is no such address.
    """
    secure, place = _parsed(address)
    status, error = _by_http(f"{'https' if secure else 'http'}://{place}{FLEET_PATH}")
    seen = SuperLinkSeen(place, secure, status, error)
    if seen.protocol:
        return seen
    answer = _by_grpc(place, secure)
    if answer is None:
        return seen
    return SuperLinkSeen(place, secure, status, error, *answer)


def _parsed(address: str) -> tuple[bool, str]:
    parts = urlsplit(address if "://" in address else f"https://{address}")
    try:
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port and not parts.path.strip("/")
    except ValueError:  # a port that is no number
        good = False
    if not good or "@" in parts.netloc:
        raise UsageError(
            f"{address!r} is not the address of a SuperLink.",
            "give --superlink HOST:PORT, or http://HOST:PORT where SuperNodes are started with --insecure",
        )
    return parts.scheme == "https", parts.netloc


def _by_http(url: str) -> tuple[int | None, str]:
    limit = httpx.Timeout(timeouts.REQUEST_S, connect=timeouts.CONNECT_S)
    try:
        return httpx.get(url, timeout=limit).status_code, ""
    except httpx.HTTPError as error:
        return None, f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _by_grpc(place: str, secure: bool) -> tuple[str, str] | None:
    """The status of a call and what is wrong with the line, one of them empty; None without grpcio."""
    try:
        import grpc
    except ImportError:
        return None
    roots = os.environ.get("SSL_CERT_FILE")
    trusted = Path(roots).read_bytes() if roots and Path(roots).is_file() else None
    with (
        grpc.secure_channel(place, grpc.ssl_channel_credentials(trusted)) if secure else grpc.insecure_channel(place)
    ) as channel:
        try:
            channel.unary_unary(FLEET_METHOD)(b"", timeout=timeouts.REQUEST_S)
        except grpc.RpcError as error:
            name, said = error.code().name, str(error.details())
            return ("", said) if name in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "UNKNOWN", "INTERNAL") else (name, "")
    return "OK", ""


def judge_superlink(seen: SuperLinkSeen) -> Finding:
    """Whether SuperNodes could work from here."""
    name = "superlink"
    if seen.protocol:
        releases = "a newer release" if seen.protocol == "HTTP" else "Flower 1.33, or one near it"
        return Finding(Level.OK, name, f"{seen.address} answers SuperNodes by {seen.protocol}: {releases}")
    if seen.grpc_status:
        sentence = f"{seen.address} speaks gRPC, but has no Fleet API: {seen.grpc_status}"
        return Finding(Level.FAIL, name, sentence, "give the port of --fleet-api-address, 9092 by default")
    if seen.http_status is not None:
        sentence = f"{seen.address} answers HTTP {seen.http_status}, but no SuperLink of a release that speaks HTTP"
        return Finding(Level.FAIL, name, sentence, "correct the address, or see what proxy answers there")
    if seen.grpc_error is None:
        sentence = (
            f"{seen.address} gives no answer by HTTP ({seen.http_error}), and gRPC cannot be tried without grpcio"
        )
        advice = "run `crosstrain doctor` in the environment of the SuperNode, which has it with flwr"
        return Finding(Level.UNKNOWN, name, sentence, advice)
    insecure = "" if not seen.secure else "; http://HOST:PORT for a SuperLink without TLS"
    return Finding(
        Level.FAIL,
        name,
        f"{seen.address} answers neither by HTTP ({seen.http_error}) nor by gRPC ({seen.grpc_error})",
        f"is it running, is the port open, is its certificate trusted (SSL_CERT_FILE)?{insecure}",
    )
