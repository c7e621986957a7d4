"""What chaos proves, as one JSON document and as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from crosstrain.assembly import RunFiles, open_stored_run
from crosstrain.coordinator.audit import Audit, audit
from crosstrain.dashboard.terminal import ledger_table
from crosstrain.demo.chaos.play import Played
from crosstrain.demo.chaos.prepare import Wishes
from crosstrain.demo.report import audit_sentences
from crosstrain.demo.windows_proof import WindowsProof, prove_run
from crosstrain.domain.plural import counted


@dataclass(frozen=True, slots=True)
class Findings:
    """What is looked at after the run, from its database, its blobs and the ranks' logs."""

    audit: Audit
    windows: WindowsProof


def examine(files: RunFiles, wishes: Wishes) -> Findings:
    """Audits the run, recomputing every generation, and compares the ledger with what the ranks trained.

    Raises:
        IntegrityError: a rank's log is none.
    """
    sites = [files.resolve(files.config.site_named(name).dir) / name for name in wishes.names]
    database, objects = open_stored_run(files)
    try:
        return Findings(audit(database, objects, replay=True), prove_run(database, sites))
    finally:
        database.close()


def problems(played: Played, findings: Findings) -> list[str]:
    """Everything that is wrong; empty if the run kept its promises."""
    windows = findings.windows
    found = [*played.problems, *findings.audit.problems, *windows.problems]
    if windows.lost or windows.duplicated:
        found.append(
            f"of {counted(windows.merged, 'window')} in the ledger {windows.lost} are lost, {windows.duplicated} duplicated"
        )
    if findings.audit.generations < 2:
        found.append("no progress: no generation was made from contributions")
    return found


def document(wishes: Wishes, played: Played, findings: Findings, wall_s: float) -> dict[str, Any]:
    """The JSON form."""
    status, windows = played.status, findings.windows
    return {
        "seed": wishes.seed,
        "minutes": wishes.minutes,
        "engine": wishes.engine,
        "wall_s": round(wall_s, 1),
        "plan": [{"at_s": fault.at_s, "what": fault.sentence} for fault in wishes.plan],
        "faults": [{"t_s": fault.t_s, "what": fault.what} for fault in played.faults],
        "generations": status.generation or 0,
        "epoch": status.epoch,
        "blocks": status.blocks.model_dump(),
        "sites": {
            site.name: {
                "entries": site.entries,
                "grants": site.grants,
                "merged_blocks": site.merged_blocks,
                "lost_blocks": site.lost_blocks,
                "shed_blocks": site.shed_blocks,
                "ttl_expiries": site.ttl_expiries,
            }
            for site in status.sites
        },
        "windows": {"merged": windows.merged, "lost": windows.lost, "duplicated": windows.duplicated},
        "audit": {
            "ok": findings.audit.ok,
            "problems": list(findings.audit.problems),
            "replayed": findings.audit.replayed,
        },
        "problems": problems(played, findings),
    }


def story(wishes: Wishes) -> list[str]:
    """The plan for people."""
    head = (
        f"seed {wishes.seed}: {counted(len(wishes.plan), 'fault')} in {wishes.seconds:.0f} s, "
        f"a lease lives {wishes.tempo.ttl:g} s"
    )
    return [head, *(f"{fault.at_s:6.1f} s  {fault.sentence}" for fault in wishes.plan)]


def tell(console: Console, wishes: Wishes, played: Played, findings: Findings, kept: str) -> None:
    """The text form. `kept` says where the run's files are."""
    windows, wrong = findings.windows, problems(played, findings)
    console.print(ledger_table(played.status.sites), Text(), sep="\n")
    lines = [f"problem: {problem}" for problem in wrong]
    if findings.audit.ok:
        lines += audit_sentences(findings.audit)
    lines.append(
        f"windows, by the logs of the ranks: {windows.merged} merged "
        f"in {counted(played.status.epoch + 1, 'epoch')}, {windows.lost} "
        f"lost, {windows.duplicated} duplicated"
    )
    verdict = "something is WRONG" if wrong else "nothing was lost, nothing counted twice"
    lines.append(
        f"seed {wishes.seed}, {played.seconds:.0f} s, generation {played.status.generation}: {verdict}. {kept}"
    )
    console.print(Text("\n".join(lines)), soft_wrap=True)
