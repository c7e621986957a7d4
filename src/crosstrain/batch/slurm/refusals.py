"""Slurm's error sentences, and whether asking again can help. Pure.

Slurm prints one sentence per error code (`slurm_strerror`); they are the same from 22.05 to 26.05. A sentence is found
anywhere in a line and without regard to case, because sites wrap the clients.
"""

from __future__ import annotations

import re
from dataclasses import replace

from crosstrain.batch.readings import Failure, Retry, Scope

_L, _M, _N = Retry.LATER, Retry.MAYBE, Retry.NEVER
_SHAPE, _SITE, _CALLER = Scope.SHAPE, Scope.SITE, Scope.CALLER

_SENTENCES: tuple[tuple[str, str, Retry, Scope], ...] = (
    # Nobody decided.
    ("unable to contact slurm controller", "controller_unreachable", _L, _SITE),
    ("rate limit exceeded", "rate_limited", _L, _SITE),
    ("socket timed out on send/recv", "controller_timeout", _L, _SITE),
    ("zero bytes were transmitted", "controller_timeout", _L, _SITE),
    ("connection timed out", "controller_timeout", _L, _SITE),
    ("communication connection failure", "controller_unreachable", _L, _SITE),
    ("communication shutdown failure", "controller_unreachable", _L, _SITE),
    ("message receive failure", "controller_timeout", _L, _SITE),
    ("message send failure", "controller_unreachable", _L, _SITE),
    ("unexpected message received", "controller_unreachable", _L, _SITE),
    ("standby mode", "controller_unreachable", _L, _SITE),
    ("problem talking to the database", "accounting_unreachable", _L, _SITE),
    ("connection refused", "controller_unreachable", _L, _SITE),
    ("temporarily unable to accept job", "try_again", _L, _SITE),
    ("resource temporarily unavailable", "try_again", _L, _SITE),
    ("can't be reached now", "cluster_unreachable", _M, _SITE),
    ("no eligible clusters", "cluster_unreachable", _M, _SITE),
    ("could not establish a configuration source", "no_config", _N, _SITE),
    ("unable to process configuration file", "no_config", _N, _SITE),
    ("resolve_ctls_from_dns_srv", "no_config", _N, _SITE),
    ("unable to establish configuration source", "no_config", _N, _SITE),
    ("munge encode failed", "authentication", _L, _SITE),
    ("protocol authentication error", "authentication", _L, _SITE),
    ("authentication credential", "authentication", _L, _SITE),
    ("incompatible versions of client and server", "version", _N, _SITE),
    ("unable to connect to database", "accounting_unreachable", _L, _SITE),
    ("slurm accounting storage is disabled", "accounting_off", _N, _SITE),
    ("no space left on device", "controller_disk", _L, _SITE),
    ("i/o error writing script/environment", "controller_disk", _L, _SITE),
    # The request.
    ("invalid partition name specified", "bad_partition", _N, _SHAPE),
    ("invalid partition specified", "bad_partition", _N, _SHAPE),
    ("no partition specified or system default partition", "bad_partition", _N, _SHAPE),
    ("requested time limit is invalid", "time_limit", _N, _SHAPE),
    ("invalid time-min specification", "time_limit", _N, _SHAPE),
    ("node count specification invalid", "node_count", _N, _SHAPE),
    ("more processors requested than permitted", "node_count", _N, _SHAPE),
    ("cpu count specification invalid", "node_count", _N, _SHAPE),
    ("task count specification invalid", "node_count", _N, _SHAPE),
    ("job size specification needs to be provided", "node_count", _N, _SHAPE),
    ("requested node configuration is not available", "node_config_unavailable", _M, _SHAPE),
    ("requested topology configuration is not available", "node_config_unavailable", _M, _SHAPE),
    ("requested partition configuration not available", "node_config_unavailable", _M, _SHAPE),
    ("memory required by task is not available", "bad_resource", _N, _SHAPE),
    ("required node not available", "nodes_unavailable", _L, _SHAPE),
    ("requested nodes are busy", "nodes_unavailable", _L, _SHAPE),
    ("immediate execution impossible", "nodes_unavailable", _L, _SHAPE),
    ("can not start immediately", "nodes_unavailable", _L, _SHAPE),
    ("maintenance reservation", "nodes_unavailable", _L, _SHAPE),
    ("required partition not available", "partition_unavailable", _L, _SHAPE),
    ("partition in down state", "partition_unavailable", _L, _SHAPE),
    ("requested nodes not in this partition", "bad_node", _N, _SHAPE),
    ("invalid node name specified", "bad_node", _N, _SHAPE),
    ("invalid feature specification", "bad_feature", _N, _SHAPE),
    ("invalid preferred feature", "bad_feature", _N, _SHAPE),
    ("generic resource (gres) specification", "bad_resource", _N, _SHAPE),
    ("invalid gres specification", "bad_resource", _N, _SHAPE),
    ("trackable resource (tres) specification", "bad_resource", _N, _SHAPE),
    ("unsupported by configured selecttype", "bad_resource", _N, _SHAPE),
    ("license specification", "bad_license", _N, _SHAPE),
    ("licenses currently unavailable", "nodes_unavailable", _L, _SHAPE),
    ("reservation is invalid", "bad_reservation", _N, _SHAPE),
    ("access denied to requested reservation", "bad_reservation", _N, _SHAPE),
    ("requested reservation", "reservation_unavailable", _L, _SHAPE),
    ("dependency problem", "bad_dependency", _N, _CALLER),
    ("circular job dependency", "bad_dependency", _N, _CALLER),
    ("job array specification", "bad_array", _N, _CALLER),
    # The account.
    ("violates accounting/qos policy", "policy_limit", _M, _SHAPE),
    ("qos usage threshold", "policy_limit", _M, _SITE),
    ("invalid account", "bad_account", _N, _SITE),
    ("unknown association", "bad_account", _N, _SITE),
    ("invalid qos", "bad_qos", _N, _SHAPE),
    ("invalid wckey", "bad_account", _N, _SITE),
    ("user's group not permitted", "access_denied", _N, _SHAPE),
    ("permission denied", "access_denied", _N, _SITE),
    ("invalid user id", "access_denied", _N, _SITE),
    ("maxjobcount limit reached", "queue_full", _L, _SITE),
    ("system submissions disabled", "submissions_disabled", _L, _SITE),
    ("presently disabled", "submissions_disabled", _L, _SITE),
    ("burst buffer", "burst_buffer", _M, _SHAPE),
    # Our own command.
    ("slurm_mem_per_cpu, slurm_mem_per_gpu", "environment", _N, _CALLER),
    ("mutually exclusive", "bad_option", _N, _CALLER),
    ("unable to open file", "bad_script", _N, _CALLER),
    ("batch script", "bad_script", _N, _CALLER),
    ("job script not specified", "bad_script", _N, _CALLER),
    ("does not look like a batch script", "bad_script", _N, _CALLER),
    ("environment is missing", "environment", _N, _CALLER),
    ("invalid --", "bad_option", _N, _CALLER),
    ("unrecognized option", "bad_option", _N, _CALLER),
    ("invalid option", "bad_option", _N, _CALLER),
    ("requires an argument", "bad_option", _N, _CALLER),
    ("invalid numeric value", "bad_option", _N, _CALLER),
    ("is not a valid node count", "bad_option", _N, _CALLER),
    ("invalid node count", "bad_option", _N, _CALLER),
    ("invalid field requested", "bad_option", _N, _CALLER),
    ("try \"sbatch --help\"", "bad_option", _N, _CALLER),
    ("invalid job id", "unknown_job", _N, _CALLER),
    ("unspecified error", "site_policy", _N, _SHAPE),
    ("command not found", "no_program", _N, _SITE),
)  # fmt: skip

