"""What the agent and the trainer's process say to each other, and what each command does.

Commands and answers are JSON objects, one a line:

    {"op": "initialise", "seed": N, "path": P}                      -> {"bytes": N, "digest": D}
    {"op": "load", "path": P, "generation": G, "fresh": bool}       -> {"position": {...}}
    {"op": "run", "plan": {...}}                                    -> the fields of PhaseResult
    {"op": "export", "path": P, "base": P or null, "codec": C}      -> {"norm": x, "bytes": N, "digest": D}
      with "residual": {"before": P or null, "after": P}               for codecs with error feedback
      with "compress": "planes"                                        packed, as `wire.compress` says
      with "start": P                                                  the float32 weights too, for a phase ahead
    {"op": "move", "start": P, "target": P, "work": P, "generation": G, "windows": N} -> {"nll": x, "tokens": N}
    {"op": "evaluate", "windows": N}                                -> {"nll": x, "tokens": N}
    {"op": "generate", "prompt": [...], "tokens": N, "temperature": x, "seed": N} -> {"tokens": [...]}
    {"op": "save", "directory": P}, {"op": "restore", "directory": P} -> {"position": {...}}
    {"op": "close"}                                                 -> {}

The trainer's process says {"ready": {...}} once, {"progress": {...}} during a run, and ends each command with
{"done": {...}} or {"error": {...}}.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from crosstrain import errors
from crosstrain.domain.ids import Digest
from crosstrain.domain.phase import PhasePlan, PhaseProgress, PhaseResult, WindowRange
from crosstrain.errors import CrosstrainError, EnvironmentFault, IntegrityError, UsageError
from crosstrain.site.move import Move
from crosstrain.site.residual import Residual
from crosstrain.site.trainer import Command, Position, TensorSpec, Trainer, Watch
from crosstrain.storage.byte_planes import pack
from crosstrain.storage.delta_file import ELEMENT_BYTES, Codec, DeltaWriter
from crosstrain.storage.deltas import Compress
from crosstrain.storage.object_store import digest_file
from crosstrain.storage.weights_file import Entry, WeightsFile, WeightsWriter

CODECS: tuple[Codec, ...] = get_args(Codec)
UNPACKED = ".unpacked"
"""Added to the name of a delta until it is packed."""

_CHUNK = 1 << 18  # elements, whole blocks; bounds what an export holds beside the tensor it was given

ANSWERED = (CrosstrainError, ValueError, OSError)
"""What a command may raise without ending the trainer's process: every rank raises one of these or none does."""


def perform(trainer: Trainer, command: Command, watch: Watch, writes: bool) -> dict[str, Any]:
    """Does one command; collective.

    Args:
        watch: for "run".
        writes: whether this rank writes the files of "initialise" and "export": rank 0 alone does.

    Raises:
        ValueError: no such command.
    """
    match command:
        case {"op": "initialise", "seed": seed, "path": path}:
            return _initialise(trainer, seed, Path(path), writes)
        case {"op": "load", "path": path, "generation": generation}:
            trainer.load(Path(path), generation, fresh=command.get("fresh", False))
            return {"position": dataclasses.asdict(trainer.position)}
        case {"op": "run", "plan": plan}:
            return dataclasses.asdict(trainer.run(plan_from_json(plan), watch))
        case {"op": "export", "path": path, "base": base, "codec": codec}:
            files = DeltaFiles(path, base, **command.get("residual", {}))
            answer = _export(trainer, files, codec, writes, command.get("compress", "none"))
            if "start" in command:
                _export(trainer, DeltaFiles(command["start"], None), "fp32", writes, named=False)
            return answer
        case {"op": "move", "start": start, "target": target, "work": work, "generation": generation}:
            move = Move(Path(start), Path(target), Path(work), generation)
            nll, counted = move.perform(trainer, command["windows"], writes)
            return {"nll": nll, "tokens": counted}
        case {"op": "evaluate", "windows": windows}:
            nll, counted = trainer.evaluate(windows)
            return {"nll": nll, "tokens": counted}
        case {"op": "generate", "prompt": prompt, "tokens": tokens, "temperature": temperature, "seed": seed}:
            return {"tokens": trainer.generate(prompt, tokens, temperature, seed)}
        case {"op": "save", "directory": directory}:
            trainer.save(Path(directory))
            return {"position": dataclasses.asdict(trainer.position)}
        case {"op": "restore", "directory": directory}:
            return {"position": dataclasses.asdict(trainer.restore(Path(directory)))}
        case {"op": "close"}:
            trainer.close()
            return {}
    raise ValueError(f"expected a command of commands.py, found {command}")


def _initialise(trainer: Trainer, seed: int, path: Path, writes: bool) -> dict[str, Any]:
    if not writes:
        trainer.initialise(_ignore, seed)
        return {}
    entries = [Entry(spec.name, "F32", spec.shape) for spec in trainer.manifest]
    with WeightsWriter(path, entries, hashed=True) as writer:
        trainer.initialise(writer.write, seed)
    return {"bytes": path.stat().st_size, "digest": writer.digest}


class DeltaFiles(NamedTuple):
    """What an export reads and writes: the delta, what it is less of, the residuals of the last delta and of this one."""

    path: str
    base: str | None
    before: str | None = None
    after: str | None = None


