"""One whole exchange, three downloads, three uploads, merge and publication, against the floor of the same machine.

    python benchmarks/transfer.py [--mib N] [--repetitions N] [--streams 1 8] [--flower N] [--json]
    python benchmarks/transfer.py --mib 1331        # the published size: 310 tensors, 1.3 GiB in bf16

Ours is a real `crosstrain coordinator` process and three processes with the clients of a real site, which ask, download,
lease, upload and contribute; only training takes no time. With TLS an nginx stands before it, as `crosstrain nginx` configures
it. The floor is nginx (sendfile, WebDAV) and curl with the same bytes and an fsync of every file at both ends. Flower is its
newest release as it is usually used, 310 arrays inline (flower_exchange.py). Everything lies in one directory on one disk, all
that is compared takes its turn in shuffled order in every repetition, after a sync of the disk and with memory in the same
state (ballast.py), and every ratio is made within its repetition; printed is the median, `_low` and `_high` are the quartiles.

    ours_over_nginx        transfer part over transfer part: from the first question to the last byte of the last delta, with
                           the digest of whoever receives in ours, none in nginx's; ours with its default settings, nginx
                           with the number of streams that was fastest                                   (bar: at most 1.3)
    exchange_over_floor    the whole exchange over the floor with the merge's files written beside it, as plain copies
    exchange_over_nginx    the whole exchange over the transfer part of the floor
    flower_over_ours       Flower's exchange, which merges nothing, over our whole one                   (bar: at least 10)
    flower_over_transfer   the same over the transfer part of ours, which is all that Flower's does
    coordinator_peak_mib   largest resident set of the coordinator in all this, mapped pages counted     (bar: below 200)
    rows                   every exchange: seconds, CPU seconds of server and clients, their peak memory
    not_measured           what was left out, and why
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ballast import Ballast
from exchange import Cost, Exchanges
from load import spread
from nginx_floor import Floor, TlsFront, make_certificate
from processes import exit_on_sigterm
from synthetic import TENSORS, write_weights

from crosstrain.batch.command import run
from crosstrain.errors import EnvironmentFault

SITES = 3
MERGED_OVER_WIRE = (2, 2, 1)
"""Files of a merge, in sizes of the bf16 file: float32 weights, float32 momentum, and the next bf16 file."""
HELD_OVER_WIRE = 24
"""Memory that is held, in sizes of the bf16 file: twice what an exchange writes at both ends, where three downloads, three uploads and
a merge are eleven. What is free besides is used first, in whatever state it is: with a small model on a large machine all of it."""
FLOWER_TIMEOUT_S = 1200.0
"""Longer than the patience of flower_exchange.py, which takes its processes away."""
FLOWER_SERVERS = ("superlink", "serverapp")


@dataclass(frozen=True)
class Variant:
    """One way to exchange.

    Attributes:
        streams: of each transfer; None is the client's default.
    """

    system: str
    tls: bool = False
    streams: int | None = None

    def __str__(self) -> str:
        streams = "default" if self.streams is None else f"{self.streams} stream{'s' * (self.streams > 1)}"
        return f"{self.system}{' with TLS' * self.tls}, {streams}"


OURS, FLOWER = Variant("ours"), Variant("flower")


@dataclass(frozen=True)
class Way:
    """How a variant is measured.

    Attributes:
        prepare: what is done before, untimed.
        run: the exchange; may raise EnvironmentFault, and is left out then.
        clear: removes what it made, so that memory and disk hold one exchange and not those of all.
        times: in how many of the repetitions; None is all, and once before them to warm up.
    """

    prepare: Callable[[], None]
    run: Callable[[], Cost]
    clear: Callable[[], None]
    times: int | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=256, help="size of the model in bf16")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8], help="numbers of streams that are compared")
    parser.add_argument("--flower", type=int, default=1, help="in how many repetitions; each takes minutes")
    parser.add_argument("--directory", type=Path, help="on the disk to measure; by default the temporary directory")
    parser.add_argument("--no-ballast", action="store_true", help="leave free memory as it is")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    exit_on_sigterm()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory, ExitStack() as stack:
        ways = open_ways(stack, Path(directory), options.mib, options.streams)
        if options.flower:
            ways[FLOWER] = Way(nothing, lambda: exchange_of_flower(options.mib), nothing, options.flower)
        most = 0 if options.no_ballast else HELD_OVER_WIRE * options.mib << 20
        with closing(Ballast(most)) as ballast:
            costs, missing = interleave(ways, options.repetitions, ballast)
    result = {"mib": options.mib, "repetitions": options.repetitions, "ballast": not options.no_ballast}
    result |= {**summary(costs), "not_measured": missing}
    print(json.dumps(result) if options.json else table(result))


def open_ways(stack: ExitStack, directory: Path, mib: int, streams: Sequence[int]) -> dict[Variant, Way]:
    """Starts every server; the sites' processes wait for orders."""
    wire = directory / "wire.safetensors"
    write_weights(wire, mib, "BF16", 1e-3)
    merged = [factor * wire.stat().st_size for factor in MERGED_OVER_WIRE]
    certificate = make_certificate(directory)
    os.environ["SSL_CERT_FILE"] = str(certificate.certificate)  # for the sites, which are started next
    ours = stack.enter_context(Exchanges(directory / "ours", mib, SITES))
    front = stack.enter_context(TlsFront(directory / "front", ours, certificate))
    plain = stack.enter_context(Floor(directory / "plain", wire, merged, SITES, None))
    secure = stack.enter_context(Floor(directory / "secure", wire, merged, SITES, certificate))
    ways: dict[Variant, Way] = {}
    for count in (None, *streams):
        ways[Variant("ours", False, count)] = Way(ours.prepare, lambda count=count: ours.run(count), ours.clear)
        if count:
            for tls, floor in ((False, plain), (True, secure)):
                ways[Variant("nginx", tls, count)] = Way(
                    lambda floor=floor, count=count: floor.prepare(count),
                    lambda floor=floor, count=count: floor.run(count),
                    floor.clear,
                )
    ways[Variant("ours", True)] = Way(ours.prepare, lambda: ours.run(None, front, front.url), ours.clear)
    return ways


