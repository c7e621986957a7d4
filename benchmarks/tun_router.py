"""A long line on one machine: two network namespaces, and a router of packets between them that delays, loses and queues.

Both ends are the kernel's own TCP, so what it does about round trips and loss is what it does on a real line; only the line is
made here. Packets have the size they have on Ethernet: the devices offer no segmentation, so a loss is the loss of one packet.

Needs the right to make network namespaces and /dev/net/tun: run as root, or below `unshare --user --map-root-user --net`.
Nothing on the machine changes: both namespaces and their devices vanish with the router's process.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import random
import select
import struct
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Self

ADDRESSES = ("10.77.0.1", "10.77.0.2")
"""Of the two ends; nobody else sees them."""
MTU = 1500
DEVICE = "line"
BACKLOG = 20_000
"""Packets that a device holds until the router reads them: more than a window, so that none is lost that was not to be."""
BATCH = 64

_CLONE_NEWNET = 0x40000000
_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000


@dataclass(frozen=True)
class Line:
    """Both ways are alike.

    Attributes:
        rtt_s: round trip of an empty line.
        bytes_per_s: at which packets leave the queue, headers counted.
        loss: probability of each packet, independent of the others.
        queue_s: how long a packet waits at most for those before it; one that would wait longer is dropped.
    """

    rtt_s: float
    bytes_per_s: float = 25e6
    loss: float = 0.0
    queue_s: float = 0.2


@dataclass(frozen=True)
class Count:
    """What passed one way, since the line was set.

    Attributes:
        bytes: delivered, headers counted.
        lost: packets that the line lost on purpose.
        overflowed: packets that found the queue full.
        late_ms: the longest that a packet was delivered after its time, because the router was busy.
    """

    bytes: int
    packets: int
    lost: int
    overflowed: int
    late_ms: float


class Way:
    """One direction."""

    def __init__(self, source: int, target: int, line: Line, entropy: random.Random) -> None:
        self.source = source
        self._target = target
        self._line = line
        self._entropy = entropy
        self._queue: deque[tuple[float, bytes]] = deque()
        self._free_at = 0.0
        self._bytes = self._packets = self._lost = self._overflowed = 0
        self._late = 0.0

    def take(self, now: float) -> None:
        """Reads what the source has, up to a batch."""
        line, chance, read, source = self._line, self._entropy.random, os.read, self.source
        loss, rate, latest, delay = line.loss, line.bytes_per_s, now + line.queue_s, line.rtt_s / 2
        free_at, append = max(now, self._free_at), self._queue.append
        try:
            for _ in range(BATCH):
                packet = read(source, 2048)
                if loss and chance() < loss:
                    self._lost += 1
                elif free_at > latest:
                    self._overflowed += 1
                else:
                    free_at += len(packet) / rate
                    append((free_at + delay, packet))
        except BlockingIOError:
            pass
        self._free_at = free_at

    def deliver(self, now: float) -> None:
        """Writes all whose time has come."""
        queue, write, target = self._queue, os.write, self._target
        if queue and queue[0][0] <= now:
            self._late = max(self._late, now - queue[0][0])
        while queue and queue[0][0] <= now:
            packet = queue.popleft()[1]
            write(target, packet)
            self._bytes += len(packet)
            self._packets += 1

    @property
    def due(self) -> float:
        """When the next packet is to be delivered."""
        return self._queue[0][0] if self._queue else float("inf")

    @property
    def count(self) -> Count:
        return Count(self._bytes, self._packets, self._lost, self._overflowed, 1000 * self._late)


class Router:
    """The router's process, from the outside.

    Attributes:
        pid: of the process; its descriptors hold the namespaces.
    """

    def __enter__(self) -> Self:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_route, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self._namespaces: tuple[int, int] = self._pipe.recv()
        assert self._process.pid is not None
        self.pid = self._process.pid
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()

    def namespace(self, end: int) -> str:
        """Path of the namespace of end 0 or 1, for `enter` and for nsenter."""
        return f"/proc/{self.pid}/fd/{self._namespaces[end]}"

    def set(self, line: Line) -> None:
        """From now on the line is like this, and empty."""
        self._pipe.send(line)
        self._pipe.recv()

    def counts(self) -> tuple[Count, Count]:
        """From end 0 to end 1, and back."""
        self._pipe.send(None)
        counts: tuple[Count, Count] = self._pipe.recv()
        return counts


def enter(namespace: str) -> None:
    """Moves this thread, and what it starts, into a network namespace.

    Raises:
        OSError: not permitted.
    """
    descriptor = os.open(namespace, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(descriptor)


def _route(pipe: Connection) -> None:
    """The router's process: until the other end of the pipe is closed."""
    with contextlib.suppress(PermissionError):  # late packets would come in bursts, and overflow the queue
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    namespaces, devices = zip(*(_make_end(address) for address in ADDRESSES), strict=True)
    pipe.send(namespaces)
    ways = _empty(devices, Line(0.0))
    while True:
        now = time.perf_counter()
        wait = min(ways[0].due, ways[1].due) - now
        ready, _, _ = select.select([*devices, pipe], [], [], None if wait == float("inf") else max(0.0, wait))
        now = time.perf_counter()
        for way in ways:
            if way.source in ready:
                way.take(now)
            way.deliver(now)
        if pipe in ready:
            try:
                order = pipe.recv()
            except EOFError:
                return
            if isinstance(order, Line):
                ways = _empty(devices, order)
            pipe.send(tuple(way.count for way in ways))


def _empty(devices: tuple[int, ...], line: Line) -> tuple[Way, Way]:
    entropy = random.Random(0)
    return Way(devices[0], devices[1], line, entropy), Way(devices[1], devices[0], line, entropy)


def _make_end(address: str) -> tuple[int, int]:
    """A new namespace with one device: descriptors of both. The process is in the new namespace afterwards."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        sys.exit(f"no new network namespace: {os.strerror(ctypes.get_errno())}")
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
    commands = (
        f"ip link set {DEVICE} mtu {MTU} txqueuelen {BACKLOG} up",
        f"ip address add {address}/24 dev {DEVICE}",
        "ip link set lo up",
        # Or the slow start of one measurement would begin with what the one before it learnt of the line.
        "sysctl --quiet net.ipv4.tcp_no_metrics_save=1",
    )
    for command in commands:
        subprocess.run(command.split(), check=True)
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY), device
