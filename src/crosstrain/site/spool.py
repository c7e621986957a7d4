"""The site's directory: base weights, delta, checkpoints, and the note of what is still to be contributed.

DIR/NAME/
  note.json                 what must survive a crash of the agent (`Note`)
  base-DIGEST.safetensors   the generation that training starts from
  base-DIGEST.packed        the same as it came, until it is unpacked (`wire.compress`)
  delta                     the newest delta as it travels, until it is contributed
  delta.unpacked            the same before it is packed (`wire.compress`)
  start.safetensors         the weights at which a phase ahead began, until it is moved to the next generation
  residual-1.safetensors    what the last accepted delta left out (residual.py), and what the newest one would;
  residual-2.safetensors    the note says which is which, so that it changes in one step with the fate of the delta
  checkpoint-N/             weights, inner optimiser state, position; the newest complete one counts
  trainer.log, windows-R.log
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from crosstrain.disk import disk_faults, sync_directory
from crosstrain.domain.ids import Digest, Token
from crosstrain.domain.phase import PhaseResult
from crosstrain.errors import EnvironmentFault
from crosstrain.site import saved
from crosstrain.storage.durable import make_directory
from crosstrain.wire.messages import ContributionRequest, LeaseInfo

KEPT_CHECKPOINTS = 2
CHECKPOINT = "checkpoint-"
RESIDUALS = ("residual-1.safetensors", "residual-2.safetensors")

Fate = Literal["accepted", "refused", "unusable", "unknown"]
"""What became of a contribution; unusable: refused for what it held."""


class Pending(BaseModel):
    """Finished work that the coordinator may not know of yet."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    token: int
    contribution: ContributionRequest
    residual: str = ""
    """File of what the delta left out, which counts if it is accepted."""


class Partial(BaseModel):
    """A phase that was saved before its end.

    Attributes:
        base: digest of the weights that it started from.
        done: what its segments did so far (`PhaseResult`).
        checkpoint: name of the checkpoint that holds this state.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    lease: LeaseInfo
    base: str
    done: PhaseResult
    checkpoint: str


class Note(BaseModel):
    """Contents of note.json."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    spec_digest: str
    checkpoints: int = 0
    """How many were ever made; the next one gets this number."""
    pending: Pending | None = None
    partial: Partial | None = None
    residual: str = ""
    """File of what the deltas accepted so far left out; empty: nothing."""


