#!/bin/sh
# Logistic regression on the five LIBSVM sets of Mukherjee et al. (arXiv
# 2307.06306): Figures 3(b) and 9, every method at the rates of Table 3.
#
#   SEEDS=0,1,2 results/mukherjee_libsvm/run.sh DATA_FOLDER RUNS_FOLDER [ROUNDS]
#
# ROUNDS is the paper's 500 unless given.
set -eu
data=$1
runs=$2
rounds=${3:-500}
cd "$(dirname "$0")/../.."
. results/studies.sh

paper=mukherjee2023/libsvm_logistic
for set in w8a a9a ijcnn1 phishing mushrooms; do
  study "$set" --total_rounds="$rounds" --rounds_per_eval=25 \
    --axis=preset="$(presets $paper "fedavg_$set" "fedams_$set" \
      "fedadam_$set" "feddecsps_$set")"
  # Of their step sizes, the third column of Figure 9.
  study "${set}_steps" --total_rounds="$rounds" --rounds_per_eval=25 \
    --record_step_sizes \
    --axis=preset="$(presets $paper "fedsps_$set" "fedsps_global_$set")"
done
