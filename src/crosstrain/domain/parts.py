"""How a blob is cut into the parts of a multipart upload, as S3 and what is compatible with it takes them.

Limits: https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from crosstrain.domain.byte_ranges import Span

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class PartRule:
    """Sizes of parts. The cut follows from the length of the blob alone, so that whoever goes on with an upload cuts alike.

    Attributes:
        least: bytes of every part but the last.
        usual: bytes, unless that makes too many: a part that is cut on its way is lost as a whole, and each costs a round trip.
        most: parts of one blob.
    """

    least: int = 5 * MIB
    usual: int = 8 * MIB
    most: int = 10_000

    def part_bytes(self, total: int) -> int:
        """Length of every part but the last of a blob of `total` bytes."""
        return max(self.least, self.usual, -(-total // self.most))

    def cut(self, total: int) -> dict[int, Span]:
        """The bytes of each part by its number, which count from 1."""
        size = self.part_bytes(total)
        return {1 + start // size: (start, min(total, start + size)) for start in range(0, total, size)}

    def missing(self, total: int, sizes: Mapping[int, int]) -> dict[int, Span]:
        """The parts that are not there, or there with another length.

        Args:
            sizes: bytes of the parts that are there, by their numbers.
        """
        return {
            number: (start, stop)
            for number, (start, stop) in self.cut(total).items()
            if sizes.get(number) != stop - start
        }


class SignedPart(NamedTuple):
    """A part that is missing, and where whoever knows the address may put it by HTTP for some hours."""

    number: int
    offset: int
    length: int
    address: str


class PartsLeft(NamedTuple):
    """How far an upload in parts is.

    Attributes:
        received: bytes of the parts that are there.
        missing: the first parts that are not there, all of them if they are not too many.
    """

    received: int
    missing: tuple[SignedPart, ...] = ()
