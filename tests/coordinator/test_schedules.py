"""Any schedule of sites, messages, losses and restarts: the totals add up, and the audit with replay is clean at its end."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.fakes import SiteDriver, World, build_world, run_config, weights, windows_of

SITES = ("alpha", "beta", "gamma")
WINDOWS = 29
names = st.sampled_from(SITES)

MEMORY = Path("/dev/shm")


class Schedule(RuleBasedStateMachine):
    """Sites that register, ask, train, contribute, repeat, vanish and come back in any order, on a moving clock."""

    def __init__(self) -> None:
        super().__init__()
        self.scratch = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        config = run_config(run={"rounds": 6, "epochs": 2}, heldout={"windows": 2})
        self.world: World = build_world(Path(self.scratch.name), config, windows=WINDOWS)
        self.drivers: dict[str, SiteDriver] = {}
        self.sent: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
        self.claimed: dict[int, list[int]] = {}

    def teardown(self) -> None:
        try:
            audit = self.world.audit(replay=True)
            assert audit.problems == ()
            assert audit.replayed == max(0, len(self.world.chain()) - 1)
            self.merged_windows_are_trained_once_per_epoch()
        finally:
            self.world.database.close()
            self.scratch.cleanup()

    def merged_windows_are_trained_once_per_epoch(self) -> None:
        """From the sites' own claims, not from the coordinator's record."""
        merged = [row for row in self.world.dump()["leases"] if row[8] == "merged"]
        trained = Counter(window for row in merged for window in self.claimed[row[0]])
        assert all(count <= 2 for count in trained.values())
        status = self.world.status()
        assert status["tokens"] == 8 * sum(trained.values())
        if status["finished_reason"] == "the corpus was merged 2 times":
            assert trained == Counter(dict.fromkeys(range(WINDOWS), 2))

    @initialize()
    def first_site(self) -> None:
        self.drivers["alpha"] = self.world.begin("alpha")[0]

    @rule(name=names, keep=st.booleans())
    def register(self, name: str, keep: bool) -> None:
        old = self.drivers.get(name)
        held = [old.lease["token"]] if keep and old is not None and old.lease is not None else []
        driver = SiteDriver(self.world, name)
        kept = driver.register(holding=held)["kept"]
        driver.lease = kept[0] if kept else None
        self.drivers[name] = driver

    @rule(name=names)
    def ask(self, name: str) -> None:
        driver = self.drivers.get(name)
        if driver is None or self._gone(driver):
            return
        saved = driver.lease
        reply = driver.ask(resume=saved) if saved is not None and driver.holds is None else driver.ask()
        match reply["work"]:
            case "adopt":
                driver.holds = reply["generation"]
            case "evaluate":
                driver.expect("evaluation", generation=reply["generation"], nll=10.0, tokens=4)

    @rule(name=names, blocks=st.integers(0, 3))
    def beat(self, name: str, blocks: int) -> None:
        driver = self.drivers.get(name)
        if driver is None or self._gone(driver):
            return
        reply = driver.beat(blocks=blocks)
        if reply["shed"] and driver.lease is not None:
            granted = sum(stop - start for _, start, stop in driver.lease["spans"])
            kept = min(granted, max(1, blocks + 1))
            driver.beat(blocks=blocks, kept=kept)
            driver.lease["spans"] = _first(driver.lease["spans"], kept)

    @rule(name=names, part=st.floats(0, 1), value=st.sampled_from([0.25, 0.5]), fault=st.booleans())
    def contribute(self, name: str, part: float, value: float, fault: bool) -> None:
        driver = self.drivers.get(name)
        if driver is None or driver.lease is None:
            return
        granted = sum(stop - start for _, start, stop in driver.lease["spans"])
        blocks = max(1, round(part * granted))
        tensors = weights(value)
        if fault and part < 0.2:
            tensors["norm"][0] = float("nan")
        claim = driver.claim(self.world.put_weights(tensors, "BF16"), blocks)
        path = f"leases/{driver.lease['token']}/contribution"
        response = driver.post(path, **claim)
        if response.status_code == 200:
            self.sent.append((path, claim, response.json()))
            spans, seed = driver.lease["spans"], self.world.config.run.seed
            self.claimed.setdefault(driver.lease["token"], windows_of(self.world.corpus, seed, spans, blocks))
            driver.lease = None
        else:
            # The lease went to a newer session, or was contributed with other content in its name.
            assert response.json()["kind"] in ("fenced", "contributed-already", "wrong-blocks", "wrong-base")

    @rule(data=st.data())
    def send_an_old_contribution_again(self, data: st.DataObject) -> None:
        if self.sent:
            path, claim, answer = data.draw(st.sampled_from(self.sent))
            assert self.world.http.post(path, json=claim).json() == answer

    @rule(name=names)
    def release(self, name: str) -> None:
        driver = self.drivers.get(name)
        if driver is not None and driver.lease is not None:
            assert driver.release().status_code in (200, 409)

    @rule(name=names)
    def leave(self, name: str) -> None:
        if name in self.drivers:
            self.drivers[name].expect("end", reason="walltime")

    @rule(ms=st.sampled_from([0, 100, 1000, 4000, 9999, 40_000]))
    def time_passes(self, ms: int) -> None:
        self.world.step(ms)

    @rule()
    def coordinator_restarts(self) -> None:
        self.world.restart()

    @invariant()
    def totals_add_up(self) -> None:
        status = self.world.status()
        blocks, sites = status["blocks"], status["sites"]

        def total(field: str) -> int:
            return sum(site[field] for site in sites)

        assert sum(blocks[state] for state in ("available", "leased", "contributed", "merged")) == blocks["total"]
        for state in ("leased", "contributed", "merged"):
            assert total(f"{state}_blocks") == blocks[state], state
        for site in sites:
            kept = sum(site[f"{part}_blocks"] for part in ("leased", "contributed", "merged", "lost", "shed"))
            assert site["granted_blocks"] == kept, site["name"]
        assert total("tokens") == status["tokens"]
        assert status["waiting"]

    def _gone(self, driver: SiteDriver) -> bool:
        """Whether the session is over; a session that is over is told so."""
        response = driver.post(f"sessions/{driver.session}/beat", phase="waiting", done=0)
        if response.status_code == 410:
            assert response.json()["kind"] == "superseded"
        return response.status_code == 410


def _first(spans: list[list[int]], blocks: int) -> list[list[int]]:
    kept = []
    for epoch, start, stop in spans:
        cut = min(stop, start + blocks)
        blocks -= cut - start
        if cut > start:
            kept.append([epoch, start, cut])
    return kept


Schedule.TestCase.settings = settings(max_examples=8, stateful_step_count=40)
test_any_schedule_adds_up_and_is_audited_clean = Schedule.TestCase
