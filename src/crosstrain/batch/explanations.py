"""What a failure means and what to do about it, in words, for every kind of any batch system. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from crosstrain.batch.readings import Failure


@dataclass(frozen=True, slots=True)
class Explanation:
    """Of one kind of failure.

    Attributes:
        means: one sentence.
        fix: what to do, without a full stop.
    """

    means: str
    fix: str


_LATER = "nothing: ask again later"
_SCHEDULER = "see whether the scheduler answers other commands on this node, then ask again later"

EXPLANATIONS: dict[str, Explanation] = {
    kind: Explanation(means, fix)
    for kind, means, fix in (
        # Nobody decided.
        ("controller_unreachable", "The scheduler's server does not answer, or is in stand-by.", _SCHEDULER),
        ("controller_timeout", "The scheduler's server took too long; what was asked may have been done.",
         "look for the job by its name before submitting again"),
        ("timed_out", "The command was ended at its deadline; what was asked may have been done.",
         "look for the job by its name before submitting again; `batch.deadline_s` sets the deadline"),
        ("rate_limited", "The scheduler refuses requests that come too fast.", "ask less often: `batch.probe_every_s`"),
        ("try_again", "The scheduler takes no jobs at the moment.", _LATER),
        ("cluster_unreachable", "No cluster of that name answers.",
         "see the name of the cluster, and `sacctmgr show cluster`"),
        ("no_config", "The scheduler's commands find no configuration on this machine.",
         "run it on a login node of the site, or set SLURM_CONF"),
        ("authentication", "The scheduler does not believe who asks.",
         "on a login node nothing but to tell the site; elsewhere munge or the clock is wrong"),
        ("version", "The commands and the scheduler's server are of versions that do not fit.",
         "use the site's own commands: see PATH and loaded modules"),
        ("accounting_unreachable", "The accounting database does not answer.", _LATER),
        ("accounting_off", "The site keeps no accounting.",
         "nothing: waits are then known from own jobs alone"),
        ("empty_output", "Neither header nor rows came: accounting is off, or not for this user.",
         "nothing: waits are then known from own jobs alone"),
        ("controller_disk", "The scheduler's server has no room for the job script.", "tell the site; ask again later"),
        ("no_program", "The scheduler's command is not there.",
         "run it where the command is, load its module, or set `batch.prefix`"),
        # The shape.
        ("bad_partition", "There is no such partition or queue, or none was named and the site has no default.",
         "`sinfo -s` or `qstat -Q` lists them; correct `partition` of the shape"),
        ("partition_unavailable", "The partition or queue is down, or takes no jobs now.", _LATER),
        ("time_limit", "The walltime is longer than the partition allows, or is none.",
         "ask for less: `scontrol show partition` has MaxTime"),
        ("node_count", "The partition cannot give so many nodes, tasks or CPUs to one job.",
         "ask for fewer: `scontrol show partition` has MinNodes and MaxNodes"),
        ("node_config_unavailable", "No set of nodes fits right now: because some are drained or reserved, or because none ever does.",
         "ask again later; if it stays, compare GPUs, memory and nodes with `sinfo -N -o '%N %G %m %T'`"),
        ("nodes_unavailable", "The nodes are busy, down or reserved right now.", _LATER),
        ("bad_node", "A node was named that is not there, or not in the partition.",
         "correct the option that names it"),
        ("bad_feature", "No node has the feature that was asked for.",
         "`sinfo -o '%P %f'` lists features; correct the option `--constraint`"),
        ("bad_resource", "GPUs, memory or other resources were asked for that no node has, or by a name that is unknown here.",
         "`sinfo -o '%P %G %m'` or `pbsnodes -a` lists what there is; correct `gpus` or `options`"),
        ("bad_license", "There is no such licence.", "correct the option `--licenses`"),
        ("bad_reservation", "There is no such reservation, or it is not for this user.",
         "`scontrol show reservation` lists them; correct the option, or ask the site for access"),
        ("reservation_unavailable", "The reservation does not hold now, or is full.", _LATER),
        ("burst_buffer", "The burst buffer refuses.", "see the site's pages on burst buffers; ask again later"),
        # The account.
        ("policy_limit", "A limit of account, QoS or queue refuses the job.",
         "`detail` has the limit's name where the site tells it: a smaller or shorter job, or wait for own jobs to end"),
        ("bad_account", "The account is unknown, or is not valid for this partition.",
         "`sacctmgr show assoc user=$USER` lists yours; correct `batch.account`"),
        ("bad_qos", "The QoS is unknown, or not for this account.",
         "`sacctmgr show assoc user=$USER format=account,qos` lists yours; correct `batch.qos`"),
        ("access_denied", "This user or group may not do that here.",
         "another partition or account, or ask the site"),
        ("queue_full", "The scheduler holds as many jobs as it takes.", _LATER),
        ("submissions_disabled", "The site takes no jobs at the moment.", "see the site's announcements; ask again later"),
        ("site_policy", "A rule of the site refuses the job.",
         "`detail` has its words where it gave any; the site's documentation has the rule"),
        # The command.
        ("environment", "Variables of the job around it contradict the request.",
         "start the nested command with all SLURM_*, SBATCH_*, SRUN_*, SALLOC_* removed, except SLURM_CONF and SLURM_JWT"),
        ("bad_option", "An option of the command is unknown, or its value makes no sense.",
         "correct `batch.options`; if none is set, report it with this output"),
        ("bad_script", "The job script is missing, or is none.",
         "is the site's directory visible where the scheduler's command runs?"),
        ("bad_dependency", "The job that it comes after is unknown by now, or depends on itself.",
         "submit again: the dependency is made from what is queued then"),
        ("bad_array", "The array of the job is none, or is too large.", "correct the option `--array`"),
        ("unknown_job", "The scheduler does not know the job any more, or never did.",
         "see accounting: `sacct -j JOB` or `qstat -x JOB`"),
        # Nothing that is known.
        ("no_verdict", "The output says neither yes nor no.",
         "look for the job by its name; please report the output with that of `crosstrain parse`"),
        ("other", "The scheduler said no in words that are not known here.",
         "`detail` has them; please report the output with that of `crosstrain parse`"),
        ("unknown", "The command failed for a reason that is not known here.",
         "`detail` has its words; please report the output with that of `crosstrain parse`"),
    )
}  # fmt: skip
"""By `Failure.kind`."""

_LIMITS = (
    ("maxsubmit", "As many own jobs as allowed are in the queue.", "wait until some of them have ended"),
    ("maxjobs", "As many own jobs as allowed are in the queue.", "wait until some of them have ended"),
    ("minnode", "The job is smaller than the QoS allows.", "more nodes, or another `batch.qos`"),
    ("wall", "The walltime is longer than account or QoS allow.", "a shorter shape, or another `batch.qos`"),
    ("timelimit", "The walltime is longer than the partition allows.", "a shorter shape"),
    ("minutes", "The allocation does not pay for the job.", "a smaller shape, or ask for more of the allocation"),
    ("billing", "The allocation does not pay for the job.", "a smaller shape, or ask for more of the allocation"),
    ("node", "The job has more nodes than account or QoS allow.", "fewer nodes, or another `batch.qos`"),
    ("gres", "The job has more GPUs than account or QoS allow.", "fewer GPUs, or another `batch.qos`"),
    ("cpu", "The job has more CPUs than account or QoS allow.", "fewer nodes, or another `batch.qos`"),
)
"""Parts of the names of Slurm's limits, in the order in which they are looked for."""


def explained(failure: Failure) -> Explanation:
    """What a failure means; of a limit that is named, which one it is."""
    if failure.kind == "policy_limit" and failure.detail is not None:
        name = failure.detail.lower()
        for part, means, fix in _LIMITS:
            if part in name:
                return Explanation(means, fix)
    return EXPLANATIONS.get(failure.kind, EXPLANATIONS["unknown"])
