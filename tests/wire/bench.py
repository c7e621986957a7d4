"""Blobs between the real app, the real server and the real client, over a line that a test can spoil."""

from __future__ import annotations

from pathlib import Path

from tests.fakes import ManualClock, World, build_world, sha256
from tests.http_serving import Spoiled

from crosstrain.domain.ids import Digest
from crosstrain.partial_file import PartialFile
from crosstrain.wire.crew import Crew, InTurn
from crosstrain.wire.transfer import BlobClient

DATA = bytes(range(251)) * 8
DIGEST = sha256(DATA)
PART = 900


class Bench:
    """A coordinator, a line to it that a test can spoil, and a client."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.world: World = build_world(directory)
        self.clock = ManualClock()
        self.line = Spoiled(self.world.app)
        self.target = directory / "blob"
        self.seen: list[tuple[int, int]] = []
        self.url = ""

    def client(self, crew: Crew | None = None) -> BlobClient:
        return BlobClient(self.url, self.clock, lambda: 0.5, self.clock.wait, crew=crew or InTurn())

    def progress(self, done: int, total: int) -> None:
        self.seen.append((done, total))

    def download(self, deadline_s: float = 100.0, crew: Crew | None = None) -> None:
        self.client(crew).download(DIGEST, self.target, deadline_s, self.progress)

    def upload(
        self, data: bytes = DATA, digest: Digest = DIGEST, deadline_s: float = 100.0, crew: Crew | None = None
    ) -> None:
        path = self.directory / "source"
        path.write_bytes(data)
        self.client(crew).upload(path, digest, deadline_s, self.progress)

    def begun(self, data: bytes, *spans: tuple[int, int]) -> None:
        """A download that was interrupted with these bytes there."""
        with PartialFile(self.target, DIGEST, len(DATA)) as part:
            for start, stop in spans:
                part.write(start, data[start:stop])

    @property
    def leftovers(self) -> list[str]:
        return sorted(path.name for path in self.directory.glob("blob*"))

    @property
    def ranges(self) -> list[str]:
        return [request.headers["range"] for request in self.line.of("GET")]

    @property
    def puts(self) -> list[int]:
        """Offsets of the parts that were sent."""
        return [int(request.query.partition("offset=")[2].partition("&")[0]) for request in self.line.of("PUT")]

    @property
    def stored(self) -> bytes:
        return self.world.objects.path(DIGEST).read_bytes()

    def reset(self) -> None:
        for path in self.directory.glob("blob*"):
            path.unlink()
        self.world.objects.delete(DIGEST)
        self.line.reset()
        self.seen.clear()
