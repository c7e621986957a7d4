"""Tables. Instants are UTC milliseconds; digests are SHA-256 in hexadecimal.

A row of `spans` is one interval of the ledger; `events` is append-only and tells every block's history.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Float,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    literal_column,
)

from crosstrain.domain.lease import LeaseState

SCHEMA_VERSION = 5

metadata = MetaData()

Counter = BigInteger().with_variant(Integer, "sqlite")
"""In SQLite the key of the table itself, where a BigInteger key would be an index beside it."""


def is_counted(state: ColumnElement[str]) -> ColumnElement[bool]:
    """Whether a lease's state is one that a round can be said to have begun with. Written with constants: by a parameter the
    database would not know that an index of such leases alone has them all."""
    counted = (LeaseState.LIVE, LeaseState.CONTRIBUTED, LeaseState.MERGED)
    return state.in_([literal_column(f"'{each.value}'") for each in counted])


run = Table(
    "run",
    metadata,
    Column("id", Integer, primary_key=True, doc="always 1"),
    Column("schema_version", Integer, nullable=False),
    Column("name", Text, nullable=False),
    Column("spec", Text, nullable=False, doc="canonical JSON of the run spec"),
    Column("spec_digest", Text, nullable=False),
    Column("corpus", Text, nullable=False, doc="JSON of the corpus identity"),
    Column("term", BigInteger, nullable=False, doc="fencing number of the coordinator process that may write"),
    Column("beat", BigInteger, nullable=False, doc="grows while that process lives, for a standby to watch"),
    Column("next_token", BigInteger, nullable=False),
    Column("next_session", BigInteger, nullable=False),
    Column("epoch", Integer, nullable=False, doc="the epoch that leases are taken from"),
    Column("created_at", BigInteger, nullable=False),
    Column("finished_at", BigInteger),
    Column("finished_reason", Text),
)

spans = Table(
    "spans",
    metadata,
    Column("epoch", Integer, primary_key=True),
    Column("start", BigInteger, primary_key=True),
    Column("stop", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("token", BigInteger),
    # All columns: without statistics SQLite takes an index that is not enough for an answer only where its condition is unique,
    # and would read every lease that is out to find what is available.
    Index("spans_by_state", "epoch", "state", "start", "stop", "token"),
    sqlite_with_rowid=False,
)
_owned = spans.c.token.is_not(None)
Index("spans_by_token", spans.c.token, sqlite_where=_owned, postgresql_where=_owned)

sites = Table(
    "sites",
    metadata,
    Column("name", Text, primary_key=True),
    Column("first_seen_at", BigInteger, nullable=False),
    Column("ranks", Integer, nullable=False),
    Column("windows_per_step", Integer, nullable=False),
    Column("rtt_ms", Float),
    Column("rate", Float, doc="blocks per second, moving average over contributed phases"),
    Column("progress_ms", Float, doc="milliseconds per optimiser step, of the last contributed phase"),
    Column("entries", Integer, nullable=False, doc="registrations"),
    Column("grants", Integer, nullable=False),
    Column("granted_blocks", BigInteger, nullable=False),
    Column("merged_blocks", BigInteger, nullable=False),
    Column("lost_blocks", BigInteger, nullable=False, doc="granted, then expired, released or refused"),
    Column("shed_blocks", BigInteger, nullable=False, doc="granted, then given up untouched for another site"),
    Column("ttl_expiries", Integer, nullable=False),
    Column("tokens", BigInteger, nullable=False, doc="merged"),
)

sessions = Table(
    "sessions",
    metadata,
    Column("id", Counter, primary_key=True, autoincrement=False),
    Column("site", Text, nullable=False),
    Column("opened_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Column("end_reason", Text),
    Column("inner_state", Text, nullable=False, doc="fresh or restored"),
    Column("software", Text, nullable=False),
    Column("refused", Integer, nullable=False, doc="contributions refused for their content since one was accepted"),
    Index("sessions_by_site", "site", "id"),
)

leases = Table(
    "leases",
    metadata,
    Column("token", Counter, primary_key=True, autoincrement=False),
    Column("site", Text, nullable=False),
    Column("session", BigInteger, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("global_step", BigInteger, nullable=False),
    Column("blocks", BigInteger, nullable=False),
    Column("granted_at", BigInteger, nullable=False),
    Column("ttl_ms", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("ended_at", BigInteger),
    Column("reason", Text, nullable=False),
    Index("leases_by_state", "state"),
    Index("leases_by_session", "session", "state"),
)
_counted = is_counted(leases.c.state)
Index("counted_leases", leases.c.generation, leases.c.token, sqlite_where=_counted, postgresql_where=_counted)

rounds = Table(
    "rounds",
    metadata,
    Column("generation", Integer, primary_key=True, autoincrement=False, doc="base of the round's leases"),
    Column("opened_at", BigInteger, nullable=False),
    Column("closing_at", BigInteger, doc="set when the contributions are frozen and the merge begins"),
    Column("reason", Text, doc="why it closed"),
    Column("published_at", BigInteger),
)

contributions = Table(
    "contributions",
    metadata,
    Column("token", Counter, primary_key=True, autoincrement=False),
    Column("site", Text, nullable=False),
    Column("session", BigInteger, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("blocks", BigInteger, nullable=False),
    Column("windows", BigInteger, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("steps", BigInteger, nullable=False),
    Column("delta", Text, nullable=False),
    Column("windows_digest", Text, nullable=False),
    Column("loss", Float),
    Column("norm", Float),
    Column("received_at", BigInteger, nullable=False),
    Column("accepted", Boolean, nullable=False),
    Column("kind", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Index("contributions_by_generation", "generation", "site"),
)

generations = Table(
    "generations",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("parent", Integer),
    Column("weights", Text, nullable=False),
    Column("master", Text, nullable=False),
    Column("momentum", Text),
    Column("global_step", BigInteger, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("eta", Float),
    Column("beta", Float),
    Column("contributions", Integer, nullable=False),
    Column("published_at", BigInteger, nullable=False),
    Column("packed", Text, doc="of `weights` packed, which sites download instead (`wire.compress`)"),
)

evaluations = Table(
    "evaluations",
    metadata,
    Column("generation", Integer, primary_key=True, autoincrement=False),
    Column("site", Text, nullable=False),
    Column("loss", Float, nullable=False, doc="nats per token"),
    Column("tokens", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("seq", Counter, primary_key=True, autoincrement=True),
    Column("at", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("site", Text),
    Column("session", BigInteger),
    Column("token", BigInteger),
    Column("generation", Integer),
    Column("epoch", Integer),
    Column("start", BigInteger),
    Column("stop", BigInteger),
    Column("text", Text, nullable=False),
    Index("events_by_kind", "kind"),
)

unneeded = Table(
    "unneeded",
    metadata,
    Column(
        "digest", Text, primary_key=True, doc="of a stored blob that is not needed, or of an upload that stands still"
    ),
    Column("size", BigInteger, nullable=False, doc="bytes; of an upload those that came"),
    Column("whole", Boolean, nullable=False),
    Column("reason", Text, nullable=False),
    Column("since", BigInteger, nullable=False, doc="the grace after which it is removed counts from here"),
)

removals = Table(
    "removals",
    metadata,
    Column("digest", Text, primary_key=True, doc="of a blob that was removed on purpose"),
    Column("size", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("removed_at", BigInteger, nullable=False),
)

queues = Table(
    "queues",
    metadata,
    Column("site", Text, primary_key=True),
    Column("queue", Text, nullable=False, doc="JSON of the site's queue as last reported (placement.site_queue)"),
    Column("heard_at", BigInteger, nullable=False),
)

reports = Table(
    "reports",
    metadata,
    Column("report", Text, primary_key=True, doc="made by the collector, so that a repeated report counts once"),
    Column("site", Text, nullable=False),
    Column("received_at", BigInteger, nullable=False),
    Index("reports_by_time", "received_at"),
)

plans = Table(
    "plans",
    metadata,
    Column("seq", Counter, primary_key=True, autoincrement=True),
    Column("made_at", BigInteger, nullable=False),
    Column("plan", Text, nullable=False, doc="JSON of the plan (placement.plan); a row only when it changed"),
)
