"""Demo runs whose trainers only count: real processes, ports, leases and kills, without torch and almost without work."""

from __future__ import annotations

import subprocess
from pathlib import Path

from crosstrain.assembly import RunFiles, open_run
from crosstrain.demo.prepare import Wishes, prepare
from crosstrain.demo.watching import Frame

WORDS = [
    "site",
    "lease",
    "block",
    "window",
    "epoch",
    "delta",
    "base",
    "round",
    "merge",
    "token",
    "audit",
    "drain",
    "spool",
    "shape",
    "probe",
    "plan",
]


def text_file(path: Path, paragraphs: int = 150) -> Path:
    """Text that repeats enough to be small and little enough to be a corpus."""
    lines = [
        f"{WORDS[n % 16]} {n} {WORDS[n * n % 11]} {n * 7919 % 1009} {WORDS[(n // 16) % 16]}.\n\n"
        for n in range(paragraphs * 16)
    ]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def rehearsal(directory: Path, wishes: Wishes, step_s: float) -> RunFiles:
    """A demo's run with the counting trainer, `step_s` seconds a step."""
    files = prepare(directory, wishes, lambda _: None)
    text = files.path.read_text(encoding="utf-8")
    engine = f'[inner]\nengine = "counting"\nrehearsal_step_s = {step_s}\n'
    files.path.write_text(text.replace("[inner]\n", engine), encoding="utf-8")
    return open_run(files.path)


def processes_of(directory: Path) -> list[str]:
    """Command lines of all processes that were started for a run in this directory."""
    listed = subprocess.run(["ps", "-axww", "-o", "args="], capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if str(directory) in line]


class Frames:
    """A watcher that keeps the newest frame."""

    def __init__(self) -> None:
        self.newest: Frame | None = None

    def show(self, frame: Frame) -> None:
        self.newest = frame
