#!/bin/sh
# The five server methods of Reddi et al., arXiv 2003.00295, at the rates of its
# Tables 8 and 9, on the same clients in the same rounds from the same weights.
#
#   results/reproduction_reddi2021/run.sh DATA_FOLDER RUNS_FOLDER TASK ROUNDS \
#     [FLAG...]
#
# What was interrupted goes on when the script is started again.
set -eu
data=$1
runs=$2
task=$3
rounds=$4
shift 4
cd "$(dirname "$0")/../.."
presets=
for method in fedavg fedavgm fedadagrad fedadam fedyogi; do
  presets=$presets,reddi2021/$task/$method
done
${PYTHON:-python} main.py sweep --workers=0 --axis=seed="${SEEDS:-0}" \
  --axis=preset="${presets#,}" --total_rounds="$rounds" \
  --num_validation_examples=2000 --rounds_per_eval=5 \
  --rounds_per_checkpoint=20 --cache_dir="$data" --root_output_dir="$runs" \
  --experiment_name="$task" "$@"
