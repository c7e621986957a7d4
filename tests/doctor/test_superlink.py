"""A SuperLink of Flower, told from what else listens. Real ones of both protocols are asked in tests/system/test_flower.py."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest

from crosstrain.doctor.choice import choose
from crosstrain.doctor.finding import Level
from crosstrain.doctor.observations import Box
from crosstrain.doctor.superlink import SuperLinkSeen, judge_superlink, try_superlink
from crosstrain.errors import UsageError

THERE = SuperLinkSeen("superlink.example.org:9092", True, None, "ConnectTimeout", "", "it is away")


@pytest.mark.parametrize(
    ("seen", "level", "words"),
    [
        (replace(THERE, http_status=405), Level.OK, "by HTTP"),
        (replace(THERE, grpc_status="UNAUTHENTICATED", grpc_error=""), Level.OK, "by gRPC"),
        (replace(THERE, grpc_status="UNIMPLEMENTED", grpc_error=""), Level.FAIL, "no Fleet API: UNIMPLEMENTED"),
        (replace(THERE, http_status=404), Level.FAIL, "HTTP 404"),
        (replace(THERE, grpc_error=None), Level.UNKNOWN, "without grpcio"),
        (THERE, Level.FAIL, "neither by HTTP (ConnectTimeout) nor by gRPC (it is away)"),
    ],
)
def test_superlink_is_told_from_what_else_answers(seen: SuperLinkSeen, level: Level, words: str) -> None:
    found = judge_superlink(seen)
    assert (found.level, bool(found.advice)) == (level, level is not Level.OK)
    assert words in found.sentence


@pytest.mark.parametrize("address", ["", "host", "host:port", "ftp://host:1", "me:secret@host:1", "host:1/v1"])
def test_address_without_host_or_port_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="not the address of a SuperLink"):
        try_superlink(address)


def test_nothing_that_listens_is_no_superlink(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        seen = try_superlink(f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert (seen.protocol, seen.http_status, seen.secure) == ("", None, False)
    assert "refused" in seen.http_error


def test_flower_is_taken_where_nothing_else_works() -> None:
    link = replace(THERE, http_status=405, secure=False)
    chosen = choose([], Box("/scratch/box", "nfs"), link)
    assert chosen is not None
    assert (chosen.way, chosen.lines[1]) == ("flower", 'url = "mailbox:/scratch/box"')
    assert "flower-supernode --insecure --superlink superlink.example.org:9092" in chosen.shell[0]
    assert choose([], Box("/scratch/box", "nfs", "it is of somebody else"), link) is None
    assert choose([], None, THERE) is None
