#!/bin/bash
#PBS -N plan7-lumi-1
#PBS -l select=1:ngpus=8
#PBS -l walltime=02:01:00
#PBS -q standard-g
#PBS --exclusive
#PBS -j oe
#PBS -r n

# Written by crosstrain for one item of its plan; changes here are not read back.
set -eu
export CROSSTRAIN_END_TIME="$(($(date +%s) + 7260))"
export CROSSTRAIN_PLAN_ITEM=plan7-lumi-1
cd -- '/scratch/my run'
exec apptainer exec --rocm image.sif crosstrain site 'my run.toml' --name lumi
