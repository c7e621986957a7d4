"""HTTP: decode, call one function, encode. No rule lives here; the OpenAPI document is made from these signatures."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from crosstrain import __version__
from crosstrain.coordinator import contributions, evaluation, heartbeats, leases, sessions
from crosstrain.coordinator import status as status_page
from crosstrain.coordinator.blobs import POUR, BlobResponse, Blobs
from crosstrain.coordinator.complaints import Complaints
from crosstrain.coordinator.group_commit import GroupCommit
from crosstrain.coordinator.service import Service
from crosstrain.coordinator.short_way import ShortWay
from crosstrain.coordinator.threads import Threads
from crosstrain.domain.ids import Digest, SessionId, Token
from crosstrain.errors import CrosstrainError, EnvironmentFault, IntegrityError, Refused, Superseded
from crosstrain.wire import messages

JUDGES = 8
"""Threads that read weights before they count, from a bucket if need be: that may take minutes, and nothing else may wait for it."""

Number = Annotated[int, Path(ge=0, lt=2**53)]
Sha256 = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]
Bytes = Annotated[int, Query(ge=0, lt=2**53)]


def build_app(service: Service) -> FastAPI:
    """The coordinator's HTTP interface."""
    app = ControlApp(title="crosstrain coordinator", version=__version__, docs_url=None, redoc_url=None)
    app.complaints = Complaints(service.clock)
    _install_problems(app)
    _install_control(app, service)
    _install_blobs(app, service)
    for extend in service.extensions:
        extend(app, service)
    app.open_short_way()
    return app


class ControlApp(FastAPI):
    """FastAPI with a way past it."""

    complaints: Complaints

    def open_short_way(self) -> None:
        """For the routes that are there by now."""
        self._short_way = ShortWay(super().__call__, self.router.routes, self.answer_to)

    def answer_to(self, error: CrosstrainError) -> JSONResponse:
        """The answer to a request that failed."""
        if isinstance(error, EnvironmentFault):
            self.complaints.tell(error)
        return _respond(problem_of(error))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._short_way(scope, receive, send)


def _install_control(app: FastAPI, service: Service) -> None:
    group, judges = GroupCommit(service), Threads(JUDGES, "judge")
    _install_sessions(app, service, group, judges)
    _install_leases(app, service, group, judges)

    @app.get("/v1/status")
    def status() -> messages.StatusReply:
        return status_page.status(service, service.clock.now())


def _install_sessions(app: FastAPI, service: Service, group: GroupCommit, judges: Threads) -> None:
    now = service.clock.now

    @app.post("/v1/sessions")
    def register(request: messages.RegisterRequest) -> messages.RegisterReply:
        return sessions.register(service, request, now())

    @app.post("/v1/sessions/{session}/beat")
    async def beat(session: Number, request: messages.BeatRequest) -> messages.BeatReply:
        if request.kept is None and service.database.is_local:
            # One lookup in the page cache: handing it to a thread would cost more than all of it.
            return heartbeats.beat(service, SessionId(session), request, now())
        return await run_in_threadpool(heartbeats.beat, service, SessionId(session), request, now())

    @app.post("/v1/sessions/{session}/next")
    async def next_work(session: Number, request: messages.NextRequest) -> messages.NextReply:
        at = now()
        return await group.write(
            lambda connection: leases.next_work(service, connection, SessionId(session), request, at)
        )

    @app.post("/v1/sessions/{session}/initial")
    async def initial(session: Number, request: messages.InitialRequest) -> messages.Accepted:
        weights = Digest(request.weights)
        return await judges.run(lambda: evaluation.take_initial(service, SessionId(session), weights, now()))

    @app.post("/v1/sessions/{session}/evaluation")
    def evaluate(session: Number, request: messages.EvaluationRequest) -> messages.Accepted:
        return evaluation.take_measure(service, SessionId(session), request, now())

    @app.post("/v1/sessions/{session}/end")
    def end(session: Number, request: messages.EndRequest) -> messages.Accepted:
        return sessions.end(service, SessionId(session), request.reason, now())


