#!/bin/bash
#SBATCH --job-name=plan7-lumi-1
#SBATCH --nodes=1
#SBATCH --time=121
#SBATCH --partition=standard-g
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --ntasks-per-node=1
#SBATCH --signal=B:USR1@300
#SBATCH --open-mode=append

# Written by crosstrain for one item of its plan; changes here are not read back.
set -eu
export CROSSTRAIN_END_TIME="${SLURM_JOB_END_TIME:-$(($(date +%s) + 7260))}"
export CROSSTRAIN_PLAN_ITEM=plan7-lumi-1
cd -- '/scratch/my run'
exec apptainer exec --rocm image.sif crosstrain site 'my run.toml' --name lumi
