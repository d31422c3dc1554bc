#!/bin/sh
# Both forms of Delta-SGD on MNIST at three Dirichlet alphas, 60 rounds.
#
#   results/smoothness_batch/run.sh DATA_FOLDER RUNS_FOLDER [ROUNDS]
set -eu
data=$1
runs=$2
cd "$(dirname "$0")/../.."
. results/studies.sh

study mnist --task=mnist_character --algorithm=delta_sgd --clients_per_round=10 \
  --client_epochs_per_round=1 --client_batch_size=64 --total_rounds="${3:-60}" \
  --rounds_per_eval=4 --num_validation_examples=5000 \
  --axis=smoothness_batch=same,successive \
  --axis=mnist_character_alpha=0.1,0.01,1
