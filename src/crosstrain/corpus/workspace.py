"""The output directory while a corpus is being built.

    DIR/.build/options.json   what the build was asked for; a build with other options does not go on from here
    DIR/.build/lock           held while a build runs
    DIR/.build/KEY.tokenizer  trained tokenizers by what they were trained on
    DIR/.build/KEY.shard      finished shards

`.build` goes when the manifest has been written.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from crosstrain.corpus.durable import write_atomically, writing
from crosstrain.corpus.manifest import MANIFEST, TOKENIZER, BuildRecord, Manifest
from crosstrain.errors import EnvironmentFault, IntegrityError, UsageError

_BUILD = ".build"
_OPTIONS = "options.json"
_OWN = (MANIFEST, TOKENIZER, "train.bin", "heldout.bin")

Options = dict[str, str | int | float | bool]


class Workspace:
    """Paths and states of one output directory."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self._build = out / _BUILD

    def check_options(self, options: Options) -> None:
        """Whether a build with these options may write here.

        Raises:
            UsageError: the directory holds something else.
        """
        if self.out.exists() and not self.out.is_dir():
            raise UsageError(f"The output {self.out} is not a directory.", "choose another one with --out")
        if (self.out / MANIFEST).exists():
            self._compare("a corpus", Manifest.load(self.out).build.options, options)
        elif (self._build / _OPTIONS).exists():
            try:
                found = json.loads((self._build / _OPTIONS).read_bytes())
            except ValueError:
                raise IntegrityError(f"{self._build / _OPTIONS} is damaged.", "pass --force to start again") from None
            self._compare("an unfinished corpus", found, options)
        elif self.out.is_dir() and (foreign := sorted(p.name for p in self.out.iterdir() if p.name != _BUILD)):
            raise UsageError(
                f"The output {self.out} is not empty and holds no corpus (it has {', '.join(foreign[:3])}).",
                "choose another directory, or pass --force to write the corpus beside these files",
            )

    def _compare(self, what: str, found: Options, wanted: Options) -> None:
        names = [name for name in {**found, **wanted} if found.get(name) != wanted.get(name)]
        if names:
            differences = "; ".join(f"{name} {found.get(name)}, asked for {wanted.get(name)}" for name in names)
            raise UsageError(
                f"{self.out} holds {what} with other options: {differences}.",
                "choose another directory with --out, or pass --force to replace it",
            )

    def complete(self, wanted: BuildRecord) -> Manifest | None:
        """The manifest if the directory already holds what is wanted.

        Raises:
            UsageError: it holds a corpus of other inputs.
            IntegrityError: it is damaged.
        """
        if not (self.out / MANIFEST).exists():
            return None
        manifest = Manifest.load(self.out)
        if manifest.build != wanted:
            raise UsageError(
                f"{self.out} holds a corpus of other inputs (or inputs that have changed since).",
                "choose another directory with --out, or pass --force to replace it",
            )
        item = 2 if manifest.dtype == "uint16" else 4
        for name, split in (("train.bin", manifest.train), ("heldout.bin", manifest.heldout)):
            path = self.out / name
            if not path.is_file() or path.stat().st_size != split.tokens * item:
                raise IntegrityError(f"{path} is not as long as the manifest says.", "pass --force to build it again")
        return manifest

    @contextlib.contextmanager
    def opened(self, options: Options, force: bool) -> Iterator[None]:
        """Holds the directory for one build.

        Raises:
            EnvironmentFault: it cannot be written, or another build is writing.
        """
        with writing(self.out):
            self._build.mkdir(parents=True, exist_ok=True)
            lock = (self._build / "lock").open("wb")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise EnvironmentFault(
                    f"Another build is writing into {self.out}.", "wait for it, or choose another directory"
                ) from None
            with writing(self.out):
                self._clear(force)
            write_atomically(self._build / _OPTIONS, json.dumps(options).encode())
            yield

    def _clear(self, force: bool) -> None:
        if force:
            # The manifest goes first: what is left after a crash here must not look complete.
            for name in _OWN:
                (self.out / name).unlink(missing_ok=True)
        for path in self._build.iterdir():
            if path.name.endswith(".part") or (force and path.name != "lock"):
                path.unlink()
        for path in self.out.glob("*.bin.*.part"):
            path.unlink()

    def shard(self, key: str) -> Path:
        return self._build / f"{key}.shard"

    def tokenizer(self, key: str) -> Path:
        return self._build / f"{key}.tokenizer"

    def close(self) -> None:
        """Removes the workspace of a build whose manifest is written.

        Raises:
            EnvironmentFault: a file cannot be removed.
        """
        with writing(self.out):
            shutil.rmtree(self._build)
