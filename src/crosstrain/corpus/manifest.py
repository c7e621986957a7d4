"""What a corpus directory holds. Importable without numpy or tokenizers, because the coordinator reads it too.

DIR/train.bin, DIR/heldout.bin   little-endian tokens, no header; documents separated by the end-of-text token
DIR/tokenizer.json               Hugging Face `tokenizers` file, in canonical JSON
DIR/manifest.json                this; written last, so a directory that has one is complete
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from crosstrain.corpus.durable import write_atomically
from crosstrain.errors import IntegrityError, UsageError

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
TOKENIZER = "tokenizer.json"

Amount = Annotated[int, Field(ge=0)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
SplitName = Literal["train", "heldout"]


class Record(BaseModel):
    """Base of what the manifest is made of: immutable, unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SplitRecord(Record):
    """One of the two token files."""

    tokens: Amount
    windows: Amount
    """(tokens - 1) // seq_len."""
    documents: Amount
    sha256: Sha256
    """Of the file."""


class SourceRecord(Record):
    """One input as it was named on the command line."""

    name: str
    """Last part of its path."""
    documents: Amount
    """Before duplicates were dropped."""
    bytes: Amount
    """UTF-8 bytes of their text."""
    empty: Amount = 0
    """Documents without text, left out."""
    skipped: Amount = 0
    """Files of a directory that are not text, left out."""


class BuildRecord(Record):
    """What the corpus was made from: the same again needs no work."""

    options: dict[str, str | int | float | bool]
    """Those that decide the content."""
    inputs_sha256: Sha256


class Manifest(Record):
    """A complete corpus."""

    format_version: Literal[1] = 1
    seq_len: Annotated[int, Field(ge=1)]
    dtype: Literal["uint16", "uint32"]
    vocab_size: Annotated[int, Field(ge=1)]
    eot_token_id: Amount
    train: SplitRecord
    heldout: SplitRecord
    heldout_rule: Literal["documents", "tail-of-one-document", "none"]
    """`documents`: the splits share no document. `tail-of-one-document`: whole documents could not give both splits a
    window, so the end of the longest one is held out and its beginning is trained on."""
    tokenizer_sha256: Sha256
    content_sha256: Sha256
    """Identifies the corpus: over both splits' tokens, their type and seq_len."""
    sources: tuple[SourceRecord, ...]
    duplicates: Amount
    """Documents that equal an earlier one."""
    duplicates_dropped: Amount
    build: BuildRecord
    created_with: str
    """crosstrain's version."""

    @classmethod
    def load(cls, directory: Path) -> Manifest:
        """Reads DIR/manifest.json.

        Raises:
            UsageError: there is no corpus at `directory`.
            IntegrityError: the manifest is not one this version can read.
        """
        path = directory / MANIFEST
        try:
            text = path.read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            raise UsageError(
                f"{directory} holds no corpus: it has no {MANIFEST}.",
                "make one with `crosstrain corpus build INPUT... --out DIR`; an interrupted build is taken up again by the same command",
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise IntegrityError(f"{path} cannot be read: {error}.", "build the corpus again with --force") from error
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "the file"
            raise IntegrityError(
                f"{path} is not a manifest of format {FORMAT_VERSION}: {where}: {first['msg']}.",
                "build the corpus again with --force, or copy it again from where it was built",
            ) from None

    def save(self, directory: Path) -> None:
        """Writes DIR/manifest.json in one step.

        Raises:
            EnvironmentFault: the directory cannot be written.
        """
        write_atomically(directory / MANIFEST, (self.model_dump_json(indent=2) + "\n").encode())

    def split(self, name: SplitName) -> SplitRecord:
        """The record of a split."""
        return self.train if name == "train" else self.heldout

    def expected_content_sha256(self) -> str:
        """What `content_sha256` must be, given the other fields."""
        return digest_content(self.seq_len, self.dtype, self.train, self.heldout)


def windows_of(tokens: int, seq_len: int) -> int:
    """Windows of seq_len + 1 tokens at stride seq_len."""
    return max(0, tokens - 1) // seq_len


def digest_content(seq_len: int, dtype: str, train: SplitRecord, heldout: SplitRecord) -> str:
    """The digest that identifies a corpus, over the digests of its two files."""
    lines = [f"crosstrain corpus {FORMAT_VERSION}", f"seq_len {seq_len}", f"dtype {dtype}"]
    lines += [f"{name} {split.tokens} {split.sha256}" for name, split in (("train", train), ("heldout", heldout))]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
