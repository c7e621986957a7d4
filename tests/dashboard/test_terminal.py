"""The view as plain text: what a log file, a pipe or a screen reader gets."""

from __future__ import annotations

import io

import pytest
from rich.console import Console, RenderableType
from tests.dashboard.statuses import (
    BEFORE_THE_FIRST_SITE,
    FINISHED,
    NOON,
    generation,
    site,
    status,
)

from crosstrain.dashboard.terminal import heldout_table, ledger_table, render
from crosstrain.wire.messages import BlockCounts, EventStatus, StatusReply

MANY = status(sites=tuple(site(f"site-{number:03}-with-a-long-name") for number in range(60)))


def text_of(picture: RenderableType, width: int, encoding: str = "utf-8") -> list[str]:
    """Lines as printed where nothing is known of a terminal, without the spaces that fill cells."""
    output = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    Console(file=output, width=width, _environ={}).print(picture)
    output.seek(0)
    return [line.rstrip() for line in output.read().splitlines()]


NARROW = """\
run demo ───────────────────────────────────────────────────────────────────────
round     4 of 16, from generation 3
trained   61,440 tokens in 60 steps, epoch 0
held out  perplexity 476.19 at generation 2  █▅▁  2,097.40 at 0
blocks    ██████████▓▓▓▓▒▒▒░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░
          █ 60 merged   ▓ 20 contributed   ▒ 20 leased   ░ 300 available

now       waiting for beta to contribute; at the cutoff the round closes without
          (until 12:00:45 UTC, in 45 s)

site    phase      lease                loss   merged   lost
────────────────────────────────────────────────────────────
alpha   training   ██████░░░░░░ 10/20   5.25       30      0
beta    away       -                       -       30      7

alpha  training 10 of 20 (lease 3, 5 of 10 blocks)
beta   not heard of; it may be queued, ended or cut off

Last events
11:59:51  granted  alpha  a full inner phase is 10 blocks
"""

WIDE = """\
site    phase      lease                loss   merged   lost   doing
───────────────────────────────────────────────────────────────────────────────────────────────────────────────
alpha   training   ██████░░░░░░ 10/20   5.25       30      0   training 10 of 20 (lease 3, 5 of 10 blocks)
beta    away       -                       -       30      7   not heard of; it may be queued, ended or cut off
"""


def test_at_80_columns() -> None:
    assert text_of(render(status()), 80) == NARROW.splitlines()


def test_at_120_columns_each_site_has_one_line() -> None:
    lines = text_of(render(status()), 120)
    start = next(number for number, line in enumerate(lines) if line.startswith("site "))
    assert lines[start : start + 4] == WIDE.splitlines()


@pytest.mark.parametrize("width", [40, 80, 120, 200])
@pytest.mark.parametrize("reply", [status(), BEFORE_THE_FIRST_SITE, FINISHED, MANY])
def test_nothing_is_wider_than_the_terminal(reply: StatusReply, width: int) -> None:
    lines = text_of(render(reply), width)
    assert max(map(len, lines)) <= width
    assert lines[0].startswith("run demo")


def test_ascii_output_has_ascii_pictures() -> None:
    lines = text_of(render(status()), 80, "ascii")
    assert "blocks    ##########++++---....................................................." in lines
    assert any("######...... 10/20" in line for line in lines)


@pytest.mark.parametrize(("height", "below", "shown"), [(60, 0, 8), (30, 0, 8), (30, 4, 6), (24, 0, 4), (10, 0, 0)])
def test_events_are_what_gives_way_on_a_low_terminal(height: int, below: int, shown: int) -> None:
    events = tuple(EventStatus(at=NOON, kind="granted", site="alpha", text=f"event {number}") for number in range(20))
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, color_system=None, width=80, height=height, _environ={})
    console.print(render(status(events=events), below))
    assert output.getvalue().count("event 1") == shown
    assert ("event 19" in output.getvalue()) == (shown > 0)
    if shown:
        assert output.getvalue().count("\n") <= height - below


def test_before_the_first_site() -> None:
    lines = text_of(render(BEFORE_THE_FIRST_SITE), 80)
    assert "round     no generation yet, 16 rounds planned" in lines
    assert "held out  not measured yet" in lines
    assert "now       waiting for a site to make generation 0" in lines
    assert "No site has come yet." in lines


def test_the_end_says_why() -> None:
    lines = text_of(render(FINISHED), 80)
    assert "round     generation 16 of 16" in lines
    assert "finished  all 16 rounds are done" in lines


def test_the_bar_is_of_the_open_epoch() -> None:
    counts = BlockCounts(total=1200, available=300, leased=0, contributed=0, merged=900)
    lines = text_of(render(status(epoch=2, blocks=counts)), 80)
    assert any("█ 100 merged" in line and "░ 300 available" in line for line in lines)


def test_bytes_of_an_upload_are_not_steps_of_a_lease() -> None:
    uploading = site("alpha", phase="uploading", done=1_000_000, total=4_000_000, doing="uploading")
    assert "alpha   uploading   10 blocks   5.25       30      0" in text_of(render(status(sites=(uploading,))), 80)


def test_sentences_from_elsewhere_cannot_draw() -> None:
    hostile = "[red]up\x1b[2J\x07 and\r\ndown[/red]"
    event = EventStatus(at=NOON, kind="refused", site="alpha", text=hostile)
    lines = text_of(render(status(waiting=hostile, sites=(site("alpha", doing=hostile),), events=(event,))), 80)
    assert "\x1b" not in "".join(lines)
    assert sum("[red]up [2J and down[/red]" in line for line in lines) == 3


LEDGER = """\
Blocks by site
site   ranks  RTT ms  entries  grants  granted  merged  lost  shed  expiries
────────────────────────────────────────────────────────────────────────────
alpha      1    12.3        1       4       40      30     0     0         0
beta       1       -        1       4       40      30     7     0         1

total      2                2       8       80      60     7     0         1
"""


def test_the_ledger_table_sums_up() -> None:
    assert text_of(ledger_table(status().sites), 80) == LEDGER.splitlines()


def test_tables_of_nothing() -> None:
    assert text_of(ledger_table(BEFORE_THE_FIRST_SITE.sites), 80)[-1].split() == ["total", *"00000000"]
    assert len(text_of(heldout_table(BEFORE_THE_FIRST_SITE), 80)) == 3


def test_the_heldout_table_has_a_dash_for_what_is_not_measured() -> None:
    lines = text_of(heldout_table(status(generations=(generation(0, 2097.4), generation(1, None)))), 80)
    assert lines[-2].split() == ["0", "0", "0", "-", "7.6500", "2,097.40"]
    assert lines[-1].split() == ["1", "20", "20,480", "2", "-", "-"]
