"""Every request and reply of the protocol, strict both ways: an unknown field is an error, not a guess.

Paths, all below /v1:

    POST sessions                       RegisterRequest    -> RegisterReply
    POST sessions/{session}/beat        BeatRequest        -> BeatReply
    POST sessions/{session}/next        NextRequest        -> NextReply
    POST sessions/{session}/initial     InitialRequest     -> Accepted
    POST sessions/{session}/evaluation  EvaluationRequest  -> Accepted
    POST sessions/{session}/end         EndRequest         -> Accepted
    POST leases/{token}/contribution    ContributionRequest-> ContributionReply
    POST leases/{token}/release         ReleaseRequest     -> Accepted
    GET  status                                            -> StatusReply
    GET|HEAD|PUT blobs/{digest}, GET blobs/{digest}/received
    POST blobs/{digest}/parts?total={bytes}                -> Parts
    POST blobs/{digest}/complete?total={bytes}             -> Received

Errors are problem documents (RFC 9457).
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from crosstrain.domain.site import Phase

PROTOCOL = 1

Count = Annotated[int, Field(ge=0, lt=2**53)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Text = Annotated[str, Field(max_length=2000)]


class Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Fingerprint(Message):
    """What must be equal at the coordinator and at a site; a difference is refused by the name of its field."""

    spec_digest: Sha256
    seed: Count
    windows: Count
    block_windows: Count
    seq_len: Count
    tokenizer_sha256: Sha256
    corpus_sha256: Sha256


class RegisterRequest(Message):
    protocol: int
    version: Text
    site: Name
    ranks: Annotated[int, Field(ge=1, lt=2**20)]
    windows_per_step: Annotated[int, Field(ge=1, lt=2**31)]
    fingerprint: Fingerprint
    inner_state: Literal["fresh", "restored"] = "fresh"
    holding: tuple[Count, ...] = ()
    """Tokens of leases whose finished work the site still has on its disk and wants to contribute."""


class LeaseInfo(Message):
    token: Count
    generation: Count
    global_step: Count
    spans: tuple[tuple[Count, Count, Count], ...]
    """(epoch, start, stop) in the order of training; positions of the epoch's order of blocks."""
    ttl_ms: Count

    @model_validator(mode="after")
    def _spans_ascend(self) -> Self:
        ends = [(0, 0)]
        for epoch, start, stop in self.spans:
            if not ends[-1] <= (epoch, start) < (epoch, stop):
                raise ValueError("expected spans that are not empty, ascend and do not overlap")
            ends.append((epoch, stop))
        return self


class RegisterReply(Message):
    session: Count
    run: str
    kept: tuple[LeaseInfo, ...]
    heartbeat_ms: Count


class BeatRequest(Message):
    phase: Phase
    done: Count = 0
    total: Count = 0
    token: Count | None = None
    blocks: Count = 0
    """How many blocks of the lease are trained."""
    kept: Count | None = None
    """The answer to a shed request: only the first `kept` blocks of the lease are kept."""
    loss: Finite | None = None
    detail: Text = ""
    rtt_ms: Annotated[float, Field(ge=0, lt=1e9)] = 0.0
    sending: Count | None = None
    """A second lease, whose work is uploaded while `token` is trained (`round.overlap`)."""
    sent: Count = 0
    """Bytes of it that have arrived."""
    beside: Text = ""
    """For people: what is carried meanwhile, and how fast."""


class BeatReply(Message):
    lease_alive: bool
    """False: the lease named in the request is over; its training cannot count any more."""
    drain: bool
    """True: stop at the next block boundary and contribute."""
    shed: bool = False
    """True: another site has nothing to do; say how many blocks of the lease are kept."""
    reason: str
    generation: Count | None
    heartbeat_ms: Count


class Ahead(Message):
    """A site has finished the phase of a lease, whose work is on its way to the coordinator (`round.overlap`)."""

    token: Count
    """The finished lease."""
    global_step: Count | None = None
    """Inner steps behind the weights held, for a lease of the round after that lease's; None: no lease is wanted, only the
    generation that follows."""


class NextRequest(Message):
    holds: Count | None
    max_blocks: Annotated[int, Field(ge=1, lt=2**53)] | None = None
    """What the site can train before its job ends."""
    resume: LeaseInfo | None = None
    """A lease that is over, whose blocks the site trained in part and saved: it wants the same blocks again."""
    ahead: Ahead | None = None


