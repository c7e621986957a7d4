"""How much of a long line the blobs' client uses, with its default settings and with one stream.

    python benchmarks/wan.py [--rtt 347 70 3] [--loss 0 0.01 1] [--streams 1 0] [--seconds 25] [--json]

A real `crosstrain coordinator` process and the client of a real site in two network namespaces, with a router of our own between
them (tun_router.py): round trip, rate, loss and queue are the router's, TCP is the kernel's, with the buffers and the congestion
control that Linux has unless somebody changed them. Needs root, or `unshare --user --map-root-user --net` before the command, and
the host's leave for its `--congestion` (net.ipv4.tcp_allowed_congestion_control).

Each transfer runs for `--seconds` and is then cut off. Bytes count when the receiver wrote them to its file, which is sparse until
it is whole. Payload is at most 96 % of a line's rate.

    mb_per_s         bytes written over seconds, from before the first connection: slow start is in it
    steady_mb_per_s  the same in the second half of the time
    share, steady_share                  of the line's rate                                    (bar at 347 ms: at least 0.85)
    over_one_stream  mb_per_s over that of one stream, everything else equal                      (bar: at least 3)
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from exchange_site import DEADLINE_S, open_blobs
from processes import exit_on_sigterm
from runs import prepare
from synthetic import stamp, write_weights
from tun_router import ADDRESSES, Line, Router, enter

from crosstrain.assembly import OBJECTS
from crosstrain.batch.command import run, spawn
from crosstrain.domain.ids import Digest
from crosstrain.errors import EnvironmentFault
from crosstrain.storage.object_store import LocalObjectStore, digest_file

PORT = 8470
SAMPLE_S = 0.1
STOCK = {
    "net.ipv4.tcp_rmem": "4096 131072 6291456",
    "net.ipv4.tcp_wmem": "4096 16384 4194304",
}
"""Least, first and largest buffers as Linux sets them on a machine with some gigabytes."""


@dataclass(frozen=True)
class Case:
    """One transfer.

    Attributes:
        streams: None is the client's default.
        congestion: control that both hosts use unless a socket asks for another.
    """

    rtt_ms: float
    loss_percent: float
    direction: str
    streams: int | None
    congestion: str


@dataclass(frozen=True)
class Result:
    """What came of it; see the module.

    Attributes:
        lost, overflowed: packets towards the receiver that the line lost, and that its queue had no room for.
        router_late_ms: the longest that the router was behind; much of it means that the machine was too busy.
    """

    seconds: float
    mib: float
    mb_per_s: float
    steady_mb_per_s: float
    share: float
    steady_share: float
    lost: int
    overflowed: int
    router_late_ms: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rtt", type=float, nargs="+", default=[347, 70, 3], help="milliseconds")
    parser.add_argument("--loss", type=float, nargs="+", default=[0, 0.01, 1], help="percent, each way")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 0], help="0 is the default of the client")
    parser.add_argument("--directions", nargs="+", default=["download", "upload"], choices=["download", "upload"])
    parser.add_argument("--congestion", nargs="+", default=["cubic"], help="of both hosts")
    parser.add_argument("--rate", type=float, default=200, help="megabits per second")
    parser.add_argument("--seconds", type=float, default=25)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    exit_on_sigterm()
    cases = [
        Case(rtt, loss, direction, streams or None, congestion)
        for rtt, loss, direction, congestion, streams in itertools.product(
            options.rtt, options.loss, options.directions, options.congestion, options.streams
        )
    ]
    with (
        tempfile.TemporaryDirectory() as directory,
        Wan(Path(directory), options.rate * 1e6 / 8, options.seconds) as wan,
    ):
        results = {}
        for case in cases:
            results[case] = wan.measure(case)
            print(f"{case}: {results[case]}", file=sys.stderr)
    rows = with_ratios(results)
    print(json.dumps({"rate_mb_per_s": options.rate / 8, "rows": rows}) if options.json else table(rows))


class Wan:
    """A coordinator at one end of a line, and room for a client at the other."""

    def __init__(self, directory: Path, bytes_per_s: float, seconds: float) -> None:
        self._directory = directory
        self._rate = bytes_per_s
        self._seconds = seconds
        self._path = directory / "blob"
        self._router = Router()
        self._uploads = 0

    def __enter__(self) -> Self:
        # More than fits into the time: no transfer comes to its end.
        write_weights(self._path, 1.1 * self._rate * self._seconds / 2**20, "BF16", 1.0)
        files = prepare(self._directory, PORT)
        copy = self._directory / "copy"
        shutil.copyfile(self._path, copy)
        self._objects = files.coordinator_dir / OBJECTS
        self._there = LocalObjectStore(self._objects).adopt(copy)
        self._router.__enter__()
        for end, (name, value) in itertools.product((0, 1), STOCK.items()):
            self._sysctl(end, name, value)
        words = ["-m", "crosstrain", "-q", "coordinator", str(files.path), "--host", ADDRESSES[0]]
        argv = ["nsenter", f"--net={self._router.namespace(0)}", sys.executable, *words]
        self._coordinator = spawn(argv, log=self._directory / "log")
        return self

    def __exit__(self, *_: object) -> None:
        self._coordinator.kill_group()
        self._router.__exit__()

    def measure(self, case: Case) -> Result:
        """Runs one transfer for the time that is set."""
        for end in (0, 1):
            self._sysctl(end, "net.ipv4.tcp_congestion_control", case.congestion)
        digest = self._there if case.direction == "download" else self._another()
        self._router.set(Line(case.rtt_ms / 1000, self._rate, case.loss_percent / 100))
        samples = list(self._samples(case, digest))
        counts = self._router.counts()[case.direction == "upload"]
        return self._result(samples, counts.lost, counts.overflowed, counts.late_ms)

    def _another(self) -> Digest:
        """A blob that the coordinator holds nothing of."""
        self._uploads += 1
        stamp(self._path, self._uploads)
        return digest_file(self._path)

    def _samples(self, case: Case, digest: Digest) -> Iterator[tuple[float, int]]:
        """(seconds, bytes written), the first at the beginning."""
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        url = f"http://{ADDRESSES[0]}:{PORT}"
        target = self._directory / "downloads" / "blob"
        target.parent.mkdir()
        arguments = (theirs, self._router.namespace(1), url, case, self._path, target, digest)
        process = context.Process(target=_transfer, args=arguments, daemon=True)
        process.start()
        theirs.close()
        receiving = target.parent if case.direction == "download" else self._objects / "uploads"
        try:
            ours.recv()
            begun, now = time.perf_counter(), 0.0
            before = allocated(receiving)
            while now < self._seconds and process.is_alive():
                yield now, allocated(receiving) - before
                time.sleep(SAMPLE_S)
                now = time.perf_counter() - begun
        finally:
            process.kill()
            process.join()
            shutil.rmtree(target.parent)
            for leftover in (self._objects / "uploads").glob("*"):
                leftover.unlink()

    def _result(self, samples: Sequence[tuple[float, int]], lost: int, overflowed: int, late_ms: float) -> Result:
        seconds, there = samples[-1]
        half_at, half = next(sample for sample in samples if sample[0] >= seconds / 2)
        whole, steady = there / seconds, (there - half) / max(seconds - half_at, 1e-9)
        return Result(
            seconds,
            there / 2**20,
            whole / 1e6,
            steady / 1e6,
            whole / self._rate,
            steady / self._rate,
            lost,
            overflowed,
            late_ms,
        )

    def _sysctl(self, end: int, name: str, value: str) -> None:
        done = run(["nsenter", f"--net={self._router.namespace(end)}", "sysctl", "-q", f"{name}={value}"], timeout=10)
        if done.code:
            raise EnvironmentFault(
                f"{name} cannot be set to {value!r}: {done.stderr.strip()}.",
                "a congestion control must be in the host's net.ipv4.tcp_allowed_congestion_control",
            )


def allocated(directory: Path) -> int:
    """Bytes of its files that were written, holes not counted."""
    return sum(path.stat().st_blocks * 512 for path in directory.glob("*")) if directory.exists() else 0


def _transfer(
    pipe: Connection, namespace: str, url: str, case: Case, source: Path, target: Path, digest: Digest
) -> None:
    """The client's process, which is killed before it is done."""
    enter(namespace)
    blobs = open_blobs(url, random.Random(0), case.streams)
    pipe.send(None)
    if case.direction == "download":
        blobs.download(digest, target, DEADLINE_S, lambda *_: None)
    else:
        blobs.upload(source, digest, DEADLINE_S, lambda *_: None)


def with_ratios(results: dict[Case, Result]) -> list[dict[str, Any]]:
    """One row of each case, with its ratio to one stream if that was measured."""
    rows = []
    for case, result in results.items():
        single = results.get(replace(case, streams=1))
        ratio = result.mb_per_s / single.mb_per_s if single and single.mb_per_s and case.streams != 1 else None
        rows.append({**asdict(case), **asdict(result), "over_one_stream": ratio})
    return rows


def table(rows: Sequence[dict[str, Any]]) -> str:
    lines = ["  rtt ms  loss %  direction  hosts  streams   MB/s  steady  share  steady  over one  lost  full  late ms"]
    for row in rows:
        over = "" if row["over_one_stream"] is None else f"{row['over_one_stream']:.1f}"
        lines.append(
            f"{row['rtt_ms']:8g}{row['loss_percent']:8g}  {row['direction']:9}  {row['congestion']:5}"
            f"{row['streams'] or 'default':>9}{row['mb_per_s']:7.2f}{row['steady_mb_per_s']:8.2f}{row['share']:7.2f}"
            f"{row['steady_share']:8.2f}{over:>10}{row['lost']:6}{row['overflowed']:6}{row['router_late_ms']:9.1f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
