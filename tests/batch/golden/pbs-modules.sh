#!/bin/bash
#PBS -N plan7-north-3
#PBS -l select=1:ncpus=64:ngpus=4
#PBS -l walltime=04:00:00
#PBS -q gpu_h100
#PBS -A pool
#PBS -j oe
#PBS -r n

# Written by crosstrain for one item of its plan; changes here are not read back.
set -eu
export CROSSTRAIN_END_TIME="$(($(date +%s) + 14400))"
export CROSSTRAIN_PLAN_ITEM=plan7-north-3
cd -- /scratch/run
set +u
module load 2024
module load PyTorch/2.4
set -u
source .venv/bin/activate
exec crosstrain site RUN.toml --name north
