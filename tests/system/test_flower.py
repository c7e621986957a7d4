"""A run whose messages go through a real Flower federation, of the gRPC releases and of the newest."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from benchmarks.flower_federation import ENVIRONMENTS, Federation, federation
from tests.demo.rehearsal import processes_of
from tests.system.runs import Run, check_the_record, write_run

from crosstrain.assembly import RunFiles, open_run
from crosstrain.batch.command import run as run_program
from crosstrain.clock import SystemClock, pause
from crosstrain.flower.app_directory import write_app

pytestmark = pytest.mark.system

SITES = ("alpha", "beta")
ROUNDS = 2
PATIENCE_S = 240.0
"""For a few messages, each of which waits for polls of seconds and starts of processes, on a busy machine."""
LEASE = "heartbeat_s = 2.0\nttl_floor_s = 40.0\njoin_patience_s = 90.0"
ROUND = f"start_when_sites = {len(SITES)}"
"""The first round has a contribution of each."""


@pytest.fixture(params=ENVIRONMENTS)
def venv(request: pytest.FixtureRequest) -> Path:
    """An environment with a release of flwr; CI always has them."""
    path = ENVIRONMENTS[request.param]
    if not (path / "bin" / "flower-superlink").exists():
        reason = f"there is no flwr in {path.name}; `make flower-venvs` makes it"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    return path


def write_flower_run(directory: Path, corpus: Path) -> RunFiles:
    """Messages of both sites go through Flower; the weights of alpha go straight to the coordinator, those of beta do not."""
    files = write_run(
        directory, corpus, SITES, rounds=ROUNDS, lease=LEASE, outer_round=ROUND, heldout_windows=0, step_s=0.02
    )
    text = files.path.read_text()
    for name in SITES:
        box = directory / f"box-{name}"
        box.mkdir(mode=0o700)
        blobs = f'blobs = "http://127.0.0.1:{files.config.coordinator.port}"\n' if name == "alpha" else ""
        text = text.replace(f"[sites.{name}]\n", f'[sites.{name}]\nurl = "mailbox:{box}"\n{blobs}')
    files.path.write_text(text)
    return open_run(files.path)


def until(condition: Callable[[], bool]) -> None:
    clock = SystemClock()
    deadline = clock.perf() + PATIENCE_S
    while not condition():
        assert clock.perf() < deadline, "waited in vain"
        pause(0.1)


def test_a_run_goes_through_a_federation_whose_supernode_is_killed(venv: Path, corpus: Path, tmp_path: Path) -> None:
    files = write_flower_run(tmp_path, corpus)
    write_app(tmp_path / "app")
    with Run(files) as run, federation(venv, tmp_path / "federation") as nodes:
        for name in SITES:
            nodes.start_supernode(name, node_config(tmp_path, name))
            run.fleet.start_site(name, "--connect", str(PATIENCE_S))
        port = files.config.coordinator.port
        settings = f'coordinator="http://127.0.0.1:{port}" weights="inline" batch-mib=1 linger-s=10.0 stay-s=15.0'
        nodes.run(tmp_path / "app", settings)
        finds_the_superlink(nodes)
        generation_is(run, 1, nodes)
        nodes.kill("beta")
        nodes.start_supernode("beta", node_config(tmp_path, "beta"))
        for number in range(2, ROUNDS + 1):
            generation_is(run, number, nodes)
        codes: dict[str, int] = {}
        until(lambda: codes.update(run.fleet.ended()) or len(codes) == len(SITES))
        assert codes == dict.fromkeys(SITES, 0)
        until(lambda: not serverapps(nodes))
        status = run.status()
    assert status is not None and status.finished
    assert all(site.merged_blocks > 0 for site in status.sites), status.sites
    assert not blobs_in(tmp_path / "box-alpha")
    assert blobs_in(tmp_path / "box-beta")
    check_the_record(files, SITES)
    assert not processes_of(tmp_path)
    assert not nodes.members()


def finds_the_superlink(nodes: Federation) -> None:
    """The doctor, in the environment of the SuperNodes."""
    address = f"http://127.0.0.1:{nodes.fleet_port}"
    program = [str(nodes.venv / "bin" / "crosstrain"), "doctor", "--superlink", address, "--json"]
    done = run_program(program, timeout=PATIENCE_S, environment=nodes.environment())
    report = json.loads(done.stdout)
    (found,) = (finding for finding in report["findings"] if finding["name"] == "superlink")
    protocol = "HTTP" if nodes.speaks_http else "gRPC"
    assert found["level"] == "ok" and f"by {protocol}" in found["sentence"], found


def node_config(directory: Path, name: str) -> str:
    return f'mailbox="{directory / f"box-{name}"}"'


def generation_is(run: Run, number: int, nodes: Federation) -> None:
    """Waits until a generation is published."""
    try:
        until(lambda: ((status := run.status()) is not None) and (status.generation or 0) >= number)
    except AssertionError:
        raise AssertionError(f"no generation {number}; {nodes.run_log()}") from None


def serverapps(nodes: Federation) -> list[int]:
    """The processes that carry the run."""
    found = []
    for pid in nodes.members():
        with suppress(OSError):
            if b"flwr-serverapp" in Path("/proc", str(pid), "cmdline").read_bytes():
                found.append(pid)
    return found


def blobs_in(box: Path) -> list[tuple[str, str]]:
    """What of weights is in a mailbox."""
    return [(place, path.name) for place in ("incoming", "outgoing") for path in (box / place).iterdir()]
