"""What the coordinator can carry, against what the same machine could do at best in the same minute.

    python benchmarks/ledger.py [--rounds N] [--seconds S] [--sites N] [--json]

A real `crosstrain coordinator` process with its database on disk, 10^6 blocks, and 1,000 registered sites that each hold a
lease. Clients write prepared requests on kept-alive connections and read the answers' bytes, nothing else, so that they are
never what is slow. Everything that is compared alternates within every round, because other processes slow all of it alike;
a ratio is the median over rounds, `low` and `high` are its quartiles.

    heartbeat_rate_over_empty_handler   heartbeats/s / requests/s of a Starlette app whose handler does nothing, served by the
                                        same HTTP server to the same client                            (bar: at least 0.5)
    heartbeat_p99_ms                    at 300 heartbeats/s, sent on time whatever the answers do            (bar: below 50)
    grant_rate_over_bare_insert         grants/s over HTTP to 16 clients / one-row inserts/s of one process alone into a SQLite
                                        file beside it, each with a commit of its own; WAL and synchronous=FULL in both. Grants
                                        that come together share a commit                                   (bar: at least 0.5)
    grant_transaction_over_bare_insert  the same grants called in one process, without HTTP, each with a commit of its own
    grants_of_16_over_bare_insert       likewise, 16 in each commit
    coordinator_rss_mib                 resident memory of the coordinator after all this                    (bar: below 200)
    op_time_1e8_over_1e5                grant, contribute, shed, expire and counts of the ledger's rows at 10^8 blocks, against
                                        the same at 10^5 with as many leases outstanding                     (bar: below 2)
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from load import CLIENTS, Load, spread
from operations import operation_ratios
from runs import Coordinator, EmptyServer, bare_inserts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one measurement")
    parser.add_argument("--sites", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        result = measure(Path(directory), options.rounds, options.seconds, options.sites)
    if options.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:40} {value:.4g}")


def measure(directory: Path, rounds: int, seconds: float, sites: int) -> dict[str, float]:
    """All measurements; the first round warms up and does not count."""
    beats: list[float] = []
    empties: list[float] = []
    grants: list[float] = []
    inserts: list[float] = []
    transactions: dict[int, list[float]] = {1: [], CLIENTS: []}
    alone: list[float] = []
    with ExitStack() as stack:
        coordinator = stack.enter_context(Coordinator(directory, sites))
        empty = stack.enter_context(EmptyServer(directory))
        load = stack.enter_context(Load())
        heartbeats = coordinator.heartbeats()
        for number in range(rounds + 1):
            steps = [
                lambda: beats.append(load.rate(coordinator.port, heartbeats, seconds)),
                lambda: empties.append(load.rate(empty.port, heartbeats, seconds)),
                lambda: grants.append(coordinator.grant_rate(load)),
                lambda: inserts.append(bare_inserts(directory, seconds)),
            ]
            for step in steps if number % 2 else reversed(steps):
                step()
        waits = load.open_loop(coordinator.port, coordinator.heartbeats(), rate=300, seconds=max(10.0, 5 * seconds))
        rss = coordinator.rss_mib()
        service = coordinator.service()
        for number in range(rounds + 1):
            steps = [
                lambda: transactions[1].append(coordinator.transaction_rate(service, 1)),
                lambda: transactions[CLIENTS].append(coordinator.transaction_rate(service, CLIENTS)),
                lambda: alone.append(bare_inserts(directory, seconds)),
            ]
            for step in steps if number % 2 else reversed(steps):
                step()
        service.database.close()
    ratios, times = operation_ratios(rounds, leases=sites)
    return {
        **spread("heartbeat_rate_over_empty_handler", _ratios(beats, empties)),
        "heartbeats_per_s": statistics.median(beats[1:]),
        "empty_handler_per_s": statistics.median(empties[1:]),
        "heartbeat_p50_ms": statistics.median(waits),
        "heartbeat_p99_ms": statistics.quantiles(waits, n=100)[98],
        **spread("grant_rate_over_bare_insert", _ratios(grants, inserts)),
        "grants_per_s": statistics.median(grants[1:]),
        "bare_inserts_per_s": statistics.median(inserts[1:]),
        **spread("grant_transaction_over_bare_insert", _ratios(transactions[1], alone)),
        "grant_transactions_per_s": statistics.median(transactions[1][1:]),
        **spread(f"grants_of_{CLIENTS}_over_bare_insert", _ratios(transactions[CLIENTS], alone)),
        f"grants_of_{CLIENTS}_per_s": statistics.median(transactions[CLIENTS][1:]),
        "coordinator_rss_mib": rss,
        **ratios,
        **times,
        "rounds": rounds,
    }


def _ratios(ours: list[float], theirs: list[float]) -> list[float]:
    """Round by round, without the first."""
    return [mine / other for mine, other in zip(ours[1:], theirs[1:], strict=True)]


if __name__ == "__main__":
    sys.exit(main())
