"""One site with the local batch system: real jobs, a real journal, and the coordinator's application behind a socket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.fakes import ManualClock, World, build_world
from tests.http_serving import serving

from crosstrain.assembly import coordinator_client
from crosstrain.batch.readings import JobState
from crosstrain.batch.scheduler import BatchSystem
from crosstrain.clock import SystemClock, pause
from crosstrain.collector.collect import Collected, collect, report_jobs
from crosstrain.collector.difference import Difference
from crosstrain.collector.opening import open_post
from crosstrain.collector.outbox import Delivery
from crosstrain.collector.post import Post
from crosstrain.collector.submit import Queue, Submitted, apply, compare, look_at_queue
from crosstrain.config import RunConfig
from crosstrain.wire.client import ControlClient
from crosstrain.wire.placement import PlanReply, SitePlanBody

PATIENCE_S = 20.0
SHAPE = {"partition": "cpu", "nodes": 1, "hours": 1.0, "tokens_per_s": 1e-3}
PROGRAM = '#!/bin/sh\ncd "$(dirname "$0")" && echo "$@" >> ran && while [ ! -e go ]; do sleep 0.05; done\n'
"""What a job runs in the place of crosstrain: writes its words down and waits for a file."""


@dataclass
class Facility:
    """One site, and the coordinator that it reports to."""

    directory: Path
    world: World
    client: ControlClient
    address: str
    batch: dict[str, Any] = field(default_factory=dict)
    clock: ManualClock = field(default_factory=lambda: ManualClock(SystemClock().now()))

    def post(self, prefix: Sequence[str] = (), **changes: Any) -> Post:
        """The site as a new command finds it. A prefix goes before every command of the scheduler."""
        section = {
            "scheduler": "local",
            "shapes": [SHAPE],
            "local_nodes": 1,
            "command": [str(self.program)],
            "jitter": 0.0,
            **self.batch,
            **changes,
        }
        site = {"dir": str(self.directory), "batch": section}
        config = RunConfig.model_validate({"model": {"vocab_size": 8}, "sites": {"lumi": site}})
        post = open_post(config, self.directory / "RUN.toml", self.directory / "sites", "lumi")
        system = BatchSystem(post.system.adapter, prefix=prefix)
        return replace(post, system=system, clock=self.clock, draw=lambda: 0.0)

    @property
    def program(self) -> Path:
        path = self.directory / "program"
        if not path.exists():
            path.write_text(PROGRAM)
            path.chmod(0o755)
        return path

    def collect(self, post: Post | None = None) -> Collected:
        return collect(post or self.post())

    def deliver(self, post: Post | None = None) -> Delivery:
        # Later than what came before, as it would be.
        self.world.clock.advance(1000)
        return (post or self.post()).outbox.deliver(self.client, "lumi", self.clock.now())

    def plan(self) -> SitePlanBody:
        (site,) = self.client.get("placement/plan", PlanReply, 5.0).sites
        return site

    def submit(self, post: Post | None = None) -> tuple[Queue, Difference, Submitted]:
        """What `crosstrain submit --apply` does."""
        post = post or self.post()
        with post.journal.held():
            queue = look_at_queue(post)
            post.outbox.put(report_jobs(post, queue.jobs, queue.look), self.clock.now())
            assert self.deliver(post).trouble == ""
            plan = self.plan()
            found = compare(post, queue, plan)
            return queue, found, apply(post, queue, found, plan.accumulation)

    def names(self) -> list[str | None]:
        """Of the jobs that the batch system has ever had."""
        system = self.post().system
        return [row.name for row in system.adapter.read_jobs(system.ask(system.adapter.jobs([]))).rows]

    def state(self, job_id: str) -> JobState:
        return self.post().system.states([job_id])[0][job_id]

    def until(self, job_id: str, *states: JobState) -> None:
        clock = SystemClock()
        end = clock.perf() + PATIENCE_S
        while (state := self.state(job_id)) not in states:
            assert clock.perf() < end, f"job {job_id} is still {state}"
            pause(0.05)

    def wrapper(self, text: str) -> tuple[str, ...]:
        """Words for a prefix: a shell script, which gets the command as its arguments."""
        path = self.directory / "wrapper"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return (str(path),)

    def close(self) -> None:
        """Ends the jobs that are left."""
        system = self.post().system
        ids = [row.job_id for row in system.queue().rows]
        if ids:
            system.cancel(ids)
            for job_id in ids:
                self.until(job_id, *(state for state in JobState if state.over), JobState.UNKNOWN)


@pytest.fixture
def facility(tmp_path: Path, fast_tmp: Path) -> Iterator[Facility]:
    world = build_world(fast_tmp)
    with serving(world.app) as url:
        made = Facility(tmp_path, world, coordinator_client(url), url)
        yield made
        made.close()
        made.client.close()
    world.database.close()
