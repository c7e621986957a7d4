"""What was seen, without a judgement. `None` is "could not be seen"."""

from __future__ import annotations

from dataclasses import dataclass

from crosstrain.wire.mailbox import Pulse


@dataclass(frozen=True, slots=True)
class Resolved:
    """A host name and the addresses that this machine knows it by."""

    host: str
    addresses: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """One request to a coordinator's status, directly or through a proxy.

    Attributes:
        proxy: address of the proxy without credentials, empty if there is none.
        error: why there was no answer.
        seconds: from the request to the end of the answer, on a connection that existed.
        coordinator: whether it is the status of a crosstrain coordinator.
        problem: detail of a problem document, for example a standby's.
        ahead_ms: the server's clock minus this machine's, in the middle of the request.
        weights: digest of the newest generation, for a download.
        certificate_s: seconds until the certificate ends, None without TLS.
        held: whether a connection that was silent for `silent_s` was still there; None if it was not tried.
    """

    url: str
    proxy: str = ""
    error: str = ""
    status: int | None = None
    seconds: float | None = None
    coordinator: bool = False
    problem: str = ""
    run: str = ""
    version: str = ""
    protocol: int | None = None
    ahead_ms: float | None = None
    weights: str | None = None
    certificate_s: float | None = None
    held: bool | None = None
    silent_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Bodies:
    """Requests with bodies that grow.

    Attributes:
        largest: bytes of the largest that the coordinator answered.
        refused: bytes of the first that somebody refused, None if none was.
        why: what the refusal said.
        rate: bytes per second of the largest.
    """

    largest: int = 0
    refused: int | None = None
    why: str = ""
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class Ranged:
    """A download of a part of a blob.

    Attributes:
        status: 206 if the range was honoured; None if there is no blob yet.
        rate: bytes per second.
    """

    status: int | None = None
    content_range: str = ""
    length: int = 0
    rate: float | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class StoreSeen:
    """The object store that a coordinator sends sites to.

    Attributes:
        url: scheme and host; empty if there is no blob yet whose address could be asked for.
        status: 206 if it gave a byte of a blob.
        error: why there was no answer.
    """

    url: str = ""
    status: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class BucketSeen:
    """The bucket of the run file, tried with the credentials of this machine.

    Attributes:
        tried: False if there are none, or no boto3.
        error, hint: what it refused, and what to do.
    """

    name: str
    tried: bool = True
    error: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Connect:
    """Whether a proxy makes tunnels (CONNECT) to the coordinator's port."""

    proxy: str
    allowed: bool | None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Box:
    """A mailbox directory.

    Attributes:
        error: why it cannot be used.
        pulse: the relay's sign of life, None if there never was one.
        moved: whether it changed while it was watched.
    """

    directory: str
    kind: str = ""
    error: str = ""
    pulse: Pulse | None = None
    moved: bool = False


@dataclass(frozen=True, slots=True)
class Disk:
    """A directory of the run file, or the nearest one above it that exists.

    Attributes:
        setting: its key.
        kind: of the file system, as the kernel names it.
        free_inodes: None where the file system has no fixed number.
    """

    setting: str
    path: str
    kind: str = ""
    mount: str = ""
    free_bytes: int | None = None
    free_inodes: int | None = None
    writable: bool | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the doctor stands.

    Attributes:
        job: what batch job it is in, empty if in none.
        schedulers: submit commands on the path.
        bbr: whether a socket could be made to send with bbr.
        congestion: algorithms that any user may choose; None if the kernel does not say.
        missing: modules of the trainer that are not installed.
        processes: most that this user may start, None without a limit.
    """

    host: str
    cores: int
    processes: int | None
    job: str
    schedulers: tuple[str, ...]
    bbr: bool
    congestion: tuple[str, ...] | None
    missing: tuple[str, ...]
