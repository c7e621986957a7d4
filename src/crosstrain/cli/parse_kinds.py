"""The table of kinds that `crosstrain parse` knows."""

from __future__ import annotations

from crosstrain.cli import parse_others, parse_slurm
from crosstrain.cli.parse_documents import Reader

KINDS: dict[str, Reader] = {
    "testonly": parse_slurm.testonly,
    "submit": parse_slurm.submit,
    "squeue": parse_slurm.squeue,
    "squeue_start": parse_slurm.squeue,
    "sacct": parse_slurm.sacct,
    "sinfo": parse_slurm.sinfo,
    "scontrol_partition": parse_slurm.scontrol_partition,
    "scontrol_reservation": parse_slurm.scontrol_reservation,
    "sacctmgr_qos": parse_slurm.sacctmgr_qos,
    "sacctmgr_assoc": parse_slurm.sacctmgr_assoc,
    "pbs_submit": parse_others.pbs_submit,
    "pbs_qstat_f": parse_others.pbs_qstat_f,
    "pbs_qstat_T": parse_others.pbs_qstat_t,
    "moab_showstart": parse_others.moab_showstart,
    "lsf_bjobs": parse_others.lsf_bjobs,
    "flux_submit": parse_others.flux_submit,
    "flux_json": parse_others.flux_json,
}
"""Every kind of output that is read, and how."""
