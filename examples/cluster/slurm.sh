#!/bin/bash
#SBATCH --job-name=tff-adaptive
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --time=08:00:00
#
# One run on all machines of a Slurm job:
#
#   sbatch examples/cluster/slurm.sh --task=emnist_character --cache_dir=DATA
#
# Machines must share this folder and .venv; --cache_dir is read on each of them,
# by the same path. A sweep needs no cluster, but the same command on each:
#
#   srun python main.py sweep --storage=journal:runs/journal --axis=...
#
# A job that is ended goes on when it is submitted again, from its last
# checkpoint. For GPUs add #SBATCH --gpus-per-node=N.
set -euo pipefail

source "${VENV:-.venv}/bin/activate"
cores="${SLURM_CPUS_PER_TASK:-1}"
port="${RAY_PORT:-6379}"
mapfile -t machines < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head="${machines[0]}"
ip="$(srun --nodes=1 --ntasks=1 --nodelist="$head" \
  hostname --ip-address | cut -d' ' -f1)"
address="$ip:$port"

# Nobody else on the network may join the cluster or run code on it.
export RAY_AUTH_MODE=token
export RAY_AUTH_TOKEN="${RAY_AUTH_TOKEN:-$(openssl rand -hex 32)}"
export RAY_USAGE_STATS_ENABLED=0
# With --block, Ray on a machine ends with its step of the job.
common=(--num-cpus="$cores" --block ${RAY_OPTIONS:-})

steps=()
trap 'kill "${steps[@]}" 2> /dev/null || true; wait' EXIT
srun --nodes=1 --ntasks=1 --nodelist="$head" \
  ray start --head --node-ip-address="$ip" --port="$port" \
  --include-dashboard=false "${common[@]}" &
steps+=($!)
for machine in "${machines[@]:1}"; do
  srun --nodes=1 --ntasks=1 --nodelist="$machine" \
    ray start --address="$address" "${common[@]}" &
  steps+=($!)
done
# Until every machine is there; one that comes later is used from then on.
count="import ray; ray.init('$address', logging_level='error')
print(sum(node['Alive'] for node in ray.nodes()))"
for _ in $(seq 60); do
  found="$(python -c "$count" 2> /dev/null || echo 0)"
  [ "$found" -ge "${#machines[@]}" ] && break
  sleep 2
done

python main.py --runtime=ray --ray_address="$address" "$@"
