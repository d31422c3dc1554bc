#!/bin/sh
# Longer studies of Reddi et al. (arXiv 2003.00295) on the data at hand.
#
#   results/reddi_full/run.sh DATA_FOLDER RUNS_FOLDER STUDY [ROUNDS]
#
# STUDY is one of
#   autoencoder   the five methods of Table 1, 3,000 rounds
#   autoencoder_mean   the same with the loss and the bottleneck as printed
#   characters    the five methods, 1,500 rounds, with and without EXPDECAY (E.6)
#   grid          FedAdam's whole grid on tags (Figures 2, 3, 12), 15 rounds each
#   scaffold      SCAFFOLD and FedAvg on five tasks (Figures 1 and 4), 60 rounds,
#                 the two tasks with recurrent networks 15, words with 20 clients
# and ROUNDS takes the place of its rounds. What was interrupted goes on when the
# script is started again.
set -eu
data=$1
runs=$2
which=$3
cd "$(dirname "$0")/../.."
. results/studies.sh

methods="fedadagrad fedadam fedavg fedyogi fedavgm"
tags="--stackoverflow_tag_vocab_size=1000 --stackoverflow_tag_num_tags=100"

case $which in
autoencoder)
  study autoencoder --total_rounds="${4:-3000}" --rounds_per_eval=100 \
    --axis=preset="$(presets reddi2021/emnist_autoencoder $methods)"
  ;;
autoencoder_mean)
  study autoencoder_mean --total_rounds="${4:-3000}" --rounds_per_eval=100 \
    --emnist_autoencoder_loss=mean --emnist_autoencoder_bottleneck=sigmoid \
    --axis=preset="$(presets reddi2021/emnist_autoencoder $methods)"
  ;;
characters)
  rounds=${4:-1500}
  list=$(presets reddi2021/emnist_character $methods)
  study characters --total_rounds="$rounds" --rounds_per_eval=50 \
    --axis=preset="$list"
  study characters_decay --total_rounds="$rounds" --rounds_per_eval=50 \
    --client_lr_schedule=exp_decay --client_lr_decay_steps=500 \
    --client_lr_decay_rate=0.1 --client_lr_staircase --axis=preset="$list"
  ;;
grid)
  study fedadam_on_tags --grid=reddi2021/stackoverflow_tag/fedadam $tags \
    --total_rounds="${4:-15}" --rounds_per_eval=5 \
    --num_validation_examples=2000 --validation_sample=resampled
  ;;
scaffold)
  for task in emnist_character emnist_autoencoder shakespeare_character \
    stackoverflow_tag stackoverflow_word; do
    of_task=
    some=60
    case $task in shakespeare_character | stackoverflow_word) some=15 ;; esac
    [ $task = stackoverflow_word ] && of_task=--clients_per_round=20
    [ $task = stackoverflow_tag ] && of_task=$tags
    # FedAvg's published rate, and a half decade below and above it; on tags a
    # decade and a half below, since so few users want less.
    case $task in
    emnist_character) rates=0.0316228,0.1,0.316228 ;;
    emnist_autoencoder) rates=3.16228,10,31.6228 ;;
    shakespeare_character) rates=0.316228,1,3.16228 ;;
    stackoverflow_tag) rates=3.16228,10,31.6228,100,316.228 ;;
    stackoverflow_word) rates=0.1,0.316228,1 ;;
    esac
    study "scaffold_$task" --preset=reddi2021/$task/fedavg $of_task \
      --total_rounds="${4:-$some}" --rounds_per_eval=5 \
      --num_validation_examples=2000 --axis=algorithm=fedavg,scaffold \
      --axis=client_learning_rate=$rates
  done
  ;;
*)
  echo "$0: no study $which" >&2
  exit 2
  ;;
esac
