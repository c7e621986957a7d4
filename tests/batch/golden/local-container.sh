#!/bin/bash

# Written by crosstrain for one item of its plan; changes here are not read back.
set -eu
export CROSSTRAIN_END_TIME="${CROSSTRAIN_LOCAL_END_TIME:-$(($(date +%s) + 7260))}"
export CROSSTRAIN_PLAN_ITEM=plan7-lumi-1
cd -- '/scratch/my run'
exec apptainer exec --rocm image.sif crosstrain site 'my run.toml' --name lumi
