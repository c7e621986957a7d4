"""The published setting, a quarter of its corpus in a quarter of its time."""

from __future__ import annotations

from functools import cache

import pytest

from crosstrain.dashboard.tables import ledger_amounts, ledger_totals
from crosstrain.simulation.table3 import (
    DEPARTURES,
    Setting,
    Table3,
    draw_departures,
    equal_parts,
    proportional_parts,
    reproduce,
    static_split,
)

SMALL = Setting(673, 21_420)
PARTS = ("merged", "contributed", "leased", "lost", "shed")


@cache
def played(seed: int) -> Table3:
    return reproduce(seed, SMALL)


@pytest.mark.parametrize("seed", [0, 1])
def test_every_granted_block_is_accounted_for_and_none_is_in_the_model_twice(seed: int) -> None:
    found = played(seed)
    for site in found.ledger.sites:
        amounts = ledger_amounts(site)
        assert amounts["granted"] == sum(amounts[part] for part in PARTS)
    totals = ledger_totals(found.ledger.sites)
    assert totals["merged"] == found.ledger.blocks.merged <= SMALL.blocks
    assert found.ledger.problems == found.audit_problems == ()


@pytest.mark.parametrize("seed", [0, 1])
def test_departures_cost_their_leases_and_nothing_else(seed: int) -> None:
    found = played(seed)
    totals = ledger_totals(found.ledger.sites)
    assert totals["expiries"] <= DEPARTURES
    assert totals["entries"] == len(found.ledger.sites) + DEPARTURES
    assert 0 < totals["lost"] < 17 * DEPARTURES + 17
    assert totals["shed"] == 0


@pytest.mark.parametrize("seed", [0, 1])
def test_leases_cover_more_than_a_split_into_thirds_and_all_of_it_sooner_than_any_split(seed: int) -> None:
    found = played(seed)
    assert found.ledger.blocks.merged > found.equal.total
    assert found.ledger.blocks.merged >= found.proportional.total
    assert found.leased_hours < found.proportional.hours < found.equal.hours


def test_the_same_seed_is_the_same_story() -> None:
    assert played(0) == reproduce(0, SMALL)
    assert played(0).ledger != played(1).ledger


def test_the_full_setting_is_the_published_one() -> None:
    assert Setting() == Setting(2692, 85_680)
    departures = draw_departures(3, Setting().seconds)
    assert len(departures) == 4
    assert all(departure.at_s + departure.away_s < Setting().seconds for departure in departures)


def test_parts_of_a_split_are_the_whole_corpus() -> None:
    assert list(equal_parts(2692).values()) == [897, 898, 897]
    assert list(proportional_parts(2692).values()) == [1559, 850, 283]


def test_a_split_covers_what_each_site_can_of_its_own_part() -> None:
    split = static_split({"far": 10, "near": 10}, {"far": 30, "near": 5}, seconds=3600)
    assert (dict(split.covered), split.total) == ({"far": 10, "near": 5}, 15)
    assert split.hours == 2.0