def nothing() -> None:
    """Flower prepares its own, and takes it away."""


def exchange_of_flower(mib: int) -> Cost:
    """Raises EnvironmentFault: it could not be measured; says why."""
    program = [sys.executable, str(Path(__file__).with_name("flower_exchange.py"))]
    words = ["--mib", str(mib), "--sites", str(SITES), "--tensors", str(TENSORS), "--json"]
    done = run([*program, *words], timeout=FLOWER_TIMEOUT_S)
    if done.code:
        raise EnvironmentFault(done.stderr.strip()[-500:])
    found = json.loads(done.stdout)[f"tensors_{TENSORS}"]
    servers = [used for role, used in found["processes"].items() if role in FLOWER_SERVERS]
    clients = [used for role, used in found["processes"].items() if role not in FLOWER_SERVERS]
    return Cost(
        download_s=None,
        transfer_s=found["wall_s"],
        judged_s=found["wall_s"],
        exchange_s=found["wall_s"],
        server_cpu_s=sum(used["cpu_s"] for used in servers),
        client_cpu_s=sum(used["cpu_s"] for used in clients),
        server_peak_mib=sum(used["peak_mib"] for used in servers),
        client_peak_mib=max(used["peak_mib"] for used in clients),
    )


def interleave(
    ways: dict[Variant, Way], repetitions: int, ballast: Ballast
) -> tuple[dict[Variant, list[Cost]], dict[str, str]]:
    """The exchanges in shuffled order, the disk at rest before each; and why some were left out."""
    order = random.Random(0)
    costs: dict[Variant, list[Cost]] = {variant: [] for variant in ways}
    missing: dict[str, str] = {}
    for repetition in range(repetitions + 1):
        for variant in order.sample(list(ways), len(ways)):
            times = ways[variant].times
            if times is not None and not 1 <= repetition <= times:
                continue
            try:
                cost = measured(ways[variant], ballast)
            except EnvironmentFault as fault:
                missing[str(variant)] = str(fault)
                continue
            print(f"{variant}: {cost.transfer_s:.2f} s, whole {cost.exchange_s:.2f} s", file=sys.stderr)
            if repetition:
                costs[variant].append(cost)
    return {variant: found for variant, found in costs.items() if found}, missing


