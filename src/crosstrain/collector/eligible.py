"""Which shapes can be submitted at all. Pure.

A dry run is no proof: a walltime over the partition's limit, a partition that is down and limits on running jobs pass it, and
the job then waits for ever. So shapes are held against what the site says of partitions, QoS and associations first. What is
not known forbids nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from crosstrain.batch.readings import Limits, PartitionLimits
from crosstrain.batch_section import BatchSection
from crosstrain.domain.plural import counted
from crosstrain.placement.shape import Shape, time_limit


@dataclass(frozen=True, slots=True)
class Rules:
    """What a site says of itself. None: it could not be asked, or did not answer.

    Attributes:
        partitions: with all their limits.
        qos: of the site.
        associations: of this user.
    """

    partitions: Sequence[PartitionLimits] | None = None
    qos: Sequence[Limits] | None = None
    associations: Sequence[Limits] | None = None


def why_not(shape: Shape, section: BatchSection, rules: Rules) -> list[str]:
    """Reasons why a job of this shape would be refused or wait for ever; none if nothing is known against it."""
    return [*_partition(shape, rules), *_qos(shape, section, rules), *_association(shape, section, rules)]


def most_queued(section: BatchSection, rules: Rules) -> int:
    """Jobs that may be in the queue at once, by the run file and by the limits of QoS and association."""
    limits = [*_named_qos(section, None, rules), *_own_associations(section, rules)]
    return max(1, min([section.max_queued, *(limit.max_submit for limit in limits if limit.max_submit)]))


def _partition(shape: Shape, rules: Rules) -> Iterator[str]:
    if not rules.partitions:
        return
    found = next((each for each in rules.partitions if each.partition == shape.partition), None)
    if found is None:
        names = ", ".join(sorted(each.partition for each in rules.partitions))
        yield f"there is no partition {shape.partition}; found {names}"
        return
    if found.state.upper() not in ("UP", "UNKNOWN"):
        yield f"partition {found.partition} is {found.state}"
    if found.max_time_s is not None and shape.walltime_s > found.max_time_s:
        yield f"partition {found.partition} allows {time_limit(found.max_time_s)}"
    most = min((limit for limit in (found.nodes, found.max_nodes) if limit is not None), default=None)
    if most is not None and shape.nodes > most:
        yield f"partition {found.partition} allows {counted(most, 'node')}"
    if found.min_nodes is not None and shape.nodes < found.min_nodes:
        yield f"partition {found.partition} wants {counted(found.min_nodes, 'node')} or more"


def _qos(shape: Shape, section: BatchSection, rules: Rules) -> Iterator[str]:
    if section.qos and rules.qos and section.qos not in {each.name for each in rules.qos}:
        yield f"there is no QoS {section.qos}"
    for limit in _named_qos(section, shape.partition, rules):
        yield from _within(shape, limit, f"QoS {limit.name}")


def _association(shape: Shape, section: BatchSection, rules: Rules) -> Iterator[str]:
    if rules.associations is None:
        return
    own = _own_associations(section, rules)
    if section.account and rules.associations and not own:
        yield f"this user has no association with the account {section.account}"
    if section.qos and own and all(limit.qos and section.qos not in limit.qos for limit in own):
        yield f"the account may not use QoS {section.qos}"
    for limit in own:
        account, _, partition = limit.name.partition("/")
        if not partition or partition == shape.partition:
            yield from _within(shape, limit, f"the account {account}")


def _named_qos(section: BatchSection, partition: str | None, rules: Rules) -> list[Limits]:
    """The job's QoS, and its partition's."""
    found = [each.qos for each in rules.partitions or () if each.partition == partition]
    names = {section.qos, *found} - {None}
    return [each for each in rules.qos or () if each.name in names]


def _own_associations(section: BatchSection, rules: Rules) -> list[Limits]:
    found = list(rules.associations or ())
    return [each for each in found if section.account is None or each.name.partition("/")[0] == section.account]


def _within(shape: Shape, limit: Limits, who: str) -> Iterator[str]:
    if limit.max_wall_s is not None and shape.walltime_s > limit.max_wall_s:
        yield f"{who} allows {time_limit(limit.max_wall_s)}"
    nodes = [each for each in (limit.max_nodes, limit.user_nodes, limit.group_nodes) if each is not None]
    if nodes and shape.nodes > min(nodes):
        yield f"{who} allows {counted(min(nodes), 'node')}"
    if limit.max_jobs == 0:
        yield f"{who} allows no jobs"
