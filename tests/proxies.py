"""Forward proxies as computing centres run them: squid and tinyproxy, each in a directory and on a port of its own; and a
TLS front for a coordinator, because a proxy tunnels (CONNECT) what it may not read."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from crosstrain.batch.command import run, spawn
from crosstrain.clock import SystemClock, pause
from crosstrain.demo.prepare import free_port
from crosstrain.wire.listening import listen

PATIENCE_S = 30.0
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[None, None, None]]
NAME = "coordinator.test"
"""A host that only the proxy can resolve."""
SYSTEM = ("/usr/sbin", "/usr/bin")


@dataclass(frozen=True)
class Proxy:
    """A running proxy."""

    url: str
    directory: Path

    @property
    def access_log(self) -> str:
        """What it did; read it while it runs."""
        return "".join(path.read_text() for path in self.directory.glob("access.log"))


def program(name: str) -> str:
    """Where the program is; skips the test if it is not installed."""
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *SYSTEM]))
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@contextmanager
def squid(*settings: str) -> Iterator[Proxy]:
    """A squid that lets everything through, but for `settings` (lines of its configuration)."""
    argv, port = [program("squid"), "-N", "-f"], free_port()
    with tempfile.TemporaryDirectory(prefix="ct-squid-") as made:
        directory = Path(made)
        directory.chmod(0o777)  # root's squid becomes another user
        configuration = directory / "squid.conf"
        configuration.write_text(_squid_configuration(directory, port, settings))
        yield from _serve([*argv, str(configuration)], port, directory)


def _squid_configuration(directory: Path, port: int, settings: Sequence[str]) -> str:
    (directory / "hosts").write_text(f"127.0.0.1 {NAME}\n")
    lines = [
        f"http_port 127.0.0.1:{port}",
        "visible_hostname proxy.test",
        f"hosts_file {directory}/hosts",
        "http_access allow all",
        "cache deny all",
        "cache_mem 4 MB",
        "memory_cache_shared off",
        "shutdown_lifetime 0 seconds",
        f"pid_filename {directory}/squid.pid",
        f"access_log stdio:{directory}/access.log",
        f"cache_log {directory}/cache.log",
        f"coredump_dir {directory}",
        *settings,
    ]
    return "\n".join(lines) + "\n"


@contextmanager
def tinyproxy(*settings: str) -> Iterator[Proxy]:
    """A tinyproxy that tunnels to no port unless `settings` name one (ConnectPort)."""
    argv, port = [program("tinyproxy"), "-d", "-c"], free_port()
    with tempfile.TemporaryDirectory(prefix="ct-tinyproxy-") as made:
        directory = Path(made)
        lines = [
            f"Port {port}",
            "Listen 127.0.0.1",
            "MaxClients 50",
            "LogLevel Connect",
            f'LogFile "{directory}/access.log"',
            *(settings or ("ConnectPort 1",)),
        ]
        configuration = directory / "tinyproxy.conf"
        configuration.write_text("\n".join(lines) + "\n")
        yield from _serve([*argv, str(configuration)], port, directory)


def _serve(argv: list[str], port: int, directory: Path) -> Iterator[Proxy]:
    child = spawn(argv, log=directory / "output.log")
    try:
        clock = SystemClock()
        deadline = clock.perf() + PATIENCE_S
        while not _listens(port):
            assert child.poll() is None and clock.perf() < deadline, (directory / "output.log").read_text()
            pause(0.05)
        yield Proxy(f"http://127.0.0.1:{port}", directory)
    finally:
        child.kill_group()


def _listens(port: int) -> bool:
    with socket.socket() as line:
        return line.connect_ex(("127.0.0.1", port)) == 0


def certificate(directory: Path, days: int = 30) -> tuple[Path, Path]:
    """(certificate, key) of `NAME` and of this machine, signed by itself."""
    paths = directory / "certificate.pem", directory / "key.pem"
    made = run(
        [
            program("openssl"),
            *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", str(days), "-subj", f"/CN={NAME}"),
            *("-addext", f"subjectAltName=DNS:{NAME},IP:127.0.0.1"),
            *("-out", str(paths[0]), "-keyout", str(paths[1])),
        ],
        timeout=PATIENCE_S,
    )
    assert made.code == 0, made.stderr
    return paths


@contextmanager
def tls_front(target: int, certificate_path: Path, key_path: Path) -> Iterator[int]:
    """TLS on a port, which is given; what comes in goes to the port `target`, as from a server in front of it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate_path, key_path)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target)
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))

    with _listening(serve, context) as port:
        yield port


@dataclass
class Meter:
    """A line of limited rate to a port, and the bytes that went over it."""

    port: int = 0
    up: int = 0
    down: int = 0


@contextmanager
def metered_line(target: int, rate: float) -> Iterator[Meter]:
    """A line to the port `target` that passes `rate` bytes a second each way, all connections together."""
    meter = Meter()
    free_at = {"up": 0.0, "down": 0.0}

    async def passing(way: str, count: int) -> None:
        setattr(meter, way, getattr(meter, way) + count)
        loop = asyncio.get_running_loop()
        free_at[way] = max(loop.time(), free_at[way]) + count / rate
        done = loop.create_future()
        loop.call_at(free_at[way], lambda: done.done() or done.set_result(None))
        await done

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target)
            up = _copy(reader, far_writer, lambda count: passing("up", count))
            down = _copy(far_reader, writer, lambda count: passing("down", count))
            await asyncio.gather(up, down)

    with _listening(serve, None) as meter.port:
        yield meter


@contextmanager
def _listening(serve: Serve, context: ssl.SSLContext | None) -> Iterator[int]:
    """A server in a thread of its own; gives its port."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="line", daemon=True)
    thread.start()
    listener = listen("127.0.0.1", 0)
    server = asyncio.run_coroutine_threadsafe(asyncio.start_server(serve, sock=listener, ssl=context), loop).result()
    try:
        yield int(listener.getsockname()[1])
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(loop)])
        loop.call_soon_threadsafe(lambda: loop.call_later(0.1, loop.stop))
        thread.join()
        loop.close()


async def _copy(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    passing: Callable[[int], Coroutine[None, None, None]] | None = None,
) -> None:
    try:
        while data := await reader.read(1 << 16):
            if passing is not None:
                await passing(len(data))
            writer.write(data)
            await writer.drain()
    except (OSError, ssl.SSLError):
        pass  # one end is gone, so the other goes as well
    finally:
        writer.close()
