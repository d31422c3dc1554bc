#!/bin/sh
# The MNIST columns of Kim et al. (arXiv 2306.11201): Table 1 (averaging, three
# alphas), Table 4 (FedAdam's server, alpha = 0.1) and Table 6 (FedProx,
# alpha = 0.01), a folder of runs each.
#
#   results/kim_mnist/run.sh DATA_FOLDER RUNS_FOLDER [ROUNDS [TABLES]]
#
# ROUNDS is the paper's 500 unless given, TABLES are "1 4 6". Rates are tuned on
# MNIST at alpha = 0.1 under averaging, which is that column of Table 1, and
# carried to all other columns; Tables 4 and 6 need the runs of Table 1. A fourth
# table, "published", has momentum and Adagrad in the columns of all three at the
# rates of the paper's released code, which are the presets' own.
set -eu
data=$1
folder=$2
rounds=${3:-500}
tables=${4:-1 4 6}
cd "$(dirname "$0")/../.."
. results/studies.sh

paper=kim2024/mnist_character
every=$((rounds < 20 ? 1 : 20))
mnist() { # name, flags
  name=$1
  shift
  study "$name" --total_rounds="$rounds" --rounds_per_eval=$every \
    --validation_split=test --select=validation_metric "$@"
}

best() { # client
  ${PYTHON:-python} benchmarks/step_studies.py "$folder/table_1/tuned" --best="$1"
}

# A table's columns: a sweep of what is not tuned, and one of each other client,
# at the rate that was best.
columns() { # endings of presets' names
  list=
  for column in "$@"; do list="$list delta_sgd_$column sps_$column"; done
  # shellcheck disable=SC2086
  mnist untuned --axis=preset="$(presets $paper $list)"
  for client in sgd sgd_decay sgdm sgdm_decay adam adagrad; do
    list=
    for column in "$@"; do
      # Tuning them was their column alpha_0.1.
      [ "$column" = alpha_0.1 ] || list="$list ${client}_$column"
    done
    # shellcheck disable=SC2086
    mnist "$client" --client_learning_rate="$(best "$client")" \
      --axis=preset="$(presets $paper $list)"
  done
}

# Clients of a published rate, a sweep a table.
published() { # table, endings of presets' names
  runs=$folder/published/table_$1
  shift
  list=
  for column in "$@"; do
    list="$list sgdm_$column sgdm_decay_$column adagrad_$column"
  done
  # shellcheck disable=SC2086
  mnist published --axis=preset="$(presets $paper $list)"
}

for table in $tables; do
  runs=$folder/table_$table
  case $table in
  1)
    mnist tuned --grid=$paper
    columns alpha_1 alpha_0.1 alpha_0.01
    ;;
  4) columns fedadam_alpha_0.1 ;;
  6) columns fedprox_alpha_0.01 ;;
  published)
    published 1 alpha_1 alpha_0.1 alpha_0.01
    published 4 fedadam_alpha_0.1
    published 6 fedprox_alpha_0.01
    ;;
  *)
    echo "$0: no table $table" >&2
    exit 2
    ;;
  esac
done
