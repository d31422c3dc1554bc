#!/bin/sh
# Private runs on Stack Overflow tags after Figures 1 and 2 of the FedAda2 paper
# (arXiv 2410.18117): noise multiplier 1, each method at the hyperparameters of
# its Table 3.
#
#   results/stackoverflow_tag_dp/run.sh DATA_FOLDER RUNS_FOLDER [FLAG...]
#
# In the environment LABELS=multiple takes all tags of a sentence and batches of
# 100 in place of the presets' one tag and batches of 32, SEEDS=0,1 adds a seed,
# ROUNDS=500 are the paper's rounds, and WORKERS is how many runs go at once.
# What was interrupted goes on when the script is started again.
set -eu
data=$1
runs=$2
shift 2
cd "$(dirname "$0")/../.."
labels=${LABELS:-single}
[ "$labels" = single ] || set -- --client_batch_size=100 "$@"
. results/studies.sh
study "tags_$labels" --axis=preset="$(presets fedada2/stackoverflow_tag \
  fedavg fedadagrad direct_joint joint_zero_init fedada2)" \
  --total_rounds="${ROUNDS:-40}" --stackoverflow_tag_labels="$labels" \
  --stackoverflow_tag_num_users=365 --stackoverflow_tag_vocab_size=1000 \
  --stackoverflow_tag_num_tags=100 --num_validation_examples=2000 \
  --rounds_per_eval=10 "$@"
