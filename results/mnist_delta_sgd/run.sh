#!/bin/sh
# Clients that are tuned on one Dirichlet alpha and reused on two others, beside
# Delta-SGD and SPS, which are not tuned: Table 1 of Kim et al. on MNIST.
#
#   results/mnist_delta_sgd/run.sh DATA_FOLDER RUNS_FOLDER [ROUNDS [SEEDS]]
#
# ROUNDS (the paper's 500) and SEEDS (0) are the same for all; SEEDS are numbers
# with commas between. What was interrupted goes on when the script is started
# again. The rates of the paper's grid are tried at alpha = 0.1.
set -eu
data=$1
runs=$2
rounds=${3:-500}
seeds=${4:-0}
cd "$(dirname "$0")/../.."

sweep() { # name, flags
  name=$1
  shift
  ${PYTHON:-python} main.py sweep --experiment_name="$name" \
    --root_output_dir="$runs" --workers=0 \
    --task=mnist_character --cache_dir="$data" --clients_per_round=10 \
    --client_epochs_per_round=1 --client_batch_size=64 \
    --total_rounds="$rounds" --rounds_per_eval=4 \
    --num_validation_examples=5000 --select=validation_metric "$@"
}

tuned() { # name, rates, flags
  name=$1
  rates=$2
  shift 2
  sweep "$name" --algorithm=fedavg "$@" --axis=mnist_character_alpha=0.1 \
    --axis=client_learning_rate="$rates" --axis=seed="$seeds"
  best=$(${PYTHON:-python} benchmarks/step_studies.py --best "$runs/$name")
  sweep "$name-reused" --algorithm=fedavg "$@" \
    --client_learning_rate="$best" --axis=mnist_character_alpha=0.01,1 \
    --axis=seed="$seeds"
}

sweep delta_sgd --algorithm=delta_sgd \
  --axis=smoothness_batch=same,successive \
  --axis=mnist_character_alpha=0.1,0.01,1 --axis=seed="$seeds"
sweep sps --algorithm=fedsps --axis=mnist_character_alpha=0.1,0.01,1 \
  --axis=seed="$seeds"
tuned sgd 0.01,0.05,0.1,0.5
tuned sgdm 0.01,0.05,0.1,0.5 --client_momentum=0.9
tuned adam 0.001,0.01,0.1 --client_optimizer=adam
tuned adagrad 0.001,0.01,0.1 --client_optimizer=adagrad
${PYTHON:-python} benchmarks/step_studies.py "$runs" \
  --output=results/mnist_delta_sgd
