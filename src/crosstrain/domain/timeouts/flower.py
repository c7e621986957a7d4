"""Flower as the carrier of a mailbox."""

from __future__ import annotations

from crosstrain.domain.timeouts.circumstances import Circumstances
from crosstrain.domain.timeouts.row import Timeout, fixed

FLOWER_PULL_S = 0.25
FLOWER_PULLED_S = 0.2
FLOWER_LIST_S = 3.0
FLOWER_ANSWER_S = 2.0
FLOWER_REST_S = 5.0
FLOWER_STATUS_S = 10.0
FLOWER_TTL_S = 3600.0
FLOWER_LOOK_S = 0.5
FLOWER_GATHER_S = 0.2
FLOWER_SOON_S = 1.0
FLOWER_LINGER_S = 20.0
FLOWER_CONNECT_S = 60.0
FLOWER_STAY_S = 60.0


def of_flower(_found: Circumstances) -> tuple[Timeout, ...]:
    """Both apps."""
    return (
        fixed("pull of replies", FLOWER_PULL_S, "the SuperLink has no way to say that there are some"),
        fixed("replies just asked for", FLOWER_PULLED_S, "what takes longer is taken when it is there"),
        fixed("list of nodes", FLOWER_LIST_S, "as often as SuperNodes ask for messages"),
        fixed(
            "answer, before a node's next message",
            FLOWER_ANSWER_S,
            "a later one is in the message after",
        ),
        fixed(
            "a node that failed",
            FLOWER_REST_S,
            "also a SuperLink that took no message: one line of the log every few seconds",
        ),
        fixed(
            "the ServerApp's look at the run",
            FLOWER_STATUS_S,
            "and the answer to it: the end of a training is no hurry",
        ),
        fixed("a message without a reply", FLOWER_TTL_S, "a SuperLink notices much sooner that a node is gone"),
        fixed(
            "look of a ClientApp into its mailbox", FLOWER_LOOK_S, "it waits for a letter: it is not to come late to it"
        ),
        fixed(
            "second letter of a site",
            FLOWER_GATHER_S,
            "agent and heartbeats write at about the same time; one message then",
        ),
        fixed("letter, while an answer is on its way", FLOWER_SOON_S, "the answer goes with the next message"),
        fixed(
            "letter, while none is", FLOWER_LINGER_S, "default of `linger-s`: no start of a process every few seconds"
        ),
        fixed("the ServerApp's first answer", FLOWER_CONNECT_S, "default of `connect-s`, as for a site"),
        fixed("sites after the training", FLOWER_STAY_S, "default of `stay-s`: they measure the last generation"),
    )
