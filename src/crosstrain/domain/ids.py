"""Identifier types and units. A duration is in milliseconds, an instant is UTC milliseconds, unless a name says otherwise."""

from __future__ import annotations

from typing import NewType

Instant = NewType("Instant", int)
"""UTC milliseconds since 1970, read from the coordinator's clock."""

SiteName = NewType("SiteName", str)
SessionId = NewType("SessionId", int)
"""Grows by one with every registration of any site; the larger of two sessions of a site is the newer."""

Token = NewType("Token", int)
"""Fencing token of a lease. Grows by one with every grant and is never used again."""

Generation = NewType("Generation", int)
Position = NewType("Position", int)
"""A place in an epoch's permuted order of blocks, 0 <= position < M."""

Digest = NewType("Digest", str)
"""Lower-case hexadecimal SHA-256 of a blob's bytes."""
