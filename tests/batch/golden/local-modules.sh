#!/bin/bash

# Written by crosstrain for one item of its plan; changes here are not read back.
set -eu
export CROSSTRAIN_END_TIME="${CROSSTRAIN_LOCAL_END_TIME:-$(($(date +%s) + 14400))}"
export CROSSTRAIN_PLAN_ITEM=plan7-north-3
cd -- /scratch/run
set +u
module load 2024
module load PyTorch/2.4
set -u
source .venv/bin/activate
exec crosstrain site RUN.toml --name north