class NextReply(Message):
    work: Literal["initialise", "adopt", "evaluate", "train", "resume", "wait", "finished"]
    reason: str
    until_ms: Count | None = None
    """Milliseconds from now at which a wait ends by itself."""
    poll_ms: Count = 1000
    generation: Count | None = None
    weights: Sha256 | None = None
    packed: Sha256 | None = None
    """Blob to fetch in the place of `weights`, which it holds packed (`wire.compress`)."""
    global_step: Count | None = None
    lease: LeaseInfo | None = None
    measure: bool = False
    """The held-out measure of `generation` is wanted from this session, which trains ahead and does not ask for it."""


class InitialRequest(Message):
    weights: Sha256
    """Blob with the float32 weights of generation 0."""


class EvaluationRequest(Message):
    generation: Count
    nll: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """Sum of negative log-likelihoods in nats."""
    tokens: Annotated[int, Field(ge=1, lt=2**53)]


class EndRequest(Message):
    reason: Text


class ContributionRequest(Message):
    session: Count
    generation: Count
    blocks: Count
    windows: Count
    tokens: Count
    steps: Count
    delta: Sha256
    windows_digest: Annotated[str, Field(pattern=r"^[0-9]{1,16}:[0-9a-f]{32}$")]
    loss: Finite | None = None
    seconds: Annotated[float, Field(ge=0, lt=1e9)] = 0.0


class ContributionReply(Message):
    accepted: bool
    kind: Text
    reason: str


class ReleaseRequest(Message):
    session: Count
    reason: Text


class Accepted(Message):
    accepted: bool = True
    reason: str = ""


class Received(Message):
    """What the coordinator holds of a blob."""

    received: Count
    """Bytes held."""
    whole: bool
    """The blob is there, verified and durable."""
    ranges: tuple[tuple[Count, Count], ...]
    """(first byte, byte behind the last) of what is held."""
    address: str | None = None
    """Where a blob that is there may be fetched by HTTP without asking the coordinator, for some hours."""
    direct_from: Count | None = None
    """Blobs of so many bytes or more may be put into the object store past the coordinator: ask for `parts`."""


class PartAddress(Message):
    """A part that is missing, and where to put it by HTTP, for some hours."""

    number: Count
    offset: Count
    length: Count
    address: str


class Parts(Message):
    """How far an upload past the coordinator is."""

    direct: bool
    """False: send it to the coordinator, which holds more of it."""
    received: Count = 0
    """Bytes of the parts that are there."""
    missing: tuple[PartAddress, ...] = ()
    """The first parts that are not there; all of them unless they are too many for one answer."""


class SiteStatus(Message):
    name: str
    alive: bool
    phase: str
    doing: str
    """One sentence: what the site does or what it waits for."""
    done: int
    total: int
    loss: float | None
    lease_blocks: int | None
    ranks: int
    rtt_ms: float | None
    rate: float | None
    entries: int
    grants: int
    granted_blocks: int
    merged_blocks: int
    leased_blocks: int
    contributed_blocks: int
    lost_blocks: int
    shed_blocks: int
    ttl_expiries: int
    tokens: int


class GenerationStatus(Message):
    generation: int
    global_step: int
    tokens: int
    contributions: int
    eta: float | None
    beta: float | None
    published_at: int
    loss: float | None
    perplexity: float | None


class BlockCounts(Message):
    total: int
    available: int
    leased: int
    contributed: int
    merged: int


class EventStatus(Message):
    at: int
    kind: str
    site: str | None
    text: str


class StatusReply(Message):
    run: str
    now: int
    version: str = ""
    protocol: int = PROTOCOL
    weights: str | None = None
    """Digest of the newest generation as sites download it."""
    generation: int | None
    rounds: int
    global_step: int
    tokens: int
    epoch: int
    blocks: BlockCounts
    waiting: str
    """What the run is waiting for."""
    until: int | None
    finished: bool
    finished_reason: str
    sites: tuple[SiteStatus, ...]
    generations: tuple[GenerationStatus, ...]
    events: tuple[EventStatus, ...]


class Problem(BaseModel):
    """RFC 9457 problem document. `kind` names the reason for programs, `hint` says what to do."""

    model_config = ConfigDict(extra="ignore")

    type: str = "about:blank"
    title: str = ""
    status: int = 500
    detail: str = ""
    kind: str = "error"
    hint: str = ""
