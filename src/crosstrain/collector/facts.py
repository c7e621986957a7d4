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
        found, at = self._held(name, command)
        if found is not None and 0 <= self._now - at < FRESH_MS:
            return found
        output = self._system.ask(command)
        if output.exit_code == 0 and not output.timed_out:
            document = {"at": self._now, "command": list(command), "stdout": output.stdout, "stderr": output.stderr}
            write_whole(self._directory / f"{name}.json", json.dumps(document).encode())
        return output

    def kept(self, name: str, command: Sequence[str]) -> Output:
        """The newest output that is kept, however old, without asking: for a scheduler that is away."""
        found, _ = self._held(name, command)
        return found or Output("", "never answered", 1)

    def _held(self, name: str, command: Sequence[str]) -> tuple[Output | None, int]:
        try:
            found = json.loads((self._directory / f"{name}.json").read_bytes())
            if found["command"] == list(command):
                return Output(str(found["stdout"]), str(found["stderr"]), 0), int(found["at"])
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return None, 0
