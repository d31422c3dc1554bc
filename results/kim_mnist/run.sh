#!/bin/sh
# The MNIST columns of Kim et al. (arXiv 2306.11201): Table 1 (eight clients,
# three alphas), Table 4 (FedAdam's server) and Table 6 (FedProx).
#
#   results/kim_mnist/run.sh DATA_FOLDER RUNS_FOLDER [ROUNDS [TUNING_ROUNDS]]
#
# ROUNDS is the paper's 500 unless given. Rates are tuned at alpha = 0.1 and used
# everywhere: on MNIST, and, if TUNING_ROUNDS is given, on CIFAR-10 as the paper
# tuned them, in so many of its 2,000 rounds. What a rate was tuned on is in the
# names: mnist_..., cifar_...
set -eu
data=$1
runs=$2
rounds=${3:-500}
tuning=${4:-0}
cd "$(dirname "$0")/../.."
. results/studies.sh

paper=kim2024/mnist_character
every=$((rounds < 20 ? 1 : 20))
mnist() { # name, flags
  name=$1
  shift
  study "$name" --total_rounds="$rounds" --rounds_per_eval=$every \
    --select=validation_metric "$@"
}

# What is not tuned, in all three tables.
mnist untuned --axis=preset="$(presets $paper \
  delta_sgd_alpha_1 delta_sgd_alpha_0.1 delta_sgd_alpha_0.01 \
  sps_alpha_1 sps_alpha_0.1 sps_alpha_0.01 \
  delta_sgd_fedadam_alpha_0.1 sps_fedadam_alpha_0.1 \
  delta_sgd_fedprox_alpha_0.01 sps_fedprox_alpha_0.01)"

tuned() { # what it was tuned on, client, rate
  mnist "$1_$2" --client_learning_rate="$3" --axis=preset="$(presets $paper \
    "$2_alpha_1" "$2_alpha_0.1" "$2_alpha_0.01" \
    "$2_fedadam_alpha_0.1" "$2_fedprox_alpha_0.01")"
}

best_of() { # name of a sweep
  ${PYTHON:-python} benchmarks/step_studies.py --best "$runs/$1"
}

for client in sgd sgd_decay sgdm sgdm_decay adam adagrad; do
  mnist "tune_mnist_$client" --grid=$paper/$client
  tuned mnist $client "$(best_of tune_mnist_$client)"
  if [ "$tuning" -gt 0 ]; then
    study "tune_cifar_$client" --grid=kim2024/cifar10_image/$client \
      --total_rounds="$tuning" --rounds_per_eval="$tuning" \
      --select=validation_metric
    tuned cifar $client "$(best_of tune_cifar_$client)"
  fi
done