def _export(
    trainer: Trainer, files: DeltaFiles, codec: str, writes: bool, compress: Compress = "none", *, named: bool = True
) -> dict[str, Any]:
    """Writes the weights, or what they are more than the base. The norm is of the float32 values, before they are encoded.

    Args:
        named: whether the answer names the file's digest, which is hashed while it is written unless it is packed.
    """
    if codec not in CODECS:
        raise ValueError(f"expected a codec of {sorted(CODECS)}, found {codec}")
    if not writes:
        trainer.export(_ignore)
        return {}
    path = Path(files.path)
    written = path if compress == "none" else path.with_name(path.name + UNPACKED)
    hashed = named and compress == "none"
    delta = _Delta(trainer.manifest, files._replace(path=str(written)), codec, hashed)
    trainer.export(delta.take)
    answer: dict[str, Any] = {"norm": delta.finish()}
    if compress == "planes":
        pack(written, path, ELEMENT_BYTES[codec])
        written.unlink()
    if named:
        answer["digest"] = delta.digest if hashed else digest_file(path)
    return {**answer, "bytes": path.stat().st_size}


def _ignore(name: str, tensor: npt.NDArray[np.float32]) -> None:
    """The sink of ranks that write nothing."""


class _Delta:
    """A sink that encodes tensors, less those of a base file, a chunk at a time.

    It never raises in the middle of an export: the other ranks go on to the next tensor, so this one has to as well.
    """

    def __init__(self, manifest: tuple[TensorSpec, ...], files: DeltaFiles, codec: Codec, hashed: bool) -> None:
        self._manifest = manifest
        model = [Entry(spec.name, "F32", spec.shape) for spec in manifest]
        self._stack = ExitStack()
        self._writer = DeltaWriter(Path(files.path), model, codec, hashed=hashed)
        before = Path(files.before) if files.before else None
        self._residual = Residual(before, Path(files.after), model) if files.after else None
        self._base_path = files.base and Path(files.base)
        self._base: WeightsFile | None = None
        self._square = 0.0
        self._failure: Exception | None = None
        self._guard(self._begin)

    def take(self, name: str, tensor: npt.NDArray[np.float32]) -> None:
        self._guard(lambda: self._write(name, tensor.reshape(-1)))

    @property
    def digest(self) -> Digest:
        """Of the finished file."""
        return self._writer.digest

    def finish(self) -> float:
        """The norm of all that was written; raises what went wrong on the way."""
        failure = self._failure
        self._stack.__exit__(type(failure) if failure else None, failure, None)
        if failure:
            raise failure
        return math.sqrt(self._square)

    def _begin(self) -> None:
        if self._base_path:
            self._base = self._stack.enter_context(WeightsFile(self._base_path))
            found = {entry.name: entry.shape for entry in self._base.entries}
            if found != {spec.name: spec.shape for spec in self._manifest}:
                raise IntegrityError(f"{self._base_path}: expected the tensors of the weights held, found others.")
        self._stack.enter_context(self._writer)
        if self._residual:
            self._stack.enter_context(self._residual)

    def _write(self, name: str, flat: npt.NDArray[np.float32]) -> None:
        base = self._base.array(name).reshape(-1) if self._base else None
        for begin in range(0, flat.size, _CHUNK):
            piece = flat[begin : begin + _CHUNK]
            if base is not None:
                piece = piece - base[begin : begin + _CHUNK].astype(np.float32)
            self._square += float(np.square(piece, dtype=np.float64).sum())
            if self._residual is None:
                self._writer.append(name, piece)
            else:
                piece = self._residual.add(name, piece)
                self._residual.keep(name, piece, self._writer.append(name, piece))

    def _guard(self, action: Callable[[], None]) -> None:
        if self._failure is None:
            try:
                action()
            except Exception as error:  # noqa: BLE001 - raised by finish()
                self._failure = error


def plan_to_json(plan: PhasePlan) -> dict[str, Any]:
    return dataclasses.asdict(plan)


def plan_from_json(document: Mapping[str, Any]) -> PhasePlan:
    blocks = tuple(WindowRange(**block) for block in document["blocks"])
    return PhasePlan(**{**document, "learning_rates": tuple(document["learning_rates"]), "blocks": blocks})


def result_from_json(document: Mapping[str, Any]) -> PhaseResult:
    """From what "run" answers."""
    lists = {name: tuple(document[name]) for name in ("losses", "grad_norms")}
    return PhaseResult(**{**document, **lists})


def progress_to_json(progress: PhaseProgress) -> dict[str, Any]:
    return dataclasses.asdict(progress)


def ready_to_json(trainer: Trainer) -> dict[str, Any]:
    manifest = [[spec.name, list(spec.shape)] for spec in trainer.manifest]
    return {"manifest": manifest, "position": dataclasses.asdict(trainer.position)}


def manifest_from_json(document: Mapping[str, Any]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name, tuple(shape)) for name, shape in document["manifest"])


def position_from_json(document: Mapping[str, Any]) -> Position:
    """From what "ready", "load", "save" and "restore" answer."""
    return Position(**document["position"])


def error_to_json(error: Exception) -> dict[str, str]:
    if isinstance(error, CrosstrainError):
        return {"type": type(error).__name__, "message": error.message, "hint": error.hint}
    kind = EnvironmentFault if isinstance(error, OSError) else UsageError
    return {"type": kind.__name__, "message": str(error), "hint": ""}


def error_from_json(document: Mapping[str, str]) -> CrosstrainError:
    """The error of the same kind on this side of the socket."""
    kind = getattr(errors, document["type"], EnvironmentFault)
    error: CrosstrainError = kind(document["message"], document["hint"])
    return error
