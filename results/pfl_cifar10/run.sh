#!/usr/bin/env bash
# Trains the presets of pfl-research's CIFAR-10 benchmark, and pfl-research
# itself on the same clients.
#
#   DATA=data PFL=.pfl/bin/python results/pfl_cifar10/run.sh iid
#   DATA=data PFL=.pfl/bin/python results/pfl_cifar10/run.sh alpha_0.1
#
# From the project's folder; 45 minutes and 65 to 80 minutes on two cores. PFL is the
# Python of an environment with pfl-research (benchmarks/runtime.py); without it
# only this project trains.
set -euo pipefail
form=$1
python=${PYTHON:-python}
runs=${RUNS:-runs}
$python main.py --preset="pfl2024/cifar10_image/fedavg_$form" \
  --cache_dir="$DATA" --root_output_dir="$runs" --experiment_name="pfl_$form"
if [ -n "${PFL:-}" ]; then
  $python benchmarks/pfl_cifar10.py prepare "$form" "$runs/pfl_$form.npz" \
    --cache_dir="$DATA"
  $PFL benchmarks/pfl_cifar10.py train "$runs/pfl_$form.npz" \
    "$runs/pfl_research_$form.csv"
fi
