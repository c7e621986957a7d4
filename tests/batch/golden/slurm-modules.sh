#!/bin/bash
#SBATCH --job-name=plan7-north-3
#SBATCH --nodes=1
#SBATCH --time=240
#SBATCH --partition=gpu_h100
#SBATCH --account=pool
#SBATCH --qos=normal
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=64
#SBATCH --ntasks-per-node=1
#SBATCH --signal=B:USR1@300
#SBATCH --open-mode=append

# Written by crosstrain for one item of its plan; changes here are not read back.
set -eu
export CROSSTRAIN_END_TIME="${SLURM_JOB_END_TIME:-$(($(date +%s) + 14400))}"
export CROSSTRAIN_PLAN_ITEM=plan7-north-3
cd -- /scratch/run
set +u
module load 2024
module load PyTorch/2.4
set -u
source .venv/bin/activate
exec crosstrain site RUN.toml --name north
