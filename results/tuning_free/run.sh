#!/bin/sh
# Methods that choose their own step size, as they come, beside FedAdam at
# published rates and FedAvg at the default rate: nothing is tuned.
#
#   SEEDS=0,1,2 results/tuning_free/run.sh DATA_FOLDER RUNS_FOLDER [ROUNDS]
#
# On scikit-learn's digits (200 rounds), EMNIST writers (60), MNIST with Dirichlet
# clients, alpha = 0.1 (60), and roles of Shakespeare (15). ROUNDS takes the place
# of each. Prodigy and DoG are run twice: with the first step of their papers, and
# with one of a hundredth (`..._start`), since every client begins anew in every
# round.
set -eu
folder=$1
runs=$2
rounds=${3:-}
cd "$(dirname "$0")/../.."
. results/studies.sh

for task in digits emnist_character mnist_character shakespeare_character; do
  data=$folder
  case $task in
  digits)
    data= # It reads no file.
    of_task= number=200 every=10
    ;;
  emnist_character)
    of_task=--client_batch_size=20 number=60 every=5
    ;;
  mnist_character)
    of_task="--mnist_character_alpha=0.1 --client_batch_size=64
      --num_validation_examples=5000"
    number=60 every=5
    ;;
  shakespeare_character)
    of_task="--client_batch_size=4 --num_validation_examples=2000"
    number=15 every=3
    ;;
  esac
  # FedAdam's published rates, those of EMNIST characters where there are none.
  case $task in
  shakespeare_character)
    published="--client_learning_rate=1 --server_learning_rate=0.01
      --server_adaptivity=0.001"
    ;;
  *)
    published="--client_learning_rate=0.0316228
      --server_learning_rate=0.00316228 --server_adaptivity=0.0001"
    ;;
  esac
  of_task="--task=$task $of_task --clients_per_round=10
    --client_epochs_per_round=1 --total_rounds=${rounds:-$number}
    --rounds_per_eval=$every --select=validation_metric"
  of() { # part of the study, flags
    part=$1
    shift
    study "${task}_$part" $of_task "$@"
  }
  of methods --axis=algorithm=fedavg,delta_sgd,fedsps,fedexp
  of clients --algorithm=fedavg \
    --axis=client_optimizer=prodigy,dog,schedule_free_sgd
  of prodigy_start --algorithm=fedavg --client_optimizer=prodigy --axis=d_0=0.01
  of dog_start --algorithm=fedavg --client_optimizer=dog --axis=r_epsilon=0.01
  of fedadam --algorithm=fedadam $published
done