KINDS = frozenset(kind for _, kind, _, _ in _SENTENCES)
"""All that a sentence stands for; what they mean: `batch.explanations`."""
UNREACHABLE = frozenset(
    {
        "controller_unreachable", "controller_timeout", "rate_limited", "try_again", "cluster_unreachable", "no_config",
        "authentication", "version", "accounting_unreachable", "accounting_off", "controller_disk", "timed_out",
        "no_program",
    }
)  # fmt: skip
"""Kinds that say that nobody decided on the request."""

_LOST_ANSWER = frozenset({"controller_timeout", "timed_out"})
_REASON = re.compile(r"(?:assoc|qos|partition)\w+|max\w+limit|jobheld\w+", re.IGNORECASE)
"""A limit's name alone on its line, as Slurm prints it before the general sentence."""
_NAMED_LIMIT = re.compile(r"\b(?:assoc|qos)(?:max|min|grp)\w+", re.IGNORECASE)


def failure_in(text: str) -> Failure | None:
    """The failure that a line speaks of, None for a line without a known sentence."""
    lower = text.lower()
    for sentence, kind, retry, scope in _SENTENCES:
        if sentence in lower:
            return Failure(kind, retry, scope, submission_may_exist=kind in _LOST_ANSWER)
    return None


def is_reason(text: str) -> bool:
    """Whether a line is the bare name of a limit, such as QOSMinNode."""
    return _REASON.fullmatch(text.strip().rstrip(".:")) is not None


def reason_in(text: str) -> str | None:
    """The name of a limit in the middle of a sentence, for sites whose plugins and wrappers put it there."""
    found = _NAMED_LIMIT.search(text)
    return found[0] if found else None


def with_detail(failure: Failure, detail: str | None) -> Failure:
    """The failure with the site's own words, which for a limit decide whether it passes."""
    if detail is None:
        return failure
    failure = replace(failure, detail=detail)
    if failure.kind != "policy_limit":
        return failure
    retry, scope = _limit(detail.lower())
    return replace(failure, retry=retry, scope=scope)


def _limit(reason: str) -> tuple[Retry, Scope]:
    if "submit" in reason or re.search(r"(?:max|grp)jobs", reason):
        # Own jobs in the queue; it passes as they leave.
        return _L, _SITE
    if "minutes" in reason or "billing" in reason or "threshold" in reason or "runmin" in reason:
        # Spent allocation: until the next period, or for ever.
        return _M, _SITE
    if is_reason(reason):
        # A limit that a submission is tested against is one that this job exceeds alone.
        return _N, _SHAPE
    return _M, _SHAPE
