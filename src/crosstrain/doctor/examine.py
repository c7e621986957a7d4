"""The whole examination: looks, judges, chooses, and derives the timeouts from what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from urllib.parse import urlsplit

from crosstrain.clock import Clock
from crosstrain.config import RunConfig
from crosstrain.doctor import judge_machine, judge_network, need
from crosstrain.doctor.choice import Choice, Seen, choose
from crosstrain.doctor.finding import Finding, Level
from crosstrain.doctor.observations import Box
from crosstrain.doctor.probe_bucket import try_bucket
from crosstrain.doctor.probe_machine import look_at_box, look_at_disk, look_at_machine
from crosstrain.doctor.probe_network import Probe, resolve
from crosstrain.doctor.superlink import SuperLinkSeen, judge_superlink, try_superlink
from crosstrain.domain.lease import full_phase_blocks
from crosstrain.domain.room import round_inodes
from crosstrain.domain.timeouts import USUAL_ROUND_S, USUAL_RTT_S, Circumstances, Timeout, derive, transfer_s
from crosstrain.wire.addresses import require_address, several
from crosstrain.wire.http_line import proxy_for
from crosstrain.wire.mailbox import mailbox_of

CHECKPOINT_RATE = 200e6
"""Bytes per second at which a shared file system is assumed to take a checkpoint."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is examined.

    Attributes:
        config: the run file, None if none was given.
        url: of the coordinator, or `mailbox:DIR`; None where only Flower is tried.
        mailbox: a directory that a relay looks into, or could.
        site_dir, coordinator_dir: from the run file.
        silent_s: how long a connection is left alone to see whether it is cut; 0 leaves it out.
        round_s: an inner phase.
        superlink: HOST:PORT of Flower's SuperLink, empty if there is none.
    """

    config: RunConfig | None
    url: str | Sequence[str] | None
    mailbox: Path | None = None
    site_dir: Path | None = None
    coordinator_dir: Path | None = None
    silent_s: float = 0.0
    round_s: float = USUAL_ROUND_S
    superlink: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What was found.

    Attributes:
        timeouts: derived for this run and this link.
        least: what the run file's settings are held against.
    """

    findings: tuple[Finding, ...]
    choice: Choice | None
    timeouts: tuple[Timeout, ...]
    least: tuple[Timeout, ...] = ()


def examine(question: Question, environment: Mapping[str, str], clock: Clock) -> Report:
    """Looks at everything; takes seconds to a minute.

    Raises:
        UsageError: an address is none.
    """
    of_site = None if question.url is None else mailbox_of(question.url)
    urls = [] if question.url is None or of_site else several(question.url)
    for url in urls:
        require_address(url)
    findings = [*judge_machine.judge_machine(look_at_machine(environment)), *_disks(question)]
    directory = of_site or question.mailbox
    ways: list[Seen] = []
    for url in urls:
        ways += _ways(url, question.silent_s, clock, findings)
    box: Box | None = None
    if directory is not None:
        box = look_at_box(directory, clock)
        findings.append(judge_network.judge_box(box))
    link: SuperLinkSeen | None = None
    if question.superlink:
        link = try_superlink(question.superlink)
        findings.append(judge_superlink(link))
    choice = choose(ways, box, link)
    best = next((way for way in ways if way.good), None)
    found = _found(question, best)
    return Report(tuple(findings), choice, derive(found) if found else (), least(found) if found else ())


def _ways(url: str, silent_s: float, clock: Clock, findings: list[Finding]) -> list[Seen]:
    findings.append(judge_network.judge_name(resolve(url)))
    named = proxy_for(urlsplit(url))
    proxy = named.geturl() if named else None
    seen = [_try(Probe(url, None, clock), silent_s, findings)]
    if proxy is not None:
        through = Probe(url, proxy, clock)
        seen.append(_try(through, silent_s, findings))
        findings.append(judge_network.judge_connect(through.connect()))
    return seen


