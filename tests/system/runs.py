"""Runs of real processes for the system tests: one small corpus, run files over it, and ways to wait for what they do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from crosstrain.assembly import RunFiles, coordinator_client, open_run, open_stored_run
from crosstrain.clock import SystemClock, pause
from crosstrain.coordinator.audit import audit
from crosstrain.corpus.manifest import Manifest
from crosstrain.demo.prepare import ENDLESS, free_port
from crosstrain.demo.processes import Fleet
from crosstrain.demo.windows_proof import WindowsProof, prove_run
from crosstrain.errors import Unreachable
from crosstrain.runfile import Local, write_run_file
from crosstrain.wire.messages import StatusReply

PATIENCE_S = 60.0


def write_run(directory: Path, corpus: Path, sites: Sequence[str] = ("alpha", "beta"), **changes: object) -> RunFiles:
    """A RUN.toml in `directory` for the counting trainer.

    Args:
        changes: `step_s`, or fields of `Local`.
    """
    port = free_port()
    step_s = changes.pop("step_s", 0.05)
    settings: dict[str, object] = {
        "url": f"http://127.0.0.1:{port}",
        "port": port,
        "rounds": 200,
        "epochs": ENDLESS,
        "heldout_windows": 4,
        "inner": f'engine = "counting"\nrehearsal_step_s = {step_s}\n',
        "lease": "heartbeat_s = 0.3\nttl_floor_s = 2.0\njoin_patience_s = 2.0",
        "site": "margin_s = 1.0\nrecord_windows = true",
        "micro_batch": 4,
        "sites": tuple((name, "") for name in sites),
    }
    path = directory / "RUN.toml"
    write_run_file(path, "system-test", "tiny", corpus, Manifest.load(corpus), Local(**{**settings, **changes}))  # type: ignore[arg-type]
    return open_run(path)


def crosstrain(*words: str | Path, program: Sequence[str] = ("-m", "crosstrain")) -> subprocess.Popen[str]:
    """A command as a user starts it."""
    argv = [sys.executable, *program, *map(str, words)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and stderr of a command that ends by itself."""
    with process:
        try:
            _, errors = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    return process.returncode, errors


class Run:
    """A coordinator and what is started beside it; leaving the `with` block ends all of it."""

    def __init__(self, files: RunFiles) -> None:
        self.files = files
        self.fleet = Fleet(files.path, files.path.parent)
        self._client = coordinator_client(f"http://127.0.0.1:{files.config.coordinator.port}")

    def __enter__(self) -> Run:
        self.fleet.start_coordinator()
        self.until(lambda status: True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.fleet.close()
        self._client.close()

    def status(self) -> StatusReply | None:
        try:
            return self._client.get("status", StatusReply, 0.0)
        except Unreachable:
            return None

    def until(self, condition: Callable[[StatusReply], bool]) -> StatusReply:
        """The first status that fulfils a condition."""
        clock = SystemClock()
        deadline = clock.perf() + PATIENCE_S
        status = None
        while clock.perf() < deadline:
            status = self.status()
            if status is not None and condition(status):
                return status
            pause(0.05)
        raise AssertionError(f"waited in vain; the last status: {status}")

    def code_of(self, name: str) -> int:
        """The exit code of a site that leaves."""
        clock = SystemClock()
        deadline = clock.perf() + PATIENCE_S
        while clock.perf() < deadline:
            if (code := self.fleet.ended().get(name)) is not None:
                return code
            pause(0.05)
        raise AssertionError(f"{name} did not end")

    def log(self, name: str) -> str:
        return (self.files.path.parent / f"{name}.log").read_text()


def check_the_record(files: RunFiles, sites: Sequence[str]) -> WindowsProof:
    """Audit with replay, and the windows proof; both must be clean."""
    database, objects = open_stored_run(files)
    try:
        found = audit(database, objects, replay=True)
        proof = prove_run(database, [files.resolve(files.config.site.dir) / name for name in sites])
    finally:
        database.close()
    assert found.problems == ()
    assert found.replayed == found.generations - 1 > 0
    assert (proof.lost, proof.duplicated, proof.problems) == (0, 0, ())
    assert proof.merged > 0
    return proof
