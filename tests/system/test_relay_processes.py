"""Sites without network: a whole run by way of a mailbox, and a relay that is killed again and again."""

from __future__ import annotations

import hashlib
import random
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.demo.rehearsal import processes_of
from tests.proxies import metered_line
from tests.system.runs import PATIENCE_S, Run, check_the_record, crosstrain, ended, write_run
from tests.waiting import until

from crosstrain.batch.command import Child, spawn
from crosstrain.clock import SystemClock, pause
from crosstrain.domain.ids import Digest
from crosstrain.wire.way import Way

pytestmark = pytest.mark.system

LEASE = "heartbeat_s = 0.5\nttl_floor_s = 10.0\njoin_patience_s = 5.0"


class RelayProcess:
    """`crosstrain relay`, killed and started again as often as a test likes."""

    def __init__(self, directory: Path, url: str) -> None:
        self.mailbox = directory / "mailbox"
        self.log = directory / "relay.log"
        self._argv = [sys.executable, "-m", "crosstrain", "relay", "--mailbox", str(self.mailbox), "--url", url]
        self._child: Child | None = None

    def start(self) -> None:
        self._child = spawn(self._argv, log=self.log)

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill_group()
            self._child = None

    def serve_letters(self, count: int) -> None:
        """Waits until so many answers were written."""
        for _ in range(count):
            before = self._answers()
            until(lambda before=before: self._answers() != before, PATIENCE_S)

    def _answers(self) -> set[tuple[str, int]]:
        found = (self.mailbox / "senders").glob("*/answer.json")
        return {(str(path), path.stat().st_mtime_ns) for path in found if path.exists()}

    def stop(self) -> int | None:
        """The exit code after SIGTERM."""
        assert self._child is not None
        self._child.signal(signal.SIGTERM)
        return self._child.wait(PATIENCE_S)


@pytest.fixture
def relay_run(corpus: Path, tmp_path: Path) -> Iterator[tuple[Run, RelayProcess]]:
    files = write_run(tmp_path, corpus, lease=LEASE)
    with Run(files) as run:
        relay = RelayProcess(tmp_path, f"http://127.0.0.1:{files.config.coordinator.port}")
        try:
            yield run, relay
        finally:
            relay.kill()
    assert not processes_of(tmp_path)


def test_sites_train_by_way_of_a_mailbox_whose_relay_comes_late_and_is_killed(
    relay_run: tuple[Run, RelayProcess],
) -> None:
    run, relay = relay_run
    run.fleet.start_site("alpha", "--url", f"mailbox:{relay.mailbox}")
    until(lambda: "no relay was ever at the mailbox" in run.log("alpha"), PATIENCE_S)
    relay.start()
    run.fleet.start_site("beta", "--url", f"mailbox:{relay.mailbox}")
    run.until(lambda status: (status.generation or 0) >= 1)
    chosen = random.Random(4)
    for _ in range(3):
        relay.serve_letters(chosen.randrange(1, 6))
        relay.kill()
        relay.start()
    reached = run.until(lambda status: all(site.merged_blocks > 0 for site in status.sites) and len(status.sites) == 2)
    last = run.until(lambda status: (status.generation or 0) > (reached.generation or 0))
    assert {site.ttl_expiries for site in last.sites} == {0}
    assert all(site.rtt_ms is not None and site.rtt_ms > 0 for site in last.sites)
    for name in ("alpha", "beta"):
        run.fleet.send(name, signal.SIGTERM)
        assert run.code_of(name) == 0
    assert relay.stop() == 0
    assert '"ended":true' in (relay.mailbox / "relay.json").read_text()
    assert list((relay.mailbox / "senders").iterdir()) == []
    check_the_record(run.files, ("alpha", "beta"))


def test_a_relay_killed_at_random_points_of_transfers_neither_corrupts_nor_begins_again(
    corpus: Path, tmp_path: Path
) -> None:
    chosen = random.Random(7)
    data = chosen.randbytes(20 << 20)
    digest = Digest(hashlib.sha256(data).hexdigest())
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(data)
    with Run(write_run(tmp_path, corpus)) as run, metered_line(run.files.config.coordinator.port, 8e6) as line:
        relay = RelayProcess(tmp_path, f"http://127.0.0.1:{line.port}")
        relay.start()
        until((tmp_path / "mailbox").exists, PATIENCE_S)
        blobs = Way(f"mailbox:{relay.mailbox}", "tester", SystemClock(), chosen.random, pause).blobs()
        try:
            for way, move in (
                ("up", lambda: blobs.upload(source, digest, PATIENCE_S, lambda *_: None)),
                ("down", lambda: blobs.download(digest, target, PATIENCE_S, lambda *_: None)),
            ):
                mover = threading.Thread(target=move)
                mover.start()
                for share in sorted(chosen.uniform(0.1, 0.9) for _ in range(2)):
                    until(lambda way=way, share=share: getattr(line, way) > share * len(data), PATIENCE_S)
                    relay.kill()
                    relay.start()
                mover.join(PATIENCE_S)
                assert not mover.is_alive()
        finally:
            blobs.close()
            relay.kill()
        stored = run.files.coordinator_dir / "objects" / digest[:2] / digest
        assert target.read_bytes() == stored.read_bytes() == data
        # What a killed relay had in its connections is lost, and nothing else.
        assert len(data) <= line.up < 1.5 * len(data)
        assert len(data) <= line.down < 1.5 * len(data)


def test_two_relays_at_one_mailbox_end_as_one(relay_run: tuple[Run, RelayProcess]) -> None:
    _, relay = relay_run
    words = ("relay", "--mailbox", relay.mailbox, "--url", "http://127.0.0.1:1")
    older = crosstrain(*words)
    until((relay.mailbox / "relay.json").exists, PATIENCE_S)
    relay.start()
    code, errors = ended(older)
    assert code == 8, errors
    assert "error: A newer relay, on" in errors
    code, errors = ended(crosstrain(*words, "--for", "0"))
    assert code == 0, errors
