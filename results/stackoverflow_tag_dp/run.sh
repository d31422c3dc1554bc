#!/bin/sh
# The FedAda2 paper's private runs on Stack Overflow tags (its Figures 1 and 2):
# noise multiplier 1, 40 of 400 users a round, 500 rounds, each method at the
# hyperparameters of its Table 3.
#
#   results/stackoverflow_tag_dp/run.sh DATA_FOLDER RUNS_FOLDER [FLAG...]
#
# A run that was interrupted goes on when the script is started again. The curves
# against rounds and against bytes are in RUNS_FOLDER's report.
set -eu
data=$1
runs=$2
shift 2
cd "$(dirname "$0")/../.."
for seed in 0 1 2; do
  for method in fedavg fedadagrad direct_joint joint_zero_init fedada2; do
    python main.py --preset="fedada2/stackoverflow_tag/$method" \
      --cache_dir="$data" --seed="$seed" --client_datasets_random_seed="$seed" \
      --root_output_dir="$runs" --experiment_name="$method-$seed" "$@"
  done
done
python main.py costs --task=stackoverflow_tag --data=synthetic \
  --methods=fedavg,fedadagrad,direct_joint,joint_zero_init,fedada2
python main.py report "$runs"
