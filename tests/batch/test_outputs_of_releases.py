"""Recorded sessions with Slurm 22.05, 24.11 and 26.05: every command of a known kind reads without a line left over."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crosstrain.batch.printed import Output
from crosstrain.cli.parse_documents import Context
from crosstrain.cli.parse_kinds import KINDS

SESSIONS = Path(__file__).parent / "outputs"
_BLOCK = re.compile(
    r"^\$ ([^\n]+?)(?:    #[^\n]*)?\n--- stdout\n(.*?)--- stderr\n(.*?)--- exit code (\d+)", re.MULTILINE | re.DOTALL
)
_SACCTS = re.compile(r"^\$ (sacct .+)\n((?:.+\n)+)", re.MULTILINE)


def commands(path: Path) -> Iterator[tuple[str, Output]]:
    text = path.read_text(encoding="utf-8")
    for command, stdout, stderr, code in _BLOCK.findall(text):
        yield command, Output(stdout, stderr, int(code))
    if "--- stdout" not in text:
        for command, stdout in _SACCTS.findall(text):
            yield command, Output(stdout)


def kind_of(command: str) -> str | None:
    if "sbatch" in command and "--version" not in command:
        return "testonly" if "--test-only" in command else "submit"
    if "--json" in command or "-R" in command.split():
        return None
    for word, kind in (
        ("show partition", "scontrol_partition"), ("show reservation", "scontrol_reservation"), ("squeue", "squeue"),
        ("sacct ", "sacct"), ("sinfo", "sinfo"),
    ):  # fmt: skip
        if word in command:
            return kind
    return None


READ = [
    pytest.param(kind, command, output, id=f"{path.stem}-{number}-{kind}")
    for path in sorted(SESSIONS.glob("*.txt"))
    for number, (command, output) in enumerate(commands(path))
    if (kind := kind_of(command)) is not None
]


@pytest.mark.parametrize(("kind", "command", "output"), READ)
def test_recorded_command_reads(kind: str, command: str, output: Output) -> None:
    document: dict[str, Any] = KINDS[kind](output, Context())
    json.dumps(document)
    if "outcome" in document:
        good = {"testonly": "estimate", "submit": "submitted"}[kind]
        assert document["outcome"] in ((good,) if output.exit_code == 0 else ("refused", "unreachable")), document
        assert document["error_kind"] not in ("other", "no_verdict", "site_policy"), document
        return
    assert (document["error"] is not None) == (output.exit_code != 0), document
    assert document["error"] != "unknown", document
    if output.exit_code == 0:
        assert document["problems"] == [], command
        assert all("UNKNOWN" not in str(row.get("state")) for row in document["rows"])


def test_sessions_hold_many_commands() -> None:
    kinds = [param.values[0] for param in READ]
    assert {kind: kinds.count(kind) for kind in ("testonly", "submit", "sacct", "squeue", "sinfo")} == {
        "testonly": 72, "submit": 8, "sacct": 16, "squeue": 17, "sinfo": 7,
    }  # fmt: skip