def measured(way: Way, ballast: Ballast) -> Cost:
    """One exchange; what it made is cleared away."""
    try:
        way.prepare()
        os.sync()
        ballast.take()
        with ballast.handed_out():
            return way.run()
    finally:
        way.clear()
        ballast.take()


def summary(costs: dict[Variant, list[Cost]]) -> dict[str, Any]:
    """The promised figures, and all rows."""
    ours = costs[OURS]
    plain = [found for variant, found in costs.items() if variant.system == "nginx" and not variant.tls]
    nginx = min(plain, key=lambda found: statistics.median(cost.transfer_s for cost in found))
    return {
        **ratios("ours_over_nginx", transfer(ours), transfer(nginx)),
        **ratios("exchange_over_floor", exchange(ours), exchange(nginx)),
        **ratios("exchange_over_nginx", exchange(ours), transfer(nginx)),
        **ratios("flower_over_ours", exchange(costs.get(FLOWER, [])), exchange(ours)),
        **ratios("flower_over_transfer", exchange(costs.get(FLOWER, [])), transfer(ours)),
        "coordinator_peak_mib": max(cost.server_peak_mib for found in by_system(costs, "ours") for cost in found),
        "rows": [
            {**asdict(variant), "repetition": number, **asdict(cost)}
            for variant, found in costs.items()
            for number, cost in enumerate(found)
        ],
    }


def ratios(name: str, over: Sequence[float], under: Sequence[float]) -> dict[str, float | None]:
    """Median and quartiles of the ratios within a repetition; None where one side was not measured."""
    pairs = list(zip(over, under, strict=False))
    return {**spread(name, [a / b for a, b in pairs])} if pairs else {name: None}


def transfer(costs: Sequence[Cost]) -> list[float]:
    return [cost.transfer_s for cost in costs]


def exchange(costs: Sequence[Cost]) -> list[float]:
    return [cost.exchange_s for cost in costs]


def by_system(costs: dict[Variant, list[Cost]], system: str) -> list[list[Cost]]:
    return [found for variant, found in costs.items() if variant.system == system]


RATIOS = ("ours_over_nginx", "exchange_over_floor", "exchange_over_nginx", "flower_over_ours", "flower_over_transfer")
HEADINGS = ("transfer s", "quartiles", "judged s", "exchange s", "server CPU", "client CPU", "server MiB", "client MiB")


def table(result: dict[str, Any]) -> str:
    """Medians of each way to exchange, and the ratios."""
    lines = [f"{'':26}" + "".join(f" {heading:>13}" for heading in HEADINGS)]
    found: dict[Variant, list[dict[str, Any]]] = {}
    for row in result["rows"]:
        found.setdefault(Variant(row["system"], row["tls"], row["streams"]), []).append(row)
    for variant, rows in found.items():
        part = spread("s", [row["transfer_s"] for row in rows])
        cells = [f"{part['s']:.2f}", f"{part['s_low']:.2f}-{part['s_high']:.2f}"]
        for key in ("judged_s", "exchange_s", "server_cpu_s", "client_cpu_s"):
            cells.append(f"{statistics.median(row[key] for row in rows):.2f}")
        for key in ("server_peak_mib", "client_peak_mib"):
            known = [row[key] for row in rows if row[key] is not None]
            cells.append(f"{max(known):.0f}" if known else "")
        lines.append(f"{variant!s:26}" + "".join(f" {cell:>13}" for cell in cells))
    lines.append("")
    for name in RATIOS:
        if result[name] is not None:
            lines.append(f"{name:26}{result[name]:8.3g} ({result[f'{name}_low']:.3g} to {result[f'{name}_high']:.3g})")
    lines.append(f"{'coordinator_peak_mib':26}{result['coordinator_peak_mib']:8.0f}")
    lines += [f"not measured: {what}: {why}" for what, why in result["not_measured"].items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
