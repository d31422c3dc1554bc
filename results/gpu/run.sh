#!/usr/bin/env bash
# What is measured on a GPU, in a quarter of an hour: tests of the runtime,
# rounds beside their targets, equal bits, and pfl-research's CIFAR-10 setting.
#
#   make gpu .venv/.installed-dev
#   DATA=data bash results/gpu/run.sh
#   DATA=data bash results/gpu/run.sh rounds bits
#
# From the project's folder, with CIFAR-10 in DATA. What fails is told, and the
# next part begins: tests, rounds, bits, pfl. Results are in OUTPUT, runs/gpu
# unless given.
set -uo pipefail
: "${DATA:?must be a folder with CIFAR-10}"
python=${PYTHON:-.venv/bin/python}
output=${OUTPUT:-runs/gpu}
# Several processes share the GPU.
export TF_FORCE_GPU_ALLOW_GROWTH=true
mkdir -p "$output"

tests() {
  timeout 240 "$python" -m pytest -q -n 8 tests/runtime/engine \
    tests/processes/test_lockstep.py >"$output/tests.txt" 2>&1
  tail -n 20 "$output/tests.txt"
}

rounds() {
  "$python" benchmarks/gpu.py --minutes=4 --output="$output" --verbose \
    2>"$output/rounds.log"
}

bits() {
  local -x TF_DETERMINISTIC_OPS=1
  rm -rf "$output/one" "$output/other"
  for name in one other; do
    timeout 60 "$python" main.py --total_rounds=20 \
      --root_output_dir="$output" --experiment_name="$name" \
      >"$output/$name.log" 2>&1
    cut -d, -f1-4 "$output/$name/metrics.csv" >"$output/$name.csv"
  done
  [ "$(wc -l <"$output/one.csv")" -gt 20 ] &&
    cmp "$output/one.csv" "$output/other.csv" &&
    echo 'Two runs have the same losses.'
  "$python" benchmarks/gpu.py --minutes=1.5 --models=digits,cnn \
    --output="$output/deterministic" --verbose 2>"$output/deterministic.log"
}

pfl() {
  time timeout 240 "$python" main.py \
    --preset=pfl2024/cifar10_image/fedavg_iid --cache_dir="$DATA" \
    --root_output_dir="$output" --experiment_name=pfl
}

for part in "${@:-tests rounds bits pfl}"; do
  for name in $part; do "$name"; done
done
