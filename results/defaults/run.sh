#!/bin/sh
# Every method with this project's defaults, on the task that needs no file.
#
#   SEEDS=0,1,2 results/defaults/run.sh RUNS_FOLDER [ROUNDS]
#
# ROUNDS is 200 unless given, as it is for `main.py`.
set -eu
runs=$1
rounds=${2:-200}
data=
cd "$(dirname "$0")/../.."
. results/studies.sh

methods=\
fedavg,fedavgm,fedadagrad,fedadam,fedyogi,fedams,fedexp,fedcams,\
fedhyper,fedef21,scaffold,fedprox,moon,mime,mimelite,fednova,fedcm,\
feddyn,fedsam,fedlesam,fadamgc,delta_sgd,fedsps,feddecsps,\
fedsps_normalized,fedsps_global,direct_joint,joint_zero_init,fedada2,\
fedada2_blended,local_adaalter,local_amsgrad,fedmuon,fedadamw,diloco,\
muloco,bi2clip,fedlion,fedper,fedbn,centralized
study methods --task=digits --axis=algorithm="$methods" --total_rounds="$rounds"