def _try(probe: Probe, silent_s: float, findings: list[Finding]) -> Seen:
    """One way: its answer, and what passes on it."""
    try:
        answer = probe.status(silent_s)
        findings.append(judge_network.judge_answer(answer))
        if not answer.coordinator:
            return Seen(answer)
        seen = Seen(answer, probe.bodies(), probe.ranged(answer.weights))
        store = probe.store(answer.weights)
    finally:
        probe.close()
    if answer.ahead_ms is not None:
        findings.append(judge_network.judge_clock(answer.ahead_ms))
    findings.append(judge_network.judge_certificate(answer.certificate_s, answer.url))
    if silent_s > 0:
        findings.append(judge_network.judge_held(answer))
    findings.append(judge_network.judge_bodies(seen.bodies))
    findings.append(judge_network.judge_ranged(seen.ranged))
    if store is not None:
        findings.append(judge_network.judge_store(store))
    return seen


def _disks(question: Question) -> list[Finding]:
    config = question.config
    if config is None:
        return []
    found: list[Finding] = []
    if question.site_dir is not None:
        disk = look_at_disk("site.dir", question.site_dir)
        found += judge_machine.judge_disk(disk, need.site_bytes(config), need.SITE_INODES, database=False)
    if question.coordinator_dir is not None:
        disk = look_at_disk("coordinator.dir", question.coordinator_dir)
        sqlite = not config.coordinator.database.get_secret_value()
        per = need.round_bytes(config)
        found += judge_machine.judge_disk(disk, 2 * per, round_inodes(need.sites(config)), database=sqlite, per=per)
    if config.coordinator.objects:
        found.append(judge_network.judge_bucket(try_bucket(config.coordinator)))
    return found


def circumstances(config: RunConfig, round_s: float, rate: float | None, rtt_s: float) -> Circumstances:
    """What the timeouts of a run follow from.

    Args:
        round_s: an inner phase of the usual site.
        rate: bytes per second of the link; None if it was not measured.
    """
    blocks = full_phase_blocks(config.inner.steps, config.site.windows_per_step, config.data.block_windows)
    return Circumstances(
        round_s=round_s,
        block_s=round_s / blocks,
        download_bytes=need.download_bytes(config),
        upload_bytes=need.upload_bytes(config),
        rate=rate,
        rtt_s=rtt_s,
        checkpoint_s=transfer_s(round(need.CHECKPOINT_BYTES * need.parameters(config.model)), CHECKPOINT_RATE, 0.0),
        heartbeat_s=config.lease.heartbeat_s,
        ttl_floor_s=config.lease.ttl_floor_s,
        takeover_s=config.coordinator.takeover_s,
    )


def _found(question: Question, best: Seen | None) -> Circumstances | None:
    if question.config is None:
        return None
    rtt_s = best.answer.seconds if best and best.answer.seconds else USUAL_RTT_S
    return circumstances(question.config, question.round_s, best.rate if best else None, rtt_s)


def least(found: Circumstances) -> tuple[Timeout, ...]:
    """What settings are held against: the table, and where the link was not measured, what is needed on any link. The table
    assumes the slowest useful one then, of which nobody should be warned."""
    return derive(found if found.rate is not None else replace(found, rate=inf))


def settings_of(config: RunConfig, table: Sequence[Timeout]) -> dict[str, float]:
    """What the run file sets for the rows that have a key."""
    found = {}
    for row in table:
        section, _, name = row.key.partition(".")
        if name:
            found[row.key] = float(getattr(getattr(config, section), name))
    return found


def judge_name(config: RunConfig, name: str) -> tuple[Finding, ...]:
    """Whether the run file knows the site that was asked for."""
    note = config.without_section(name)
    return () if note is None else (Finding(Level.WARN, "site", note, "look at the spelling of --name"),)


def judge_settings(table: Sequence[Timeout], given: Mapping[str, float]) -> tuple[Finding, ...]:
    """Keys of the run file that are shorter than what they wait for."""
    return tuple(
        Finding(
            Level.WARN,
            row.key,
            f"{given[row.key]:.0f} s are set, {row.seconds:.0f} s are needed for {row.name}: {row.rule}",
            f"{row.key.rpartition('.')[2]} = {row.seconds:.0f} in [{row.key.partition('.')[0]}]",
        )
        for row in table
        if row.key in given and given[row.key] < 0.99 * row.seconds
    )
