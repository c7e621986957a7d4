"""What a trainer's process is told at its start; read without torch."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from crosstrain.config import InnerSection, ModelSection

_PATHS = ("train_tokens", "heldout_tokens", "work_dir", "window_log")


@dataclass(frozen=True, slots=True)
class TrainerSettings:
    """Everything a trainer needs beside its plans and weights.

    Attributes:
        seq_len: inputs of a window; window w is tokens[w * seq_len : w * seq_len + seq_len + 1].
        micro_batch: windows of one forward pass on one rank.
        train_tokens: the packed corpus, a flat file of `token_dtype` without a header.
        heldout_tokens: the held-out tokens, likewise.
        work_dir: the only directory that is written without being named in a command.
        threads: of each rank's CPU arithmetic.
        window_log: each rank R appends what it trains to `<window_log>-R.log` (`window_log.py`); None switches it off.
        engine: "titan" trains the model; "counting" is the stand-in without torch (`counting.py`).
    """

    model: ModelSection
    inner: InnerSection
    seq_len: int
    micro_batch: int
    train_tokens: Path
    heldout_tokens: Path
    token_dtype: Literal["uint16", "uint32"]
    work_dir: Path
    threads: int = 1
    window_log: Path | None = None
    engine: Literal["titan", "counting"] = "titan"

    def to_json(self) -> str:
        document: dict[str, Any] = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        document["model"] = self.model.model_dump(mode="json")
        document["inner"] = self.inner.model_dump(mode="json")
        for name in _PATHS:
            document[name] = None if document[name] is None else str(document[name])
        return json.dumps(document)

    @classmethod
    def from_json(cls, text: str) -> TrainerSettings:
        document = json.loads(text)
        document["model"] = ModelSection.model_validate(document["model"])
        document["inner"] = InnerSection.model_validate(document["inner"])
        for name in _PATHS:
            document[name] = None if document[name] is None else Path(document[name])
        return cls(**document)


def window_log_path(settings_path: Path, rank: int) -> Path:
    """The file that rank `rank` writes for `TrainerSettings.window_log`."""
    return settings_path.with_name(f"{settings_path.name}-{rank}.log")
