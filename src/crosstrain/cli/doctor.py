"""`crosstrain doctor`."""

from __future__ import annotations

import json
import os
import textwrap
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crosstrain.cli.amounts import between, seconds
from crosstrain.cli.inspect import AsJson
from crosstrain.domain.timeouts import SILENCE_TRIED_S, USUAL_ROUND_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from crosstrain.doctor.examine import Question, Report
    from crosstrain.domain.timeouts import Timeout


def doctor(
    run: Annotated[
        Path | None, typer.Argument(metavar="[RUN.toml]", help="The run file: its address, disks and sizes.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="Address to try, instead of `site.url`.")] = None,
    name: Annotated[str | None, typer.Option(help="The site whose section `sites.NAME` counts.")] = None,
    mailbox: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A mailbox to try as well, should no other way work.")
    ] = None,
    superlink: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="A SuperLink of Flower to try as well; http://HOST:PORT for one without TLS. Of releases that speak gRPC only in "
            "an environment with flwr.",
        ),
    ] = "",
    silence: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", callback=seconds, help="Leave a connection alone for so long, to see whether it is cut."
        ),
    ] = SILENCE_TRIED_S,
    round_s: Annotated[
        float,
        typer.Option(
            "--round", metavar="SECONDS", callback=between(1.0, 1e7), help="An inner phase, for the table of timeouts."
        ),
    ] = USUAL_ROUND_S,
    as_json: AsJson = False,
) -> None:
    """Try what works from here: ways to the coordinator, disks, clock, programs; choose a way and derive the timeouts.

    Exit code 0 if a way was found, 1 if none was.
    """
    from crosstrain.clock import SystemClock
    from crosstrain.doctor.examine import examine, judge_name, judge_settings, settings_of
    from crosstrain.errors import UsageError

    if run is None and url is None and not superlink:
        raise UsageError("doctor needs to know the coordinator.", "give RUN.toml or --url https://HOST")
    question = replace(_question(run, url, name, mailbox), superlink=superlink, silent_s=silence, round_s=round_s)
    report = examine(question, os.environ, SystemClock())
    config = question.config
    given = settings_of(config, report.timeouts) if config else {}
    named = judge_name(config, name) if config and name else ()
    report = replace(report, findings=(*named, *report.findings, *judge_settings(report.least, given)))
    _print(report, given, as_json)
    if report.choice is None:
        raise typer.Exit(1)


def _question(run: Path | None, url: str | None, name: str | None, mailbox: Path | None) -> Question:
    from crosstrain.assembly import open_run
    from crosstrain.doctor.examine import Question

    files = open_run(run) if run is not None else None
    config = files.config if files else None
    site = (config.site_named(name) if name else config.site) if config else None
    return Question(
        config=config,
        url=url if url is not None else site.url if site else None,
        mailbox=mailbox.absolute() if mailbox else None,
        site_dir=files.resolve(site.dir) if files and site else None,
        coordinator_dir=files.coordinator_dir if files else None,
    )


def _print(report: Report, given: Mapping[str, float], as_json: bool) -> None:
    from rich.console import Console

    if as_json:
        typer.echo(json.dumps(document_of(report, given)))
        return
    console = Console()
    for line in lines_of(report, given, console.width if console.is_terminal else None):
        typer.echo(line)


def document_of(report: Report, given: Mapping[str, float]) -> dict[str, Any]:
    """The JSON form."""
    choice = report.choice
    return {
        "found": choice is not None,
        "way": choice.way if choice else None,
        "reason": choice.reason if choice else None,
        "run_file": list(choice.lines) if choice else [],
        "shell": list(choice.shell) if choice else [],
        "findings": [
            {"level": found.level.value, "name": found.name, "sentence": found.sentence, "advice": found.advice}
            for found in report.findings
        ],
        "timeouts": [
            {
                "topic": row.topic,
                "name": row.name,
                "seconds": row.seconds,
                "rule": row.rule,
                "reason": row.reason,
                "key": row.key or None,
                "set": given.get(row.key),
            }
            for row in report.timeouts
        ],
    }


def lines_of(report: Report, given: Mapping[str, float], columns: int | None = None) -> list[str]:
    """The text form, wrapped to so many columns; None: not at all."""
    width = max(len(found.name) for found in report.findings)
    lines = []
    for found in report.findings:
        lines += _hanging(f"{found.level.value:7} {found.name:{width}}  ", found.sentence, columns)
        if found.advice:
            lines += _hanging(f"{'':8}{'':{width}}  -> ", found.advice, columns)
    if report.timeouts:
        lines += ["", "Timeouts, derived from the model, the link and the round:"]
        lines += _table(report.timeouts, given, columns)
    lines.append("")
    if report.choice is None:
        return [*lines, "No way to the coordinator was found from here.", "See docs/guides/firewall.md."]
    lines += [*_hanging("", f"Way: {report.choice.way}, {report.choice.reason}. In RUN.toml:", columns), ""]
    lines += [f"    {line}" for line in report.choice.lines]
    if report.choice.shell:
        lines += ["", "and in the job's script:", "", *(f"    {line}" for line in report.choice.shell)]
    return lines


def _table(rows: Sequence[Timeout], given: Mapping[str, float], columns: int | None) -> Iterator[str]:
    """Topic by topic: seconds, what is waited for, and how that is derived, or why it is the same for all runs."""
    from crosstrain.domain.timeouts import FIXED

    wide = max(len(row.name) for row in rows)
    for topic, part in groupby(rows, lambda row: row.topic):
        yield from ("", f"  {topic}")
        for row in part:
            there = f"  [{row.key} = {given[row.key]:g}]" if row.key in given else ""
            words = row.reason if row.rule == FIXED else row.rule
            yield from _hanging(f"{row.seconds:11.10g} s  {row.name:{wide}}  ", f"{words}{there}", columns)


def _hanging(head: str, sentence: str, columns: int | None) -> list[str]:
    """The sentence beside its head, further lines under its beginning."""
    if columns is None:
        return [head + sentence]
    return textwrap.wrap(
        sentence,
        max(columns, len(head) + 20),
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    )
