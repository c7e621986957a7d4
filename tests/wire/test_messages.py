"""Messages are strict both ways: an unknown field or a number out of range is an error, not a guess."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from crosstrain.wire import messages

ALL = [
    each
    for _, each in inspect.getmembers(messages, inspect.isclass)
    if issubclass(each, messages.Message) and each is not messages.Message
]
LEASE = {"token": 1, "generation": 0, "global_step": 0, "spans": [[0, 0, 4]], "ttl_ms": 5}


@pytest.mark.parametrize("message", ALL, ids=lambda message: message.__name__)
def test_message_is_frozen_and_refuses_fields_it_does_not_know(message: type[BaseModel]) -> None:
    assert message.model_config["extra"] == "forbid"
    assert message.model_config["frozen"] is True


def test_problem_takes_documents_of_others() -> None:
    problem = messages.Problem.model_validate({"title": "Not Found", "instance": "/x"})
    assert (problem.title, problem.status, problem.kind) == ("Not Found", 500, "error")


@pytest.mark.parametrize(
    ("message", "document"),
    [
        (messages.BeatRequest, {"phase": "sleeping"}),
        (messages.BeatRequest, {"phase": "training", "done": -1}),
        (messages.BeatRequest, {"phase": "training", "done": 2**53}),
        (messages.BeatRequest, {"phase": "training", "loss": float("nan")}),
        (messages.BeatRequest, {"phase": "training", "rtt_ms": -1.0}),
        (messages.BeatRequest, {"phase": "training", "detail": "x" * 2001}),
        (messages.NextRequest, {}),
        (messages.NextRequest, {"holds": 0, "max_blocks": 0}),
        (messages.NextRequest, {"holds": 0, "resume": {**LEASE, "spans": [[0, 4, 4]]}}),
        (messages.NextRequest, {"holds": 0, "resume": {**LEASE, "spans": [[0, 0, 4], [0, 3, 5]]}}),
        (messages.NextRequest, {"holds": 0, "resume": {**LEASE, "spans": [[1, 0, 4], [0, 4, 5]]}}),
        (messages.InitialRequest, {"weights": "A" * 64}),
        (messages.InitialRequest, {"weights": "a" * 63}),
        (messages.InitialRequest, {"weights": "a" * 64 + "\n"}),
        (messages.EvaluationRequest, {"generation": 0, "nll": float("inf"), "tokens": 1}),
        (messages.EvaluationRequest, {"generation": 0, "nll": -0.5, "tokens": 1}),
        (messages.EvaluationRequest, {"generation": 0, "nll": 1.0, "tokens": 0}),
        (messages.EvaluationRequest, {"generation": 0, "nll": 1.0, "tokens": 2**63}),
        (messages.ReleaseRequest, {"session": 1}),
    ],
)
def test_message_out_of_range_is_refused(message: type[BaseModel], document: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        message.model_validate(document)


@pytest.mark.parametrize("name", ["", "-a", ".a", "a b", "a/b", "a" * 65, "ä", "a\n"])
def test_site_name_that_could_be_no_directory_is_refused(name: str) -> None:
    document = {
        "protocol": 1,
        "version": "0",
        "site": name,
        "ranks": 1,
        "windows_per_step": 1,
        "fingerprint": {
            "spec_digest": "a" * 64,
            "seed": 0,
            "windows": 1,
            "block_windows": 1,
            "seq_len": 1,
            "tokenizer_sha256": "a" * 64,
            "corpus_sha256": "a" * 64,
        },
    }
    messages.RegisterRequest.model_validate({**document, "site": "a-B_0.9"})
    with pytest.raises(ValidationError) as caught:
        messages.RegisterRequest.model_validate(document)
    assert [error["loc"] for error in caught.value.errors()] == [("site",)]


def test_lease_spans_that_touch_are_in_order() -> None:
    info = messages.LeaseInfo.model_validate({**LEASE, "spans": [[0, 0, 2], [0, 2, 5], [1, 0, 1]]})
    assert info.spans[-1] == (1, 0, 1)


def test_reply_may_name_more_sites_than_a_request_may_say() -> None:
    assert messages.Accepted(reason="x" * 5000).accepted
