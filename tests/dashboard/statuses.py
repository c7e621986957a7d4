"""Status replies as a coordinator gives them, for the views of them."""

from __future__ import annotations

from typing import Any

from crosstrain.wire.messages import BlockCounts, EventStatus, GenerationStatus, SiteStatus, StatusReply

NOON = 1_800_014_400_000
"""12:00:00 UTC."""


def site(name: str, **changes: Any) -> SiteStatus:
    """A site in the middle of its first lease."""
    values: dict[str, Any] = {
        **dict.fromkeys(SiteStatus.model_fields, 0),
        "name": name,
        "alive": True,
        "phase": "training",
        "doing": "training 10 of 20 (lease 3, 5 of 10 blocks)",
        "done": 10,
        "total": 20,
        "loss": 5.25,
        "lease_blocks": 10,
        "ranks": 1,
        "rtt_ms": 12.34,
        "rate": 2.5,
        "entries": 1,
        "grants": 4,
        "granted_blocks": 40,
        "merged_blocks": 30,
        "leased_blocks": 10,
        "tokens": 30720,
    }
    return SiteStatus(**{**values, **changes})


def generation(number: int, perplexity: float | None) -> GenerationStatus:
    loss = None if perplexity is None else 7.65 - number / 2
    return GenerationStatus(
        generation=number,
        global_step=20 * number,
        tokens=20_480 * number,
        contributions=2 if number else 0,
        eta=0.7 if number else None,
        beta=0.5 if number else None,
        published_at=NOON - 60_000 + 5_000 * number,
        loss=loss,
        perplexity=perplexity,
    )


def status(**changes: Any) -> StatusReply:
    """A run of two sites after three rounds."""
    values: dict[str, Any] = {
        "run": "demo",
        "now": NOON,
        "generation": 3,
        "rounds": 16,
        "global_step": 60,
        "tokens": 61_440,
        "epoch": 0,
        "blocks": BlockCounts(total=400, available=300, leased=20, contributed=20, merged=60),
        "waiting": "waiting for beta to contribute; at the cutoff the round closes without",
        "until": NOON + 45_000,
        "finished": False,
        "finished_reason": "",
        "sites": (site("alpha"), AWAY),
        "generations": (generation(0, 2097.4), generation(1, 715.5), generation(2, 476.19), generation(3, None)),
        "events": (EventStatus(at=NOON - 9_000, kind="granted", site="alpha", text="a full inner phase is 10 blocks"),),
    }
    return StatusReply(**{**values, **changes})


AWAY = site(
    "beta",
    alive=False,
    phase="away",
    doing="not heard of; it may be queued, ended or cut off",
    done=0,
    total=0,
    loss=None,
    lease_blocks=None,
    rtt_ms=None,
    lost_blocks=7,
    ttl_expiries=1,
)

BEFORE_THE_FIRST_SITE = status(
    generation=None,
    global_step=0,
    tokens=0,
    blocks=BlockCounts(total=400, available=400, leased=0, contributed=0, merged=0),
    waiting="waiting for a site to make generation 0",
    until=None,
    sites=(),
    generations=(),
    events=(),
)

FINISHED = status(
    generation=16, finished=True, finished_reason="all 16 rounds are done", waiting="all 16 rounds are done", until=None
)
