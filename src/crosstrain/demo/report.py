"""What the demo proves, as one JSON document and as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from crosstrain.assembly import RunFiles, open_stored_run
from crosstrain.coordinator.audit import Audit, audit
from crosstrain.dashboard.terminal import heldout_table, ledger_table
from crosstrain.demo.play import Played
from crosstrain.demo.prepare import Wishes
from crosstrain.demo.watching import fault_table
from crosstrain.domain.block import BlockState
from crosstrain.domain.events import EventKind
from crosstrain.domain.plural import counted
from crosstrain.export import generate_text
from crosstrain.storage import ledger_store, run_store
from crosstrain.storage.database import Database

SAMPLE_TOKENS = 80
TEMPERATURE = 0.7
_LEDGER = {
    "ranks",
    "entries",
    "grants",
    "granted_blocks",
    "merged_blocks",
    "lost_blocks",
    "shed_blocks",
    "ttl_expiries",
}


@dataclass(frozen=True, slots=True)
class Findings:
    """What is looked at after the run, from its database, its blobs and its last generation.

    Attributes:
        recovered_blocks: blocks whose lease expired and that were merged later all the same.
        sample: a text that the model wrote.
    """

    audit: Audit
    recovered_blocks: int
    sample: str


def examine(files: RunFiles, wishes: Wishes) -> Findings:
    """Audits the run, recomputing every generation, and lets the model write.

    Raises:
        EnvironmentFault: the trainer cannot be started.
    """
    database, objects = open_stored_run(files)
    try:
        found = audit(database, objects, replay=True)
        recovered = recovered_blocks(database)
    finally:
        database.close()
    prompt = "" if wishes.inputs else "def "
    return Findings(found, recovered, generate_text(files, None, prompt, SAMPLE_TOKENS, TEMPERATURE, seed=wishes.seed))


def recovered_blocks(database: Database) -> int:
    """How many positions of expired leases the ledger has as merged."""
    with database.read() as connection:
        expired = [row for row in run_store.events(connection) if row["kind"] == EventKind.EXPIRED.value]
        merged = [span for span in ledger_store.all_spans(connection) if span.state is BlockState.MERGED]
    positions = {(row["epoch"], position) for row in expired for position in range(row["start"], row["stop"])}
    return sum(
        any(span.epoch == epoch and span.start <= position < span.stop for span in merged)
        for epoch, position in positions
    )


def document(played: Played, findings: Findings, wall_s: float) -> dict[str, Any]:
    """The JSON form."""
    status = played.status
    return {
        "wall_s": round(wall_s, 1),
        "generations": status.generation or 0,
        "tokens": status.tokens,
        "heldout": [record.model_dump(include={"generation", "loss", "perplexity"}) for record in status.generations],
        "sites": {site.name: site.model_dump(include=_LEDGER) for site in status.sites},
        "blocks": status.blocks.model_dump(),
        "recovered_blocks": findings.recovered_blocks,
        "faults": [{"t_s": fault.t_s, "what": fault.what} for fault in played.faults],
        "sample": findings.sample,
        "audit": {"ok": findings.audit.ok, "problems": list(findings.audit.problems)},
    }


def tell(console: Console, played: Played, findings: Findings, wall_s: float, kept: str) -> None:
    """The text form. `kept` says where the run's files are."""
    status = played.status
    console.print(ledger_table(status.sites), Text(), heldout_table(status), sep="\n")
    if played.faults:
        console.print(Text("\nWhat the demo did to the run", "bold"), fault_table(played.faults), sep="\n")
        console.print(
            f"{findings.recovered_blocks} blocks of expired leases were trained again and merged.", soft_wrap=True
        )
    console.print(Text("\nThe model writes", "bold"), Text(printable(findings.sample)), sep="\n")
    console.print(Text("\nAudit", "bold"))
    console.print(Text("\n".join(audit_sentences(findings.audit))), soft_wrap=True)
    console.print(Text(f"\n{wall_s:.0f} s in all. {kept}"), soft_wrap=True)


def audit_sentences(found: Audit) -> list[str]:
    """The verdict for people."""
    if not found.ok:
        return [f"problem: {problem}" for problem in found.problems]
    return [
        f"clean: every block is in one state, every merged block was trained exactly once, and all {found.replayed} "
        f"generations were recomputed bit for bit from {counted(found.contributions, 'contribution')}"
    ]


def printable(text: str) -> str:
    """The text without the control characters that a model may write and a terminal would obey."""
    return "".join(sign if sign.isprintable() or sign in "\n\t" else "�" for sign in text)
