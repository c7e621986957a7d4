"""Letters in a directory: the mailbox and its relay."""

from __future__ import annotations

from crosstrain.domain.timeouts.circumstances import Circumstances
from crosstrain.domain.timeouts.row import Timeout, fixed

FIRST_LOOK_S = 0.02
LONGEST_LOOK_S = 2.0
LOOK_GROWTH = 1.5
RELAY_PULSE_S = 2.0
RELAY_SILENT_S = 15.0
SENDER_PULSE_S = 30.0
SENDER_GONE_S = 3600.0
FILE_LATE_S = 60.0
BLOB_KEPT_S = 600.0
CLEAN_EVERY_S = 60.0


def look_again_s(before_s: float) -> float:
    """The next pause between two looks into a mailbox in which nothing happened."""
    return min(LONGEST_LOOK_S, LOOK_GROWTH * before_s)


def of_mailboxes(_found: Circumstances) -> tuple[Timeout, ...]:
    """Site and relay, which share nothing else."""
    return (
        Timeout(
            "look into a mailbox",
            LONGEST_LOOK_S,
            f"{FIRST_LOOK_S:g} s, times {LOOK_GROWTH:g} while nothing happens, up to {LONGEST_LOOK_S:g} s",
            "quick while requests go to and fro; half an operation a second and file else, which no file system notices",
        ),
        fixed(
            "pulse of a relay",
            RELAY_PULSE_S,
            "also of what it says of a transfer: as often as a quiet mailbox is looked into",
        ),
        fixed(
            "a relay without a pulse",
            RELAY_SILENT_S,
            "it is away; shared file systems show a change within some seconds",
        ),
        fixed("renewal of a letter", SENDER_PULSE_S, "the relay forgets no request that is still waited for"),
        fixed(
            "a site that renewed nothing",
            SENDER_GONE_S,
            "its files go after an hour; one that was only stopped makes them again",
        ),
        fixed(
            "a file of which a letter tells",
            FILE_LATE_S,
            "NFS clients believe for so long that a name is not there (`acdirmax`)",
        ),
        fixed(
            "a blob that no site asks for", BLOB_KEPT_S, "sites that share a mailbox adopt a generation within minutes"
        ),
        fixed("look for files to remove", CLEAN_EVERY_S, "minutes decide, so a minute is soon enough"),
    )
