#!/bin/sh
# FedSPS without tuning against FedAvg at five rates: logistic regression on
# MNIST, Table 2 of Mukherjee et al. (arXiv 2307.06306).
#
#   results/mnist_fedsps/run.sh DATA_FOLDER RUNS_FOLDER [ROUNDS]
#
# Every client takes part; 5 local steps on batches of 20; ROUNDS is the paper's
# 500 unless given.
set -eu
data=$1
runs=$2
rounds=${3:-500}
cd "$(dirname "$0")/../.."

sweep() { # name, flags
  name=$1
  shift
  ${PYTHON:-python} main.py sweep --experiment_name="$name" \
    --root_output_dir="$runs" --workers=0 \
    --task=mnist_logistic --cache_dir="$data" --clients_per_round=10 \
    --client_batch_size=20 --max_elements_per_client=100 \
    --total_rounds="$rounds" --rounds_per_eval=25 "$@"
}

sweep fedsps --algorithm=fedsps --axis=seed=0
sweep fedavg --algorithm=fedavg \
  --axis=client_learning_rate=0.0001,0.001,0.01,0.1,1
for run in "$runs"/fedsps/runs/*; do
  ${PYTHON:-python} benchmarks/step_studies.py "$runs" --all_rates \
    --step_sizes="$run" --output=results/mnist_fedsps
done