def _install_leases(app: FastAPI, service: Service, group: GroupCommit, judges: Threads) -> None:
    now = service.clock.now

    @app.post("/v1/leases/{token}/contribution")
    async def contribute(token: Number, request: messages.ContributionRequest) -> messages.ContributionReply:
        return await judges.run(lambda: contributions.accept(service, Token(token), request, now()))

    @app.post("/v1/leases/{token}/release")
    async def release(token: Number, request: messages.ReleaseRequest) -> messages.Accepted:
        at = now()
        return await group.write(lambda connection: leases.release(service, connection, Token(token), request, at))


def _install_blobs(app: FastAPI, service: Service) -> None:
    blobs = Blobs(lambda: service.objects)

    @app.get("/v1/blobs/{digest}", response_class=Response)
    @app.head("/v1/blobs/{digest}", response_class=Response)
    async def download(digest: Sha256, request: Request) -> BlobResponse:
        return await blobs.give(Digest(digest), request.method, request.headers.get("range"))

    @app.get("/v1/blobs/{digest}/received")
    async def received(digest: Sha256) -> messages.Received:
        return await blobs.received(Digest(digest))

    @app.post("/v1/blobs/{digest}/parts")
    async def parts(digest: Sha256, total: Bytes) -> messages.Parts:
        return await blobs.parts_left(Digest(digest), total)

    @app.post("/v1/blobs/{digest}/complete")
    async def complete(digest: Sha256, total: Bytes) -> messages.Received:
        return await blobs.complete(Digest(digest), total)

    @app.put("/v1/blobs/{digest}")
    async def upload(digest: Sha256, offset: Bytes, total: Bytes, request: Request) -> messages.Received:
        announced = request.headers.get("content-length", "")
        length = int(announced) if announced.isdecimal() else 0
        pour = request.scope.get("extensions", {}).get(POUR)
        return await blobs.take(Digest(digest), offset, total, request.stream(), length, pour)


def problem_of(error: CrosstrainError) -> messages.Problem:
    """The problem document of an error. Of a coordinator's own troubles the client hears "try again" (5xx)."""
    match error:
        case Refused():
            status, kind = error.status, error.kind
        case Superseded():
            status, kind = 503, "coordinator-superseded"
        case EnvironmentFault():
            status, kind = 507, "coordinator-fault"
        case IntegrityError():
            status, kind = 409, "integrity"
        case _:
            status, kind = 500, "error"
    return _problem(status, kind, error.message, error.hint)


def _problem(status: int, kind: str, detail: str, hint: str) -> messages.Problem:
    return messages.Problem(
        type=f"urn:crosstrain:problem:{kind}", title=kind, status=status, detail=detail, kind=kind, hint=hint
    )


def _respond(document: messages.Problem) -> JSONResponse:
    return JSONResponse(document.model_dump(), document.status, media_type="application/problem+json")


def _install_problems(app: ControlApp) -> None:
    def problem(status: int, kind: str, detail: str, hint: str = "") -> JSONResponse:
        return _respond(_problem(status, kind, detail, hint))

    @app.exception_handler(CrosstrainError)
    async def said_no(_request: Request, error: CrosstrainError) -> JSONResponse:
        return app.answer_to(error)

    @app.exception_handler(RequestValidationError)
    async def malformed(_request: Request, error: RequestValidationError) -> JSONResponse:
        faults = "; ".join(
            f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}, found {ascii(fault.get('input'))[:100]}"
            for fault in error.errors()
        )
        return problem(422, "malformed", faults, "see the OpenAPI document at /openapi.json")

    @app.exception_handler(HTTPException)
    async def unknown(_request: Request, error: HTTPException) -> JSONResponse:
        return problem(error.status_code, "http", str(error.detail), "see the OpenAPI document at /openapi.json")
