"""Answers of a scheduler that change rarely: asked again once they are old, and kept as they were printed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from crosstrain.batch.printed import Output
from crosstrain.batch.scheduler import BatchSystem
from crosstrain.collector.journal import write_whole
from crosstrain.domain.ids import Instant

FRESH_MS = 3_600_000


class Facts:
    """Outputs in a directory, by name."""

    def __init__(self, directory: Path, system: BatchSystem, now: Instant) -> None:
        self._directory = directory
        self._system = system
        self._now = now

    def ask(self, name: str, command: Sequence[str]) -> Output:
        """The output of a command, at most an hour old. Those that failed are not kept."""
        path = self._directory / f"{name}.json"
        held = self._held(path, command)
        if held is not None:
            return held
        output = self._system.ask(command)
        if output.exit_code == 0 and not output.timed_out:
            document = {"at": self._now, "command": list(command), "stdout": output.stdout, "stderr": output.stderr}
            write_whole(path, json.dumps(document).encode())
        return output

    def _held(self, path: Path, command: Sequence[str]) -> Output | None:
        try:
            found = json.loads(path.read_bytes())
            fresh = 0 <= self._now - found["at"] < FRESH_MS and found["command"] == list(command)
            return Output(found["stdout"], found["stderr"], 0) if fresh else None
        except (OSError, ValueError, KeyError, TypeError):
            return None
