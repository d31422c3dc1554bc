#!/usr/bin/env bash
# All that is measured on a GPU, in a quarter of an hour: tests of the runtime,
# rounds beside their targets, equal bits, and pfl-research's CIFAR-10 setting.
#
#   make gpu .venv/.installed-dev
#   DATA=data bash results/gpu/run.sh
#
# From the project's folder, with CIFAR-10 in DATA. What fails is told, and the
# next part begins. Results are in OUTPUT, runs/gpu unless given.
set -uo pipefail
python=${PYTHON:-.venv/bin/python}
output=${OUTPUT:-runs/gpu}
runs=${RUNS:-runs}
mkdir -p "$output"

timeout 240 "$python" -m pytest -q -n 8 tests/runtime/engine \
  tests/processes/test_lockstep.py >"$output/tests.txt" 2>&1
tail -n 20 "$output/tests.txt"

"$python" benchmarks/gpu.py --minutes=4 --output="$output"

export TF_DETERMINISTIC_OPS=1
rm -rf "$runs/gpu_one" "$runs/gpu_other"
for name in one other; do
  "$python" main.py --total_rounds=20 --root_output_dir="$runs" \
    --experiment_name="gpu_$name" >"$output/$name.log" 2>&1
done
losses() { cut -d, -f1-4 "$runs/gpu_$1/metrics.csv"; }
cmp <(losses one) <(losses other) && echo 'Two runs have the same losses.'
"$python" benchmarks/gpu.py --minutes=1.5 --models=digits,cnn \
  --output="$output/deterministic"
unset TF_DETERMINISTIC_OPS

time timeout 240 "$python" main.py \
  --preset=pfl2024/cifar10_image/fedavg_iid --cache_dir="$DATA" \
  --root_output_dir="$runs" --experiment_name=gpu_pfl