class Spool:
    """Paths and the note of one site.

    Raises:
        EnvironmentFault: the directory cannot be made or written, or belongs to another run.
    """

    def __init__(self, directory: Path, spec_digest: str) -> None:
        self.directory = make_directory(directory, "site.dir")
        self._path = directory / "note.json"
        self.note = self._read(spec_digest)
        if self.note.spec_digest != spec_digest:
            raise EnvironmentFault(
                f"{directory} holds the work of another run.", "choose another `site.dir`, or empty this one"
            )
        for path in directory.glob(f"{self.delta.name}.*"):
            path.unlink()  # what a killed session was writing

    @property
    def delta(self) -> Path:
        return self.directory / "delta"

    @property
    def start(self) -> Path:
        return self.directory / "start.safetensors"

    @property
    def moved(self) -> Path:
        """Where weights are written on their way from `start` to a generation."""
        return self.directory / "moved.safetensors"

    def base(self, weights: Digest) -> Path:
        return self.directory / f"base-{weights[:16]}.safetensors"

    def packed_base(self, weights: Digest) -> Path:
        """The same as it came, until it is unpacked (`wire.compress`)."""
        return self.base(weights).with_suffix(".packed")

    def drop_other_bases(self, weights: Digest) -> None:
        """Removes the base weights of earlier generations."""
        for path in self.directory.glob("base-*"):
            if path != self.base(weights):
                path.unlink()

    def next_checkpoint(self) -> Path:
        """Where to write the next checkpoint; never where one is that a crash left uncounted."""
        number = self.note.checkpoints
        while self._checkpoint(number).exists():
            number += 1
        return self._checkpoint(number)

    def newest_checkpoint(self) -> Path | None:
        """The newest complete checkpoint; a crash in the middle of one leaves the one before it."""
        numbers = sorted(self._checkpoint_numbers(), reverse=True)
        complete = (self._checkpoint(number) for number in numbers)
        return next((path for path in complete if (path / saved.MARKER).exists()), None)

    def checkpoint_to_restore(self) -> Path | None:
        """The one that a saved phase goes on from, else the newest."""
        partial = self.note.partial
        if partial is not None and (self.directory / partial.checkpoint / saved.MARKER).exists():
            return self.directory / partial.checkpoint
        return self.newest_checkpoint()

    def checkpoint_made(self, path: Path) -> None:
        """Counts a checkpoint that is complete and removes those that are too old."""
        made = int(path.name.removeprefix(CHECKPOINT))
        self.write(self.note.model_copy(update={"checkpoints": made + 1}))
        for number in self._checkpoint_numbers():
            if number <= made - KEPT_CHECKPOINTS:
                shutil.rmtree(self._checkpoint(number))

    def _checkpoint(self, number: int) -> Path:
        return self.directory / f"{CHECKPOINT}{number}"

    def _checkpoint_numbers(self) -> list[int]:
        names = (path.name.removeprefix(CHECKPOINT) for path in self.directory.glob(f"{CHECKPOINT}*"))
        return [int(name) for name in names if name.isdecimal()]

    @property
    def residual(self) -> Path | None:
        """What the last accepted delta left out."""
        return self.directory / self.note.residual if self.note.residual else None

    @property
    def next_residual(self) -> Path:
        """Where to write what the next delta leaves out; never over the one that counts."""
        first, second = (self.directory / name for name in RESIDUALS)
        return second if self.residual == first else first

    def remember(self, token: Token, contribution: ContributionRequest, residual: Path | None = None) -> None:
        """Notes finished work before it is sent; `residual` is what its delta left out."""
        pending = Pending(token=token, contribution=contribution, residual=residual.name if residual else "")
        self.write(self.note.model_copy(update={"pending": pending, "partial": None}))

    def remember_partial(self, partial: Partial) -> None:
        """Notes how far a phase is; its checkpoint is complete."""
        self.write(self.note.model_copy(update={"partial": partial}))

    def forget_partial(self) -> None:
        """The phase cannot be resumed, or is over."""
        if self.note.partial is not None:
            self.write(self.note.model_copy(update={"partial": None}))

    def forget(self, fate: Fate) -> None:
        """Nothing is pending any more, and the residual is what the fate of the delta makes it.

        Accepted: what it left out. Refused or unusable: as before, for nothing of it counts. Unknown, because the lease was over
        before the answer came: none, because both could be wrong, and then something would be sent twice.

        Unusable work leaves no checkpoints either: the inner optimiser's state in them is what trained it.
        """
        pending = self.note.pending
        if fate == "unusable":
            for number in self._checkpoint_numbers():
                shutil.rmtree(self._checkpoint(number))
        residual = self.note.residual if fate in ("refused", "unusable") else ""
        if fate == "accepted" and pending:
            residual = pending.residual
        self.write(self.note.model_copy(update={"pending": None, "residual": residual}))
        self.delta.unlink(missing_ok=True)
        for name in RESIDUALS:
            if name != residual:
                (self.directory / name).unlink(missing_ok=True)

    def write(self, note: Note) -> None:
        """Replaces the note, durably."""
        part = self._path.with_suffix(".part")
        with disk_faults(part), part.open("w", encoding="utf-8") as file:
            file.write(note.model_dump_json())
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._path)
        sync_directory(self.directory)
        self.note = note

    def _read(self, spec_digest: str) -> Note:
        try:
            return Note.model_validate(json.loads(self._path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return Note(spec_digest=spec_digest)
        except (OSError, ValueError, ValidationError) as error:
            raise EnvironmentFault(
                f"{self._path} cannot be read: {error}.", "remove the site's directory to start it afresh"
            ) from error
