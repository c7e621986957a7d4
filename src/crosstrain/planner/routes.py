"""HTTP of the planner: decode, call the desk, encode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import FastAPI, Path

from crosstrain.domain.ids import Instant, SiteName
from crosstrain.planner.desk import Desk
from crosstrain.wire import placement as wire
from crosstrain.wire.messages import Accepted

Site = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


def install(app: FastAPI, desk: Callable[[], Desk], now: Callable[[], Instant]) -> None:
    """Adds the planner's routes to the coordinator's application."""

    @app.post("/v1/placement/{site}/reports")
    def report(site: Site, request: wire.ReportRequest) -> Accepted:
        return desk().take_report(SiteName(site), request, now())

    @app.get("/v1/placement/plan")
    def plan() -> wire.PlanReply:
        return desk().plan(now())

    @app.get("/v1/placement/waits")
    def waits() -> wire.WaitsReply:
        return desk().waits(now())
