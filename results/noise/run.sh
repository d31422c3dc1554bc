#!/bin/sh
# Noise on two parabolas: Figure 1 of Mukherjee et al. (arXiv 2307.06306), and
# what Propositions 2, 9 and 10 of FedAda2 (arXiv 2410.18117) say of heavy tails.
#
#   SEEDS=0,1,2,3,4,5,6,7,8,9 results/noise/run.sh RUNS_FOLDER [ROUNDS]
#
# Needs no data. ROUNDS is 200 unless given.
set -eu
runs=$1
rounds=${2:-200}
data=
cd "$(dirname "$0")/../.."
. results/studies.sh

parabolas() { # name, flags
  name=$1
  shift
  study "$name" --task=quadratic --clients_per_round=2 \
    --total_rounds="$rounds" --rounds_per_eval=1 --divergence_factor=0 "$@"
}

# Figure 1: a = 2, noise of deviation 10 on every gradient, c = 0.5, gamma_b = 1.
figure_1="--quadratic_a=2 --quadratic_noise=10 --quadratic_noise_law=gaussian"
parabolas figure_1_sgd $figure_1 --algorithm=fedavg \
  --axis=client_learning_rate=0.01,0.1,0.5
parabolas figure_1_sps $figure_1 --c=0.5 --gamma_b=1 \
  --axis=algorithm=fedsps,fedsps_global

# One client in two has heavy tails; rates fall as 1 / t, as the proofs have them.
for law in student_t cauchy; do
  scale=1
  [ $law = cauchy ] && scale=0.3 # Proposition 10 asks for less than 1/3.
  heavy="--quadratic_a=1 --quadratic_noise=$scale --quadratic_noise_law=$law"
  falls="--client_lr_schedule=inv_lin_decay --client_lr_decay_steps=1 \
    --client_lr_decay_rate=1"
  parabolas "$law" $heavy $falls --algorithm=fedavg \
    --axis=client_optimizer=sgd,adagrad --axis=client_learning_rate=0.1,1
done
